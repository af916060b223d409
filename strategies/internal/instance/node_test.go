package instance_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// through is middleware between a quorum and its node.
type through struct{ locker.Locker }

func TestAnAttemptThatItsQuorumCleansUpKeepsNoEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := through{single.New(s)}
		s.set(io.EOF)
		_, err := l.Acquire(calls.ForNode(t.Context()), contract.Request{Key: "k", Token: contract.NewToken(), TTL: time.Minute})
		if !errors.Is(err, io.EOF) {
			t.Errorf("Acquire = %v", err)
		}
		time.Sleep(time.Hour)
		if _, _, removes := s.counts(); removes != 0 {
			t.Errorf("%d cleanups", removes)
		}
	})
}

// A quorum has a gate for each node, and judges the failures of its attempts by itself.
func TestTheGateIsNotAskedForTheAttemptsOfAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		l := through{single.New(s)}
		try := func(ctx context.Context, key int) (silent bool) {
			_, err := l.Acquire(ctx, contract.Request{Key: fmt.Sprint(key), Token: contract.NewToken(), TTL: time.Second})
			return errors.As(err, new(*cleanup.SilentError))
		}
		s.set(unsent{io.EOF})
		for i := range 100 {
			if try(calls.ForNode(t.Context()), i) {
				t.Fatal("the gate refuses an attempt of a quorum")
			}
		}
		if try(t.Context(), 100) {
			t.Error("failures of a quorum's attempts close the gate")
		}
		for i := range 100 {
			try(t.Context(), i)
		}
		if !try(t.Context(), 0) || try(calls.ForNode(t.Context()), 0) {
			t.Error("the gate must refuse other attempts, and none of a quorum")
		}
	})
}

// A release of a quorum asks nodes that never granted the lease.
func TestANodeDoesNotLookForTheCauseOfALossInARelease(t *testing.T) {
	s := &looked{Store: memory.New()}
	lease := contract.Lease{Key: "k", Token: contract.NewToken(), Expires: time.Now().Add(time.Minute)}
	l := through{instance.Queued(s, false)}
	if err := l.Release(calls.ForNode(t.Context()), lease); !errors.Is(err, locker.ErrLost) || s.looks.Load() != 0 {
		t.Errorf("Release = %v, with %d looks", err, s.looks.Load())
	}
	if err := l.Release(t.Context(), lease); !errors.Is(err, locker.ErrLost) || s.looks.Load() != 1 {
		t.Errorf("without a quorum: Release = %v, with %d looks", err, s.looks.Load())
	}
}
