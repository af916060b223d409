package otellocker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// At the end of a lease, the deadline of an extension and the end of the hold come at one instant.
// Either may come first.
func TestTheOutcomeOfAnExtensionDoesNotDependOnWhichEndCameFirst(t *testing.T) {
	end := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	late, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	over := func(ctx context.Context) error { return fmt.Errorf("extend: %w", ctx.Err()) }
	tracer := &tracing{}
	wanted, cancelWanted := context.WithTimeout(tracer.withOrigin(t.Context(), "key", hold{}), -time.Second)
	defer cancelWanted()
	unwanted, cancelUnwanted := context.WithTimeout(tracer.withOrigin(late, "key", hold{}), -time.Second)
	defer cancelUnwanted()
	expired := end(&locker.LostError{Key: "key", Reason: locker.LostUnavailable})
	held := end(&locker.LostError{Key: "key", Reason: locker.LostMaxHold})
	released := end(locker.ErrReleased)
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want outcome
	}{
		"granted":                    {t.Context(), nil, renewed},
		"granted at the end":         {expired, nil, renewed},
		"lost":                       {t.Context(), locker.ErrLost, lost},
		"lost after Unlock":          {released, locker.ErrLost, canceled},
		"it hung until its deadline": {late, over(late), timeout},
		"it hung before the ctx given to Lock had ended": {wanted, over(wanted), timeout},
		"it hung after the ctx given to Lock had ended":  {unwanted, over(unwanted), canceled},
		"it hung until the hold was lost":                {expired, over(expired), timeout},
		"it hung until the maximum hold":                 {held, over(held), canceled},
		"it hung until Unlock":                           {released, over(released), canceled},
		"failed":                                         {t.Context(), errors.New("broken pipe"), failed},
		"failed, and the hold was lost by then":          {expired, errors.New("broken pipe"), failed},
	} {
		if got := renewalOf(c.ctx, contract.Lease{Key: "key"}, c.err); got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}
