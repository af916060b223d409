package instance_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

func TestBadInputOfAStrategyIsAnInvalidErrorOfEveryCall(t *testing.T) {
	none := instance.Missing((*memory.Store)(nil))
	lease := contract.Lease{Key: "key", Token: "token"}
	shared := contract.Request{Key: "key", Token: "token", TTL: time.Second, Turn: contract.Turn{OtherSoftware: true}}
	_, acquire := none.Acquire(t.Context(), shared)
	_, extend := none.Extend(t.Context(), lease, time.Second)
	_, fair := instance.Queued(memory.New(), true).Acquire(t.Context(), shared)
	for _, c := range []struct {
		err  error
		want string
	}{
		{acquire, `lockstep: acquire "key": the store is nil: pass an open store`},
		{extend, `lockstep: extend "key": the store is nil: pass an open store`},
		{none.Release(t.Context(), lease), `lockstep: release "key": the store is nil: pass an open store`},
		{none.Watch(t.Context(), "key", "", func() {}), `lockstep: watch "key": the store is nil: pass an open store`},
		{fair, `lockstep: acquire "key": waiters can't stand in order with other software (locker.WithOtherSoftware): use single or fenced`},
	} {
		failed, ok := c.err.(*locker.Error)
		if !ok || c.err.Error() != c.want || failed.ErrorType() != "invalid" || !backends.Permanent(c.err) {
			t.Errorf("%v; want %s", c.err, c.want)
		}
	}
}

// numbers is a store that numbers grants and has no queue. It notes the Turn of a call.
type numbers struct {
	backends.NumberedStore
	turns []backends.Turn
}

func (n *numbers) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	n.turns = append(n.turns, t)
	return n.NumberedStore.SetNXNumbered(ctx, key, value, ttl, t)
}

func TestGrantsAreNumberedWithoutAQueueToo(t *testing.T) {
	store := &numbers{NumberedStore: memory.New()}
	l := instance.Numbered(store)
	before := uint64(0)
	for range 3 {
		req := contract.Request{Key: "key", Token: contract.NewToken(), TTL: time.Second, Turn: contract.Turn{Waiter: "waiter"}}
		lease, err := l.Acquire(t.Context(), req)
		if err != nil || lease.Fence <= before {
			t.Fatalf("Acquire = %v, %v after number %d", lease, err, before)
		}
		before = lease.Fence
		req.Token = contract.NewToken()
		if _, err := l.Acquire(t.Context(), req); err == nil {
			t.Error("a lock that is held is granted")
		}
		if err := l.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
	}
	for _, turn := range store.turns {
		if turn != (backends.Turn{}) {
			t.Errorf("the store is asked for %+v in a queue that it does not have", turn)
		}
	}
}
