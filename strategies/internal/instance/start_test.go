package instance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// startable is a memory store with the calls of package starting, which ignores the end of a ctx.
type startable struct{ *memory.Store }

func (s *startable) Self() backends.Store { return s }

func (s *startable) StartSetNX(ctx context.Context, key, value string, ttl time.Duration, then func(backends.Result, error)) {
	go func() { then(s.SetNX(context.WithoutCancel(ctx), key, value, ttl)) }()
}

func (s *startable) StartDeleteIf(ctx context.Context, key, value string, then func(bool, error)) {
	go func() { then(s.DeleteIf(context.WithoutCancel(ctx), key, value)) }()
}

func TestAnAttemptThatIsStartedUnderACtxThatIsDoneSendsNothing(t *testing.T) {
	store := &startable{memory.New()}
	l := instance.Queued(store, false).(instance.Starter)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		want error
	}{"a ctx that is done": {ended, context.Canceled}, "one that goes on": {t.Context(), nil}} {
		answer := make(chan error)
		req := contract.Request{Key: name, Token: "token", TTL: time.Second}
		l.StartAcquire(c.ctx, req, func(_ contract.Lease, err error) { answer <- err }) // then must run on another goroutine, or this would hang
		if err := <-answer; !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, stored := store.Get(name); stored != (c.want == nil) {
			t.Errorf("%s: stored %v", name, stored)
		}
	}
}
