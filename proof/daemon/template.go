package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// A Template is the data of a new server. To make it takes a program seconds of CPU time, and to
// copy it a tenth. So a process makes it once, and copies it for each server.
type Template struct {
	mu   sync.Mutex
	data string // empty: it is not made
}

// Copy makes the folder data as fill would make it, with the same owners. folder makes one for the
// template, which [RemoveTemplates] removes.
func (t *Template) Copy(data string, folder func() (string, error), fill func(data string) error) error {
	from, err := t.made(folder, fill)
	if err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-R", "-p", from, data).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w\n%s", err, out)
	}
	return nil
}

// made returns the folder of the template. The next server tries again what has failed.
func (t *Template) made(folder func() (string, error), fill func(data string) error) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.data != "" {
		return t.data, nil
	}
	dir, err := folder()
	if dir != "" {
		templates.mu.Lock()
		templates.folders = append(templates.folders, dir)
		templates.mu.Unlock()
	}
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	if err := fill(data); err != nil {
		return "", err
	}
	t.data = data
	return data, nil
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
