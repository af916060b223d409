package backendtest

import (
	"context"
	"errors"
	"time"
)

var contextSentences = []sentence{
	{"SetNX with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		free, held := x.key("free"), x.key("held")
		l := x.grant(held, "mine", x.long)
		x.done("SetNX", func(ctx context.Context) error {
			_, err := x.store.SetNX(ctx, free, "mine", x.long)
			return err
		})
		x.wantNothing(free)
		x.done("SetNX", func(ctx context.Context) error {
			_, err := x.store.SetNX(ctx, held, "mine", 2*x.long)
			return err
		})
		x.wantValue(held, "mine", l)
	}},
	{"ExpireIf with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.done("ExpireIf", func(ctx context.Context) error {
			_, err := x.store.ExpireIf(ctx, key, "mine", 2*x.long)
			return err
		})
		x.wantValue(key, "mine", l)
	}},
	{"DeleteIf with a ctx that is already done returns its error and changes nothing", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.done("DeleteIf", func(ctx context.Context) error {
			_, err := x.store.DeleteIf(ctx, key, "mine")
			return err
		})
		x.wantValue(key, "mine", l)
	}},
}

// done calls with a ctx that has been cancelled, and with one whose deadline has passed.
func (x *fixture) done(name string, call func(context.Context) error) {
	x.Helper()
	cancelled, cancel := context.WithCancel(x.Context())
	cancel()
	if err := call(cancelled); !errors.Is(err, context.Canceled) {
		x.Errorf("%s with a cancelled ctx: error %v; want context.Canceled", name, err)
	}
	late, cancel := context.WithDeadline(x.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := call(late); !errors.Is(err, context.DeadlineExceeded) {
		x.Errorf("%s after the deadline of its ctx: error %v; want context.DeadlineExceeded", name, err)
	}
}
