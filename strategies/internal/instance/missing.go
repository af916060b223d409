package instance

import (
	"context"
	"reflect"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Missing returns a Locker that answers every call with an error, if store is nil or a nil pointer.
// For any other store it returns nil.
func Missing(store any) locker.Locker {
	if IsNil(store) {
		return refusing{errNoStore}
	}
	return nil
}

// Invalid returns a Locker that answers every call with a permanent error that says why.
func Invalid(why string) locker.Locker { return refusing{backends.Invalid(why)} }

// IsNil reports whether v is nil, or a nil pointer in an interface.
func IsNil(v any) bool {
	value := reflect.ValueOf(v)
	return v == nil || value.Kind() == reflect.Pointer && value.IsNil()
}

// refusing answers every call with its error.
type refusing struct{ err error }

func (r refusing) Acquire(_ context.Context, req contract.Request) (contract.Lease, error) {
	return contract.Lease{}, Fault("acquire", req.Key, r.err)
}

func (r refusing) Transfer(_ context.Context, _ string, req contract.Request) (contract.Lease, error) {
	return contract.Lease{}, Fault("acquire", req.Key, r.err)
}

func (r refusing) Extend(_ context.Context, lease contract.Lease, _ time.Duration) (contract.Lease, error) {
	return lease, Fault("extend", lease.Key, r.err)
}

func (r refusing) Release(_ context.Context, lease contract.Lease) error {
	return Fault("release", lease.Key, r.err)
}

func (r refusing) Watch(_ context.Context, key, _ string, _ func()) error {
	return Fault("watch", key, r.err)
}

const errNoStore = backends.Invalid("the store is nil: pass an open store")
