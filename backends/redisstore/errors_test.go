package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

func TestAGrantThatCouldNotBeTakenBackIsUnknown(t *testing.T) {
	readonly := &ReplyError{Text: "READONLY You can't write against a read only replica."}
	s := New(&answering{replies: []any{"OK", int64(0), readonly, readonly}}, WithReplicas(1, time.Second), WithoutScripts())
	r, err := s.SetNX(t.Context(), "a", "token", 20*time.Second)
	if r.OK || backends.Unsent(err) || backends.Permanent(err) || !errors.Is(err, error(readonly)) {
		t.Errorf("SetNX = %+v, %v", r, err)
	}
}

// answering answers the commands of one connection in turn.
type answering struct {
	driver.Executor
	replies []any
}

func (s *answering) Pinned(_ context.Context, _ string, fn func(driver.Conn) error) error {
	return fn(s)
}

func (s *answering) Pipeline(_ context.Context, commands ...[]any) ([]any, error) {
	replies := make([]any, len(commands))
	for i := range commands {
		replies[i] = s.replies[0]
		if len(s.replies) > 1 {
			s.replies = s.replies[1:]
		}
	}
	return replies, nil
}

func TestAnExecutorThatRefusesFailsEveryCall(t *testing.T) {
	wrong := backends.Invalid("not so")
	s := New(driver.Refuse(wrong))
	if _, err := s.SetNX(t.Context(), "a", "token", 20*time.Second); !errors.Is(err, wrong) {
		t.Errorf("SetNX = %v", err)
	}
	if err := s.Watch(t.Context(), "a", func() {}); !errors.Is(err, wrong) {
		t.Errorf("Watch = %v", err)
	}
	if _, err := s.TxDeleteIf(t.Context(), "a", "token"); !errors.Is(err, wrong) {
		t.Errorf("TxDeleteIf = %v", err)
	}
	if _, _, err := s.Get(t.Context(), "a"); !errors.Is(err, wrong) {
		t.Errorf("Get = %v", err)
	}
	if errors.Is(wrong, backends.ErrWrongType) {
		t.Error("it is no wrong type")
	}
}
