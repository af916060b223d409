package backends

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

// Invalid is the error of a call or an option that the caller must change. It is permanent, and nothing
// was sent.
type Invalid = outcome.Invalid

// Invalidf formats an [Invalid].
func Invalidf(format string, args ...any) error { return outcome.Invalidf(format, args...) }

// AsPermanent is err with a method Permanent() bool, which is true: repeating cannot cure it, and nothing
// was done.
func AsPermanent(err error) error { return outcome.AsPermanent(err) }

// AsUnsent is err with a method Unsent() bool, which is true: nothing was done, and the call may be
// repeated.
func AsUnsent(err error) error { return outcome.AsUnsent(err) }

// NotSent is [AsUnsent], and its text ends with "nothing was sent".
func NotSent(err error) error { return outcome.NotSent(err) }

// NotDone is [AsUnsent], and its text ends with "nothing was done".
func NotDone(err error) error { return outcome.NotDone(err) }

// Permanent tells whether an error of a [Store] says that repeating cannot cure it.
func Permanent(err error) bool { return outcome.Permanent(err) }

// Unsent tells whether an error of a [Store] says that nothing was done, and the call may be repeated.
// So does one that says that a connection could not be opened (net.OpError).
func Unsent(err error) bool { return outcome.Unsent(err) }

// CheckTTL returns an [Invalid] for a ttl that is not within a millisecond and longest: see [Relied].
// option is the one that changes longest.
func CheckTTL(ctx context.Context, ttl, longest time.Duration, option string) error {
	switch {
	case ttl < time.Millisecond:
		return Invalidf("ttl %v is under the store's limit of %v", ttl, time.Millisecond)
	case Relied(ctx, ttl) > longest:
		return Invalidf("ttl %v is over the store's limit of %v (see %s)", ttl, longest, option)
	}
	return nil
}
