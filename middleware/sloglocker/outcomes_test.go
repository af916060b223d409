package sloglocker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/sloglocker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// An outcome is a scene with all its records, read a minute after its end. Of warnings in a row with
// one message, only the first is listed.
type outcome struct {
	name  string
	nodes int // 0: one
	of    func(s *scene) locker.Locker
	do    func(s *scene)
	want  []string
}

func TestEveryOutcomeIsLoggedOnceAtItsLevel(t *testing.T) {
	for _, o := range slices.Concat(acquires, extensions, minimumHolds, shared, ends, quorums) {
		t.Run(o.name, func(t *testing.T) {
			s := play(t, max(o.nodes, 1), o.of, o.do)
			compare(t, s.journal.lines(), o.want)
			if s.secrets.in(s.journal.all()) {
				t.Errorf("a token is in\n%s", s.journal.all())
			}
		})
	}
}

// TestAKeyThatIsNotToBeLoggedIsInNoRecord also shows that everything else is there, except the texts
// of errors.
func TestAKeyThatIsNotToBeLoggedIsInNoRecord(t *testing.T) {
	hide := sloglocker.WithKeyAttribute(func(k string) string {
		if k != key {
			t.Errorf("called for key %q", k)
		}
		return "hidden"
	})
	for _, o := range slices.Concat(acquires, extensions, minimumHolds, shared, ends, quorums) {
		t.Run(o.name, func(t *testing.T) {
			s := play(t, max(o.nodes, 1), o.of, o.do, hide)
			var want []string
			for _, line := range o.want {
				want = append(want, strings.NewReplacer("key="+key, "key=hidden", " error=…", "").Replace(line))
			}
			compare(t, s.journal.lines(), want)
			if all := s.journal.all(); strings.Contains(all, key) || s.secrets.in(all) {
				t.Errorf("the key or a token is in\n%s", all)
			}
		})
	}
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const free = `level=DEBUG msg="lock released" key=invoice/42 held=0s trace=7`

var acquires = []outcome{
	{name: "acquired at once", do: func(s *scene) {
		l := s.lock()
		time.Sleep(time.Second)
		l.Unlock(s.ctx)
		l.Unlock(s.ctx)
	}, want: []string{
		`level=DEBUG msg="lock acquired" key=invoice/42 outcome=acquired ttl=9s waited=0s attempts=1 contended=false trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=1s trace=7`,
	}},
	{name: "by Do", do: func(s *scene) {
		s.locks.Do(s.ctx, key, func(context.Context, *locker.Lock) error { return errors.New("of the work, not of the lock") })
	}, want: []string{
		`level=DEBUG msg="lock acquired" key=invoice/42 outcome=acquired ttl=9s waited=0s attempts=1 contended=false trace=7`,
		free,
	}},
	{name: "after contention", do: func(s *scene) {
		s.taken(time.Second)
		s.lock().Unlock(s.ctx)
	}, want: []string{
		`level=DEBUG msg="lock acquired" key=invoice/42 outcome=acquired ttl=9s waited=1s attempts=5 contended=true trace=7`,
		free,
	}},
	{name: "after a fault, and nobody had it", do: func(s *scene) {
		s.faults[0].Once(backendtest.SetNX, backendtest.Fail)
		s.lock(locker.WithWait(5 * time.Second)).Unlock(s.ctx)
	}, want: []string{
		`level=DEBUG msg="lock acquired" key=invoice/42 outcome=acquired ttl=9s waited=400ms attempts=2 contended=false trace=7`,
		free,
	}},
	{name: "behind another call of its Client, and the server is down", do: func(s *scene) {
		s.faults[0].Set(backendtest.SetNX, backendtest.Fail)
		go func() { _, _ = s.locks.Lock(s.ctx, key, locker.WithWait(time.Second)) }()
		synctest.Wait()
		s.fail(s.ctx, locker.WithWait(500*time.Millisecond))
	}, want: []string{
		`level=WARN msg="lock wait timed out" key=invoice/42 outcome=timeout ttl=9s waited=500ms contended=true error=… error_type=wait_limit trace=7`,
	}},
	{name: "busy TryLock", do: func(s *scene) {
		s.taken(time.Second)
		if _, err := s.locks.TryLock(s.ctx, key); !errors.Is(err, locker.ErrHeld) {
			s.Error(err)
		}
	}, want: []string{
		`level=DEBUG msg="lock busy" key=invoice/42 outcome=busy ttl=9s waited=0s attempts=1 contended=true left=9s error=… error_type=held trace=7`,
	}},
	{name: "no attempts left", do: func(s *scene) {
		s.taken(time.Second)
		s.fail(s.ctx, locker.WithAttempts(3))
	}, want: []string{
		`level=DEBUG msg="lock busy" key=invoice/42 outcome=busy ttl=9s waited=400ms attempts=3 contended=true left=8.6s error=… error_type=held trace=7`,
	}},
	{name: "wait limit", do: func(s *scene) {
		s.taken(5 * time.Second)
		s.fail(s.ctx, locker.WithWait(time.Second))
	}, want: []string{
		`level=WARN msg="lock wait timed out" key=invoice/42 outcome=timeout ttl=9s waited=1s attempts=4 contended=true left=8s error=… error_type=wait_limit trace=7`,
	}},
	{name: "ctx cancelled", do: func(s *scene) {
		s.taken(5 * time.Second)
		ctx, cancel := context.WithCancelCause(s.ctx)
		time.AfterFunc(time.Second, func() { cancel(errors.New("shutting down")) })
		s.fail(ctx)
	}, want: []string{
		`level=DEBUG msg="lock wait canceled" key=invoice/42 outcome=canceled ttl=9s waited=1s attempts=4 contended=true left=8s error=… error_type=canceled trace=7`,
	}},
	{name: "ctx deadline", do: func(s *scene) {
		s.taken(5 * time.Second)
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		s.fail(ctx)
	}, want: []string{
		`level=WARN msg="lock wait timed out" key=invoice/42 outcome=timeout ttl=9s waited=1s attempts=4 contended=true left=8s error=… error_type=timeout trace=7`,
	}},
	{name: "ctx deadline while the server hangs", do: func(s *scene) {
		s.faults[0].Set(backendtest.SetNX, backendtest.Hang)
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		s.fail(ctx)
	}, want: []string{
		`level=WARN msg="lock wait timed out" key=invoice/42 outcome=timeout ttl=9s waited=1s attempts=1 contended=false error=… error_type=timeout trace=7`,
	}},
	{name: "server down", do: func(s *scene) {
		s.faults[0].Set(backendtest.All, backendtest.Fail)
		s.fail(s.ctx)
	}, want: []string{
		`level=ERROR msg="lock acquire failed" key=invoice/42 outcome=error ttl=9s waited=0s attempts=1 contended=false error=… error_type=error trace=7`,
	}},
	{name: "a time limit of the client library", do: func(s *scene) {
		s.faults[0].Set(backendtest.SetNX, func(context.Context, func(context.Context) error) error {
			time.Sleep(3 * time.Second)
			return context.DeadlineExceeded
		})
		s.fail(s.ctx)
	}, want: []string{
		`level=ERROR msg="lock acquire failed" key=invoice/42 outcome=error ttl=9s waited=3s attempts=1 contended=false error=… error_type=timeout trace=7`,
	}},
	{name: "a key of another type", do: func(s *scene) {
		s.stores[0].SetOther(key)
		s.fail(s.ctx)
	}, want: []string{
		`level=ERROR msg="lock acquire failed" key=invoice/42 outcome=error ttl=9s waited=0s attempts=1 contended=false error=… error_type=foreign_key trace=7`,
	}},
	{name: "a numbered grant", of: func(s *scene) locker.Locker { return fenced.New(s.stores[0]) }, do: func(s *scene) {
		s.lock().Unlock(s.ctx)
	}, want: []string{
		`level=DEBUG msg="lock acquired" key=invoice/42 fence=946684800000000 outcome=acquired ttl=9s waited=0s attempts=1 contended=false trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 fence=946684800000000 held=0s trace=7`,
	}},
	{name: "a grant with an owner", of: func(s *scene) locker.Locker { return reentrant.New(s.stores[0]) }, do: func(s *scene) {
		ctx := locker.ContextWithOwner(s.ctx, "ann")
		outer := s.lockUnder(ctx)
		s.lockUnder(ctx).Unlock(ctx)
		outer.Unlock(ctx)
	}, want: []string{
		`level=DEBUG msg="lock acquired" key=invoice/42 owner=ann holds=1 outcome=acquired ttl=9s waited=0s attempts=1 contended=false trace=7`,
		`level=DEBUG msg="lock acquired" key=invoice/42 owner=ann holds=2 outcome=acquired ttl=9s waited=0s attempts=1 contended=false trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 owner=ann holds=2 held=0s trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 owner=ann holds=1 held=0s trace=7`,
	}},
}

func quorum(s *scene) locker.Locker {
	var nodes []locker.Locker
	for i, f := range s.faults {
		nodes = append(nodes, single.New(f.Store(s.stores[i])))
	}
	l, err := redlock.New(nodes)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

const gotQuorum = `level=DEBUG msg="lock acquired" key=invoice/42 outcome=acquired ttl=9s waited=0s attempts=1 contended=false quorum=2/3 trace=7`

var quorums = []outcome{
	{name: "a quorum without one node", nodes: 3, of: quorum, do: func(s *scene) {
		s.faults[1].Set(backendtest.All, backendtest.Fail)
		s.lock().Unlock(s.ctx)
	}, want: []string{gotQuorum, free}},
	{name: "no quorum because of nodes that are down", nodes: 3, of: quorum, do: func(s *scene) {
		for _, f := range s.faults[:2] {
			f.Set(backendtest.All, func(context.Context, func(context.Context) error) error {
				time.Sleep(time.Millisecond) // after the vote of the third
				return backendtest.ErrInjected
			})
		}
		s.fail(s.ctx)
	}, want: []string{
		`level=ERROR msg="lock acquire failed" key=invoice/42 outcome=error ttl=9s waited=1ms attempts=1 contended=false quorum=1/3 error=… error_type=quorum trace=7`,
	}},
	{name: "no quorum because of another holder", nodes: 3, of: quorum, do: func(s *scene) {
		for i, store := range s.stores[:2] {
			store.Set(key, "other", 5*time.Second)
			s.faults[i].Set(backendtest.SetNX, backendtest.Late(time.Millisecond)) // after the vote of the third
		}
		_, err := s.locks.TryLock(s.ctx, key)
		if !errors.Is(err, locker.ErrHeld) {
			s.Error(err)
		}
	}, want: []string{
		`level=DEBUG msg="lock busy" key=invoice/42 outcome=busy ttl=9s waited=1ms attempts=1 contended=true left=4.999s quorum=1/3 error=… error_type=held trace=7`,
	}},
	{name: "loss of a quorum", nodes: 3, of: quorum, do: func(s *scene) {
		s.lock()
		time.Sleep(time.Second)
		for _, store := range s.stores[:2] {
			store.Delete(key)
		}
	}, want: []string{
		gotQuorum,
		`level=ERROR msg="lock lost" key=invoice/42 held=2.88s reason=quorum error=… error_type=lost trace=7`,
	}},
}
