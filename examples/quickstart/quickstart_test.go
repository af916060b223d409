package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

// The test binary is also the program of the processes that add.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "add" {
		main()
		return
	}
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // or each of these processes takes a second to exit
	os.Exit(redistest.Main(m))
}

func TestNoUpdateIsLostUnderTheLock(t *testing.T) {
	for name, addr := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"redis":    func(t *testing.T) string { return redistest.Start(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			var out bytes.Buffer
			if err := run(t.Context(), &out, addr(t)); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			if want := "\nwith a lock     the counter says 200:   0 updates lost"; !strings.Contains(out.String(), want) {
				t.Errorf("no %q in:\n%s", want, &out)
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v %v", left, err)
			}
		})
	}
}

func TestUpdatesAreLostWithoutTheLock(t *testing.T) {
	var out bytes.Buffer
	lost, err := race(t.Context(), &out, "without a lock", filepath.Join(t.TempDir(), "counter"), "", "")
	if err != nil || lost <= 0 {
		t.Errorf("%d updates lost, %v\n%s", lost, err, &out)
	}
}

func TestAServerThatIsNotThereIsAnError(t *testing.T) {
	const nobody = "127.0.0.1:1"
	err := run(t.Context(), &bytes.Buffer{}, nobody)
	if err == nil || !strings.Contains(err.Error(), nobody+": connect: connection refused") {
		t.Errorf("run = %v", err)
	}
}
