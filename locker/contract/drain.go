package contract

import (
	"context"

	"github.com/lockstep-go/lockstep/internal/calls"
)

// DelayDrain makes locker.Client.Drain wait until done is called. It is for a [Locker] that does something
// in the background after its call, such as the cleanup after an unknown outcome. ctx is that of the
// call. Call DelayDrain before the call returns. Call done when the store has answered, or has
// forgotten the value; further calls of done do nothing.
//
//	done := contract.DelayDrain(ctx)
//	go func() {
//		defer done()
//		cleanUp(context.WithoutCancel(ctx), req)
//	}()
//
// It does nothing if the ctx does not come from a Client: nobody waits then.
func DelayDrain(ctx context.Context) (done func()) {
	if all, ok := ctx.Value(calls.DrainKey{}).(interface{ Count() func() }); ok {
		return all.Count()
	}
	return func() {}
}
