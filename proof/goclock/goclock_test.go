package goclock_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/goclock"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// clock prints its wall clock in microseconds, and how long it runs, at each line that it reads.
const clock = `package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	began := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		now := time.Now()
		fmt.Println(now.UnixMicro(), now.Sub(began).Microseconds())
	}
}
`

func TestTheWallClockOfAProgramMovesAndItsMonotonicClockDoesNot(t *testing.T) {
	full.Only(t) // it builds the standard library, and only campaigns of nightly use the package
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(clock), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), goclock.Build(t, dir, "build", "main.go"))
	env, move := redistest.ClockFile(t, dir)
	cmd.Env = append(os.Environ(), env)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began, lines := time.Now(), bufio.NewReader(out) // before the program can read its clock
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, by := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Millisecond, -1500 * time.Millisecond, 0} {
		move(by)
		before := time.Now()
		if _, err := fmt.Fprintln(in); err != nil {
			t.Fatal(err)
		}
		var wall, ran int64
		if _, err := fmt.Fscanln(lines, &wall, &ran); err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		if at := time.UnixMicro(wall).Add(-by); at.Before(before.Truncate(time.Microsecond)) || at.After(after) {
			t.Errorf("moved by %v, the clock says %v; want a time from %v to %v", by, at, before, after)
		}
		if d := time.Duration(ran) * time.Microsecond; d < 0 || d > after.Sub(began) {
			t.Errorf("moved by %v, the program has run for %v; want up to %v", by, d, after.Sub(began))
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
