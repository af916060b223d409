//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package command

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const noGroup = 1 << 30 // no system has so many processes

func TestASignalThatComesTwiceAtOnceIsOne(t *testing.T) {
	for _, row := range []struct {
		name          string
		first, second syscall.Signal
		after         time.Duration
		kills         bool
	}{
		{"timeout(1) sends it to its child, and then to its group", syscall.SIGTERM, syscall.SIGTERM, 50 * time.Millisecond, false},
		{"a second Ctrl-C", syscall.SIGINT, syscall.SIGINT, 150 * time.Millisecond, true},
		{"a second Ctrl-C much later", syscall.SIGINT, syscall.SIGINT, 2 * time.Second, false},
		{"another signal", syscall.SIGINT, syscall.SIGTERM, 50 * time.Millisecond, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &supervisor{running: &running{}, child: &child{group: noGroup}}
				s.pass(row.first)
				time.Sleep(row.after)
				if s.pass(row.second); s.killed != row.kills {
					t.Errorf("KILL: %t, want %t", s.killed, row.kills)
				}
			})
		})
	}
}

func TestSignalsThatKeepComingKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &supervisor{running: &running{}, child: &child{group: noGroup}}
		for range 5 {
			s.pass(syscall.SIGINT)
			time.Sleep(50 * time.Millisecond)
		}
		if !s.killed {
			t.Error("no KILL after five INT")
		}
	})
}

// init makes this test binary a guard that never gets ready, if it is called as one.
func init() {
	if os.Args[0] == guardName {
		_, _ = io.Copy(io.Discard, os.NewFile(3, "pipe"))
		os.Exit(0)
	}
}

// TestAGuardThatDoesNotStartIsNotWaitedForForever: without the limit it would not return.
func TestAGuardThatDoesNotStartIsNotWaitedForForever(t *testing.T) {
	if g, err := startGuard(noGroup, now()+int64(time.Hour), time.Second, "k", 50*time.Millisecond); err == nil {
		t.Error("it is ready")
		g.dismiss()
	}
}

// The end of a process whose server has not answered waits for it three quarters of a second in all, and no
// longer: two seconds and one were added to -w.
func TestTheEndOfAProcessIsShortIfTheServerDoesNotAnswer(t *testing.T) {
	silent := &exitError{exitUnavailable, errors.New("no answer")}
	if d := patience(silent, 2*time.Second) + patience(silent, time.Second); d > 750*time.Millisecond {
		t.Errorf("it waits for %v", d)
	}
	for _, err := range []error{nil, &exitError{exitHeld, nil}, &exitError{exitSignal + 2, nil}} {
		if d := patience(err, 2*time.Second); d != 2*time.Second {
			t.Errorf("%v: it waits for %v", err, d)
		}
	}
}
