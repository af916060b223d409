package backendtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

func TestEveryMethodMeetsItsOwnFault(t *testing.T) {
	const key, ttl = "k", 10 * time.Second
	queued := FaultyQueued(memory.New())
	numbered := FaultyNumbered(memory.New())
	fenced := FaultyFenced(memory.New())
	nested := FaultyNested(memory.New())
	legacy := FaultyLegacy(memory.New().Legacy())
	type calls = map[Op]func(context.Context) error
	for _, store := range []struct {
		*Faults
		calls
	}{
		{fenced.Faults, calls{
			SetNX:    func(ctx context.Context) error { _, err := fenced.SetNX(ctx, key, "v", ttl); return err },
			ExpireIf: func(ctx context.Context) error { _, err := fenced.ExpireIf(ctx, key, "v", ttl); return err },
			DeleteIf: func(ctx context.Context) error { _, err := fenced.DeleteIf(ctx, key, "v"); return err },
			Watch:    func(ctx context.Context) error { return fenced.Watch(ctx, key, func() {}) },
			SetNXFenced: func(ctx context.Context) error {
				_, err := fenced.SetNXFenced(ctx, key, "v", ttl)
				return err
			},
			RaiseFence: func(ctx context.Context) error { _, err := fenced.RaiseFence(ctx, key, "v", 1); return err },
		}},
		{queued.Faults, calls{ // whose other methods are those of a FaultStore
			SetNX: func(ctx context.Context) error {
				_, err := queued.SetNXQueued(ctx, key, "v", ttl, backends.Turn{})
				return err
			},
			Watch: func(ctx context.Context) error { return queued.WatchQueued(ctx, key, "w", func() {}) },
		}},
		{numbered.Faults, calls{ // whose other methods are those of a FaultQueuedStore
			SetNXNumbered: func(ctx context.Context) error {
				_, err := numbered.SetNXNumbered(ctx, key, "v", ttl, backends.Turn{})
				return err
			},
		}},
		{nested.Faults, calls{
			Enter: func(ctx context.Context) error { _, err := nested.Enter(ctx, key, "ann", "v", ttl); return err },
			Renew: func(ctx context.Context) error { _, err := nested.Renew(ctx, key, "v", ttl); return err },
			Leave: func(ctx context.Context) error { _, err := nested.Leave(ctx, key, "v"); return err },
			Watch: func(ctx context.Context) error { return nested.Watch(ctx, key, func() {}) },
		}},
		{legacy.Faults, calls{
			SetNXForever: func(ctx context.Context) error { _, err := legacy.SetNXForever(ctx, key, "v"); return err },
			Get:          func(ctx context.Context) error { _, _, err := legacy.Get(ctx, key); return err },
			GetSet:       func(ctx context.Context) error { _, _, err := legacy.GetSet(ctx, key, "v"); return err },
			Left:         func(ctx context.Context) error { _, _, err := legacy.Left(ctx, key); return err },
			Expire:       func(ctx context.Context) error { _, err := legacy.Expire(ctx, key, ttl); return err },
			Delete:       func(ctx context.Context) error { _, err := legacy.Delete(ctx, key); return err },
			TxExpireIf:   func(ctx context.Context) error { _, err := legacy.TxExpireIf(ctx, key, "v", ttl); return err },
			TxDeleteIf:   func(ctx context.Context) error { _, err := legacy.TxDeleteIf(ctx, key, "v"); return err },
			GetBit:       func(ctx context.Context) error { _, err := legacy.GetBit(ctx, key, 0); return err },
			SetBit:       func(ctx context.Context) error { _, err := legacy.SetBit(ctx, key, 0, true); return err },
		}},
	} {
		for broken := range store.calls {
			store.Set(broken, Fail)
			for op, call := range store.calls {
				before := store.Calls(op)
				if err := call(t.Context()); errors.Is(err, ErrInjected) != (op == broken) {
					t.Errorf("%s while %s fails: error %v", op, broken, err)
				}
				if n := store.Calls(op) - before; n != 1 {
					t.Errorf("%s counted %d times", op, n)
				}
			}
			store.Clear()
		}
	}
}
