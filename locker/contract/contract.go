// Package contract is what the author of a strategy or of middleware needs beside package locker: the
// Locker that a strategy makes, its Request, its Lease, and the arithmetic of leases. Who only takes
// locks needs nothing of it.
//
// Errors are those of package locker: a Locker returns a locker.HeldError, a locker.Error, or
// locker.Lost.
package contract

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/printed"
)

// A Locker grants leases on named locks, one attempt per call. It does not wait and does not renew
// a lease: locker.Client does both. Key and Token identify a lease, so a Locker need not remember its
// grants. Safe for concurrent use.
//
// Package lockertest holds this contract as a table of sentences that run against any Locker.
type Locker interface {
	// Acquire makes one attempt. If another holder has the lock, the error is a *locker.HeldError and
	// matches locker.ErrHeld. Any other error is permanent, or the outcome is unknown; it never means
	// that the lock is held.
	//
	// A retransmission with the same Token, such as a client library's own retry, is granted again.
	// After an unknown outcome, Acquire cleans up in the background, not under the caller's ctx (see
	// [DelayDrain]). So use a Token for one Acquire only, and draw a new one for the next (see
	// [NewToken]): otherwise the cleanup of the first attempt deletes the grant of the second. If a
	// grant arrives after Acquire has returned, the Locker releases it.
	Acquire(ctx context.Context, req Request) (Lease, error)

	// Transfer makes one attempt to take over a hold: in one step, req.Token takes the place of
	// from, which is the Token of that hold. Whatever names from can then neither extend nor release
	// the hold. A Locker that numbers its grants gives a greater number. If no hold of req.Key has
	// the Token from, the error matches locker.ErrHeld, also if the lock is free, and nothing is taken.
	// All else is as for Acquire. A Locker that can't do this returns [ErrNoTransfer].
	Transfer(ctx context.Context, from string, req Request) (Lease, error)

	// Extend moves the end of the lease to ttl from now, never earlier than before, and returns the
	// lease with its new Expires. The error matches locker.ErrLost if the lease has ended; Extend never
	// resurrects one.
	Extend(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error)

	// Release ends the lease. If it has ended already, Release changes nothing and the error
	// matches locker.ErrLost.
	Release(ctx context.Context, lease Lease) error

	// Watch calls wake when key may have become free, until ctx is done. It is active when it
	// returns nil. A wake-up may come late, twice, for nothing or never, and wake must not block.
	// An error that matches [errors.ErrUnsupported] means: poll. A permanent error, such as a
	// missing permission, is returned.
	//
	// Without a waiter, every release of key may wake. With a waiter, the store may wake it only at
	// its turn: see Request.Waiter. When ctx is done, the waiter leaves the queue.
	Watch(ctx context.Context, key, waiter string, wake func()) error
}

// Middleware wraps a Locker, to observe it or to change an attempt. It passes on the values of the
// ctx that it got: with locker.WithMiddleware they have the [Call].
type Middleware func(Locker) Locker

// Wrap puts middleware around every attempt of l; the first one given is the outermost. To see one
// Acquire per locker.Client.Lock, however often it tries, give the middleware to locker.WithMiddleware
// instead.
func Wrap(l Locker, middleware ...Middleware) Locker {
	for i := len(middleware) - 1; i >= 0; i-- {
		l = middleware[i](l)
	}
	return l
}

// Limits of a [Request]. The longest TTL is up to the store: 30 seconds, or see its WithMaxTTL.
const (
	MaxKeyLength = printed.Longest       // bytes
	MinTTL       = 10 * time.Millisecond // below this, the margin of [Until] and a round trip eat the lease
)

// A Request asks for one lease.
type Request struct {
	Key   string        // name of the lock
	Token string        `json:"-"` // names ONE ATTEMPT: unique, 128 bits of crypto/rand or more; a secret. See NewToken
	Owner string        // for reentrant locks; from locker.ContextWithOwner
	TTL   time.Duration // life of the lease from now: whole milliseconds, at least [MinTTL]
	Turn
}

// A Turn says whether a request has a place in the queue of a store. Strategies without a queue do not
// look at it.
type Turn struct {
	Waiter        string // the waiter for which a Watch of the key is active; empty: takes no position
	OtherSoftware bool   // the Client has the option locker.WithOtherSoftware: it takes no position
	Joins         bool   // the Client was just granted a lease with Room, and this request stood in the same line: no order applies
}

// ValidateTransfer is an error if the request, or from, is bad input. Every strategy calls it in
// Transfer before it sends anything.
func (r Request) ValidateTransfer(from string) error {
	err := r.Validate()
	if err == nil && from == "" {
		err = outcome.Invalidf("the token of the hold to take over is empty")
	}
	return err
}

// Validate is an error if the request is bad input. Every strategy calls it in Acquire before it
// sends anything.
func (r Request) Validate() error {
	if err := ValidateKey(r.Key); err != nil {
		return err
	}
	if r.Token == "" {
		return outcome.Invalidf("token is empty")
	}
	return ValidateTTL(r.TTL)
}

// ValidateKey refuses a key that is empty, longer than [MaxKeyLength] bytes, not UTF-8 or has a
// NUL.
func ValidateKey(key string) error {
	switch {
	case key == "":
		return outcome.Invalidf("key is empty")
	case len(key) > MaxKeyLength:
		return outcome.Invalidf("key of %d bytes is over the limit of %d", len(key), MaxKeyLength)
	case !utf8.ValidString(key):
		return outcome.Invalidf("key %q is not valid UTF-8", key)
	}
	if i := strings.IndexByte(key, 0); i >= 0 {
		return outcome.Invalidf("key %q has a NUL at byte %d", key, i)
	}
	return nil
}

// ValidateTTL refuses a TTL that is under [MinTTL] or not in whole milliseconds.
func ValidateTTL(ttl time.Duration) error {
	switch {
	case ttl < MinTTL:
		return outcome.Invalidf("ttl %v is under the limit of %v", ttl, MinTTL)
	case ttl%time.Millisecond != 0:
		return outcome.Invalidf("ttl %v is not in whole milliseconds", ttl)
	}
	return nil
}

// NewToken draws a Token for one attempt.
func NewToken() string { return rand.Text() }

// String names the request without its Token, which is a capability.
func (r Request) String() string {
	return fmt.Sprintf("request for %q, ttl %v", printed.Key(r.Key), r.TTL)
}

// GoString hides the Token from %#v.
func (r Request) GoString() string { return "contract.Request{" + r.String() + "}" }

// Format hides the Token from every other verb.
func (r Request) Format(s fmt.State, verb rune) { printed.Format(s, verb, r) }

// LogValue gives log/slog the request without its Token.
func (r Request) LogValue() slog.Value {
	return slog.GroupValue(slog.String("key", printed.Key(r.Key)), slog.String("owner", r.Owner), slog.Duration("ttl", r.TTL))
}

// A Lease says that a lock is held, by which attempt and until when. It is a plain value: copy it,
// log it. String, GoString, LogValue and JSON leave the Token out, since any program that has it
// can release the lock. What only some strategies know, such as Holds and Quorum, stands in it too:
// a method of a Locker would be lost behind the first middleware.
type Lease struct {
	Key     string    // name of the lock
	Token   string    `json:"-"` // the attempt that won
	Owner   string    // of the request
	Fence   uint64    // number of this grant of Key, see locker.Lock.Fence; 0 if the strategy does not number its grants
	Granted time.Time // when the attempt that won began
	Expires time.Time // when the lease ends by the holder's clock; never later than in the store
	Quorum  Quorum    // the nodes that granted it, if there are several
	Share
}

// A Share is the place of a lease among others of its key. It is zero if the strategy admits one holder
// only.
type Share struct {
	Holds int // on the key when the lease was granted, itself among them
	Room  int // how many more holds the key admitted beside it then; -1: any number
	Slot  int // number of this permit among those that are held, from 0, with semaphore.WithSlots
}

// Quorum counts the nodes that were asked, and those that had granted the lease when the outcome
// was decided. It is zero if the strategy has no nodes.
type Quorum struct{ Granted, Size int32 }

// Until is the end of a lease of ttl: started + ttl − (1 % of ttl + 2 ms). Take started before the
// first byte is sent. The margin covers a server clock that runs up to 1 % fast, and expiries
// rounded to milliseconds. The arithmetic of leases is here and nowhere else.
//
// The margin is that of the Redlock text
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
func Until(started time.Time, ttl time.Duration) time.Time {
	return started.Add(ttl - (ttl/100 + 2*time.Millisecond))
}

// Ended tells whether the lease is over by the monotonic or by the wall clock, whichever is first.
// The monotonic clock stands still while a machine is suspended (golang/go#24595), and the wall
// clock can be set back.
func (l Lease) Ended() bool {
	now := time.Now()
	return !now.Before(l.Expires) || !now.Round(0).Before(l.Expires.Round(0))
}

// String names the lease without its Token, which is a capability.
func (l Lease) String() string {
	s := fmt.Sprintf("lease on %q until %s", printed.Key(l.Key), l.Expires.Format(time.RFC3339Nano))
	if l.Fence != 0 {
		s += fmt.Sprintf(", fence %d", l.Fence)
	}
	return s
}

// GoString hides the Token from %#v.
func (l Lease) GoString() string { return "contract.Lease{" + l.String() + "}" }

// Format hides the Token from every other verb.
func (l Lease) Format(s fmt.State, verb rune) { printed.Format(s, verb, l) }

// LogValue gives log/slog the lease without its Token.
func (l Lease) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("key", printed.Key(l.Key)), slog.String("owner", l.Owner), slog.Uint64("fence", l.Fence),
		slog.Time("granted", l.Granted), slog.Time("expires", l.Expires),
	)
}

// Validate is an error if Key and Token can't name a lease. Every strategy calls it in Extend and
// Release before it sends anything.
func (l Lease) Validate() error {
	if err := ValidateKey(l.Key); err != nil {
		return err
	}
	if l.Token == "" {
		return outcome.Invalidf("token is empty")
	}
	return nil
}

// ErrNoTransfer is what a Locker that can't move a hold to another token returns from Transfer. It
// is permanent, and matches [errors.ErrUnsupported].
var ErrNoTransfer error = transferError{}

// transferError says that a strategy, or its store, can't move a hold.
type transferError struct{}

func (transferError) Error() string {
	return "the strategy or its store can't move a hold to another process; Unlock it and let the other process Lock it"
}

// Is matches [errors.ErrUnsupported].
func (transferError) Is(target error) bool { return target == errors.ErrUnsupported }

// Permanent says that repeating will not help.
func (transferError) Permanent() bool { return true }

// ErrorType is "invalid".
func (transferError) ErrorType() string { return "invalid" }
