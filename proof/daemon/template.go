package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// A Template is the data of a new server. To make it takes a program seconds of CPU time, and to copy
// it a tenth. So a process makes it once, and copies it for each server.
type Template struct {
	once sync.Once
	data string
	err  error
}

// Copy makes the folder data as fill would make it, with the same owners. folder makes one for the
// template, which [RemoveTemplates] removes.
func (t *Template) Copy(data string, folder func() (string, error), fill func(data string) error) error {
	t.once.Do(func() {
		dir, err := folder()
		if err != nil {
			t.err = err
			return
		}
		templates.mu.Lock()
		templates.folders = append(templates.folders, dir)
		templates.mu.Unlock()
		t.data = filepath.Join(dir, "data")
		t.err = fill(t.data)
	})
	if t.err != nil {
		return t.err
	}
	if out, err := exec.Command("cp", "-R", "-p", t.data, data).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w\n%s", err, out)
	}
	return nil
}

var templates struct {
	mu      sync.Mutex
	folders []string
}

// RemoveTemplates removes all templates. A process calls it when its tests have ended.
func RemoveTemplates() {
	templates.mu.Lock()
	defer templates.mu.Unlock()
	for _, dir := range templates.folders {
		_ = os.RemoveAll(dir)
	}
}
