package redisstore

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
	"github.com/lockstep-go/lockstep/internal/turns"
)

// Anyone may publish on the channel of a store.
func TestAMessageThatTellsNobodyHisTurnWakesNobody(t *testing.T) {
	for _, message := range []string{"", "r", "n", "@", "r@", "rw", "rw@", "rw@another key", "nw@another key", "ranother@k", "nanother@k", "w@k", "l", "l@", "lw@k", "lanother@another key"} {
		synctest.Test(t, func(t *testing.T) {
			s := New(&answers{reply: int64(0)})
			s.turns.Add(&turns.Turn{Key: "k", Waiter: "w", Wake: func() { t.Errorf("woken by %q", message) }})
			s.heard(message)
			time.Sleep(time.Second)
		})
	}
}

// While the slot of a lock and its queue moves, neither server does what needs both keys.
func TestWhileASlotMovesTheQueueOrTheLockIsUsedAlone(t *testing.T) {
	for _, text := range []string{
		"TRYAGAIN Multiple keys request during rehashing of slot", "MOVED 13907 127.0.0.1:6379", "ASK 13907 127.0.0.1:6379",
	} {
		moving := &moves{refusal: &ReplyError{Text: text}}
		s := New(moving, WithoutQuarantine())
		s.quit("key", "waiter@channel")
		s.withdraw("key", "waiter@channel")
		if want := []string{"ZREM", "ZREM"}; !slices.Equal(moving.done, want) {
			t.Errorf("%s: a waiter that leaves sends %q, want %q", text, moving.done, want)
		}
		moving.done = nil
		if ok, err := s.DeleteIf(t.Context(), "key", "token"); !ok || err != nil {
			t.Errorf("%s: DeleteIf = %v, %v", text, ok, err)
		}
	}
}

func TestWhileASlotMovesAPermitGetsItsNumber(t *testing.T) {
	for _, text := range []string{"TRYAGAIN Multiple keys request during rehashing of slot", "NOPERM this user has no permissions to access one of the keys"} {
		moving := &moves{refusal: &ReplyError{Text: text}}
		_, _ = New(moving, WithoutQuarantine()).Enter(t.Context(), "key", "token", time.Second, backends.Admission{Limit: 3, Slots: true})
		if want := []any{"EVALSHA", scripts.EnterAlone.Digest, 1, "key", "token"}; !slices.Equal(moving.last[:5], want) || !slices.Contains(moving.last, any("slots")) {
			t.Errorf("%s: Enter sends %q; want the script for the lock alone, with slots", text, moving.last)
		}
	}
}

// moves is a server that refuses scripts with more than one key, and says what else it did.
type moves struct {
	driver.Executor
	refusal error
	done    []string
	last    []any // that was done
}

func (m *moves) Do(_ context.Context, args ...any) (any, error) {
	if args[0] == "EVALSHA" && args[2] != 1 {
		return nil, m.refusal
	}
	m.done, m.last = append(m.done, args[0].(string)), args
	return int64(1), nil
}

func (m *moves) Once(ctx context.Context, args ...any) (any, error) { return m.Do(ctx, args...) }
