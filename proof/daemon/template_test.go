package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestATemplateIsFilledOnceAndRemoved(t *testing.T) {
	var template Template
	made, filled := []string{}, 0
	copied := func(data string, wrong error) error {
		return template.Copy(data, func() (string, error) {
			dir, err := os.MkdirTemp(t.TempDir(), "")
			made = append(made, dir)
			return dir, err
		}, func(data string) error {
			filled++
			return errors.Join(wrong, os.MkdirAll(filepath.Join(data, "base"), 0o700), os.WriteFile(filepath.Join(data, "base", "1"), []byte("rows"), 0o600))
		})
	}
	for _, name := range []string{"a", "b"} {
		data := filepath.Join(t.TempDir(), name)
		if err := copied(data, nil); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(data, "base", "1")); err != nil || string(text) != "rows" {
			t.Errorf("%q, %v", text, err)
		}
		if info, err := os.Stat(filepath.Join(data, "base")); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the folder is %v, %v", info.Mode(), err)
		}
	}
	if filled != 1 {
		t.Errorf("it was filled %d times", filled)
	}
	RemoveTemplates()
	if _, err := os.Stat(made[0]); !os.IsNotExist(err) {
		t.Errorf("the template is left: %v", err)
	}

	template = Template{}
	wrong := errors.New("no space")
	if err := copied(filepath.Join(t.TempDir(), "c"), wrong); !errors.Is(err, wrong) {
		t.Errorf("%v; want %v", err, wrong)
	}
	if err := copied(filepath.Join(t.TempDir(), "c"), nil); err != nil {
		t.Errorf("it is not tried again: %v", err)
	}
	RemoveTemplates()
	for _, dir := range made {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("a template that failed is left: %v", err)
		}
	}
}
