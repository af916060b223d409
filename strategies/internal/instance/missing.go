package instance

import (
	"context"
	"reflect"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// Missing returns a Locker that answers every call with an error, if store is nil or a nil pointer.
// For any other store it returns nil.
func Missing(store any) locker.Locker {
	if IsNil(store) {
		return missing{}
	}
	return nil
}

// IsNil reports whether v is nil, or a nil pointer in an interface.
func IsNil(v any) bool {
	value := reflect.ValueOf(v)
	return v == nil || value.Kind() == reflect.Pointer && value.IsNil()
}

type missing struct{}

func (missing) Acquire(_ context.Context, req locker.Request) (locker.Lease, error) {
	return locker.Lease{}, Fault("acquire", req.Key, noStore{})
}

func (missing) Extend(_ context.Context, lease locker.Lease, _ time.Duration) (locker.Lease, error) {
	return lease, Fault("extend", lease.Key, noStore{})
}

func (missing) Release(_ context.Context, lease locker.Lease) error {
	return Fault("release", lease.Key, noStore{})
}

func (missing) Watch(_ context.Context, key, _ string, _ func()) error {
	return Fault("watch", key, noStore{})
}

type noStore struct{}

func (noStore) Error() string { return "the store is nil: pass an open store" }

// Permanent returns true: repeating does not help.
func (noStore) Permanent() bool { return true }

// ErrorType is "invalid".
func (noStore) ErrorType() string { return "invalid" }
