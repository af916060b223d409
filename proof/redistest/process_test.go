package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/daemon"
)

func TestFailureToStartShowsTheLog(t *testing.T) {
	Require(t)
	_, err := launch(t, t.TempDir(), config{args: []string{"--no-such-option", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("got %v", err)
	}
}

// The other server answers PING, as ours would.
func TestPortTakenByAnotherServer(t *testing.T) {
	other := Start(t)
	s := &Server{dir: t.TempDir()}
	tries := 0
	var err error
	s.Server, err = daemon.Launch(t, func(port *daemon.Port) (*daemon.Process, error) {
		if tries++; tries == 1 {
			return s.start(&daemon.Port{Number: other.Port()})
		}
		return s.start(port)
	}, (*daemon.Process).Kill)
	if err != nil {
		t.Fatal(err)
	}
	if tries != 2 || s.Addr() == other.Addr() {
		t.Errorf("%d tries; at %s, the other at %s", tries, s.Addr(), other.Addr())
	}
}

func TestServersDieWithTheTestProcess(t *testing.T) {
	const role = "REDISTEST_DIE_WITH_SERVERS"
	if os.Getenv(role) != "" {
		for _, s := range StartN(t, 2) {
			fmt.Println("server at", s.Addr())
		}
		os.Exit(0) // without cleanup, as after a panic of the test timeout
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child to its parent")
	}
	Require(t)
	out, err := child.Command(t, t.Name(), role+"=1", "TMPDIR="+t.TempDir()).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	found := 0
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "server at "); ok {
			found++
			await(t, "the orphan at "+addr+" dies", func() bool { return refuses(addr) })
		}
	}
	if found != 2 {
		t.Errorf("found %d servers in:\n%s", found, out)
	}
}

// The kernel kills the server with its parent thread, and threads end before the process does.
func TestServersOutliveTheThreadThatAskedForThem(t *testing.T) {
	Require(t)
	var s *Server
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		s, err = launch(t, t.TempDir(), config{})
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	s.With(func(p *daemon.Process) error {
		select {
		case <-p.Done():
			return errors.New("it died with the thread")
		case <-time.After(50 * time.Millisecond): // time to die
			return nil
		}
	})
	want(t, s, "PONG", "PING")
}
