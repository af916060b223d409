package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

// state is the state of the process lockstep that has some text among its arguments; 0: there is none.
func state(t *testing.T, argument string) byte {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		line, _ := os.ReadFile(file)
		if !strings.HasPrefix(string(line), "lockstep\x00") || !strings.Contains(string(line), "\x00"+argument+"\x00") {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		if _, text, ok := strings.Cut(string(text), ") "); ok {
			return text[0]
		}
	}
	return 0
}

func TestAJobInTheBackgroundLeavesTheTerminalAlone(t *testing.T) {
	s := redistest.Start(t)
	for _, row := range []struct {
		name, then string
		becomes    byte
	}{
		{"when it ends", "", 0},
		{"when it is stopped", "; read x", 'T'},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := startTerminal(t, url(s))
			// Not a loop around sleep: a shell that is stopped in the middle of its vfork hangs.
			fifo := filepath.Join(t.TempDir(), "go")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			gate, err := os.OpenFile(fifo, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer gate.Close()
			holder := fmt.Sprintf("job-%d", rand.Uint64())
			p.enter(fmt.Sprintf(`lockstep run -ttl 29s -holder %s k -- sh -c 'echo sta''rted; read go < %s%s'`, holder, fifo, row.then))
			p.expect("started")
			_, _ = p.master.WriteString("\x1a")
			p.expect("Stopped")
			p.enter(`bg; sh -c 'echo rea''ding; read x; echo "got=$x"'`)
			p.expect("reading")
			if _, err := gate.WriteString("go\n"); err != nil {
				t.Fatal(err)
			}
			await(t, "the job is there", func() bool { return state(t, holder) == row.becomes })
			p.enter("meow")
			p.expect("got=meow")
		})
	}
}

func TestAScriptStopsWithItsJob(t *testing.T) {
	s := redistest.Start(t)
	p := startTerminal(t, url(s))
	p.enter(`bash -c '(exec -a lockstep "$EXE" run -ttl 29s -holder scripted k -- sh -c "echo as\"\"king; read x; echo got=\$x"); echo code=$?'`)
	p.expect("asking")
	_, _ = p.master.WriteString("\x1a")
	p.expect("Stopped")
	p.enter("fg")
	await(t, "it goes on", func() bool { return state(t, "scripted") == 'S' })
	p.enter("meow")
	p.expect("got=meow")
	p.expect("code=0")
}

func TestACommandThatWaitsForATerminalDoesSoAloud(t *testing.T) {
	s := redistest.Start(t)
	p := startTerminal(t, url(s))
	p.enter(`lockstep run -ttl 29s k -- sh -c 'read x' | cat`)
	p.expect("the command is stopped")
	if !inspect(t, url(s), "k").Held {
		t.Error("the lock is free, while the command is stopped")
	}
	_, _ = p.master.WriteString("\x03")
	await(t, "Ctrl-C ends it", func() bool { return !inspect(t, url(s), "k").Held })
}
