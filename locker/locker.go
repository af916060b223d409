package locker

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/internal/wallclock"
)

// A Locker grants leases on named locks, one attempt per call. It does not wait and does not keep a lease
// alive: [Client] does both. A lease is identified by Key and Token alone, so a Locker need not remember its grants.
// Safe for concurrent use.
//
// Package lockertest holds this contract as a table of sentences that run against any Locker.
type Locker interface {
	// Acquire makes one attempt. If someone else has the lock, the error is a [*HeldError] and matches [ErrHeld];
	// any other error means that the outcome is unknown or the request was refused, never that the lock is held.
	//
	// A retransmission with the same Token, such as a client library's own retry, is granted again. Acquire grants, or
	// leaves nothing behind as far as it can: what an unknown outcome may have left is removed in the background, not
	// under the caller's ctx. So a Token is spent once Acquire has failed; who tries again draws a new one (see
	// [NewToken]), or the clean-up of the first attempt deletes the grant of the second. A grant that arrives after
	// Acquire has answered is released by whoever receives it.
	Acquire(ctx context.Context, req Request) (Lease, error)

	// Extend moves the end of the lease to ttl from now, never earlier than before, and returns the lease with its
	// new Expires. The error matches [ErrLost] if the lease has ended; Extend never resurrects one.
	Extend(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error)

	// Release ends the lease. If it has ended already, Release changes nothing and the error matches [ErrLost].
	Release(ctx context.Context, lease Lease) error

	Watcher
}

// A Watcher tells when a lock may have become free.
type Watcher interface {
	// Watch calls wake when key may have become free, until ctx is done. It is active when it returns nil. A wake
	// may come late, twice, for nothing or never, and wake must not block. An error that matches
	// [errors.ErrUnsupported] means: poll. A refusal, such as a missing permission, is returned.
	//
	// Without a waiter, wake is for whoever watches. With one it may be kept for when it is his turn: see Request.Waiter.
	// When ctx is done he gives up his place.
	Watch(ctx context.Context, key, waiter string, wake func()) error
}

// Middleware wraps a Locker to observe it. It passes Request and Lease on as it got them, since both carry
// unexported parts.
type Middleware func(Locker) Locker

// Wrap puts middleware around every attempt of l; the first one given is the outermost. To see one Acquire per
// [Client.Lock], however often it tries, give the middleware to [WithMiddleware] instead.
func Wrap(l Locker, middleware ...Middleware) Locker {
	for i := len(middleware) - 1; i >= 0; i-- {
		l = middleware[i](l)
	}
	return l
}

// Limits of a [Request]. The longest TTL is up to the store: 30 seconds, or see its WithMaxTTL.
const (
	MaxKeyLength = 512                   // bytes
	MinTTL       = 10 * time.Millisecond // below this, the margin of [Until] and a round trip eat the lease
)

// A Request asks for one lease.
type Request struct {
	Key    string        // name of the lock
	Token  string        `json:"-"` // names ONE ATTEMPT: unique, 128 bits of crypto/rand or more; a secret. See NewToken
	Waiter string        // names who waits, to strategies that keep a queue: a Watch of Key for it is active. Empty: takes no place
	Free   bool          // the Client has just released Key and knows of nobody else who wants it: a hint
	Shared bool          // the Client has the option [WithSharedKeys]: it takes no position in a queue
	Owner  string        // names who asks, for reentrant locks; from [ContextWithOwner]
	TTL    time.Duration // life of the lease from now: whole milliseconds, at least [MinTTL]
	Scoped bool          // asked by [Client.Do]: the hold ends, at the latest, when the work returns

	wait *waitPolicy // how the waiting Locker inside a Client waits; nil: not at all
}

// Validate tells what is wrong with the request, so that nothing is sent for a bad one. Every strategy calls it.
func (r Request) Validate() error {
	if err := ValidateKey(r.Key); err != nil {
		return &Error{Op: "acquire", Key: r.Key, Err: err}
	}
	if r.Token == "" {
		return &Error{Op: "acquire", Key: r.Key, Err: invalidf("token is empty")}
	}
	if err := ValidateTTL(r.TTL); err != nil {
		return &Error{Op: "acquire", Key: r.Key, Err: err}
	}
	return nil
}

// ValidateKey refuses a key that is empty, longer than [MaxKeyLength] bytes, not UTF-8 or has a NUL.
func ValidateKey(key string) error {
	switch {
	case key == "":
		return invalidf("key is empty")
	case len(key) > MaxKeyLength:
		return invalidf("key of %d bytes is over the limit of %d", len(key), MaxKeyLength)
	case !utf8.ValidString(key):
		return invalidf("key %q is not valid UTF-8", key)
	}
	for i := range len(key) {
		if key[i] == 0 {
			return invalidf("key %q has a NUL at byte %d", key, i)
		}
	}
	return nil
}

// ValidateTTL refuses a TTL that is under [MinTTL] or not in whole milliseconds.
func ValidateTTL(ttl time.Duration) error {
	switch {
	case ttl < MinTTL:
		return invalidf("ttl %v is under the limit of %v", ttl, MinTTL)
	case ttl%time.Millisecond != 0:
		return invalidf("ttl %v is not in whole milliseconds", ttl)
	}
	return nil
}

// NewToken draws a Token for one attempt.
func NewToken() string { return rand.Text() }

// String names the request without its Token, which is a capability.
func (r Request) String() string {
	return fmt.Sprintf("request for %q, ttl %v", shown(r.Key), r.TTL)
}

// GoString hides the Token from %#v.
func (r Request) GoString() string { return "locker.Request{" + r.String() + "}" }

// Format hides the Token from every other verb.
func (r Request) Format(s fmt.State, verb rune) { format(s, verb, r) }

// LogValue gives log/slog the request without its Token.
func (r Request) LogValue() slog.Value {
	return slog.GroupValue(slog.String("key", shown(r.Key)), slog.String("owner", r.Owner), slog.Duration("ttl", r.TTL))
}

// A Lease says that a lock is held, by whom and until when. It is a plain value: copy it, log it. String, GoString,
// LogValue and JSON leave the Token out, since whoever has it can release the lock.
type Lease struct {
	Key     string    // name of the lock
	Token   string    `json:"-"` // the attempt that won
	Owner   string    // who asked, if the request said so
	Fence   uint64    // number of this grant of Key, see [Lock.Fence]; 0 if the strategy does not number its grants
	Holds   int       // of this owner on Key when this one was granted, itself among them; 0 if the strategy does not nest
	Granted time.Time // when the attempt that won began
	Expires time.Time // when the holder must stop believing, by its own clock; never later than the backend's end
	Quorum  Quorum    // who granted it, if it took several nodes

	Attempts  int  // of the [Client.Lock] that won it; 0 from a Locker that does not wait
	Contended bool // someone else had the lock, or was before this call in the line of its Client

	// in one Extend: the Lock of this lease has become garbage without Unlock; see
	// [WithAbandonedStop]
	Abandoned bool

	unlocked bool  // by its holder, who had it to the end; next to Contended, for a hold of 448 bytes
	hand     int32 // how often it has been passed on, see WithHandover

	hooks *hook              // what OnHold collects, the last added first
	wall  *wallclock.Reading // of a clock that a test may set; nil: of the machine's
}

// Quorum counts the nodes that an operation of several nodes asked, and those that had granted it when it was decided. It
// is zero where there are no nodes to count.
type Quorum struct{ Granted, Size int }

// Until is the end of a lease of ttl that was asked for at started, the instant before the first byte went out:
// started + ttl − (1 % of ttl + 2 ms). The margin covers a server clock that runs up to 1 % fast and the rounding
// of expiries to milliseconds. The arithmetic of leases is here and nowhere else.
//
// The margin is that of the Redlock text (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
func Until(started time.Time, ttl time.Duration) time.Time {
	return started.Add(ttl - (ttl/100 + 2*time.Millisecond))
}

// Ended tells whether the lease is over, by the monotonic or by the wall clock, whichever says so first: the
// monotonic clock stands still while a machine is suspended (golang/go#24595), and the wall clock can be set back.
func (l Lease) Ended() bool {
	return l.endedAt(time.Now())
}

// String names the lease without its Token, which is a capability.
func (l Lease) String() string {
	s := fmt.Sprintf("lease on %q until %s", shown(l.Key), l.Expires.Format(time.RFC3339Nano))
	if l.Fence != 0 {
		s += fmt.Sprintf(", fence %d", l.Fence)
	}
	return s
}

// GoString hides the Token from %#v.
func (l Lease) GoString() string { return "locker.Lease{" + l.String() + "}" }

// Format hides the Token from every other verb.
func (l Lease) Format(s fmt.State, verb rune) { format(s, verb, l) }

// format prints what a value says of itself, and never its fields.
func format(s fmt.State, verb rune, v interface {
	fmt.Stringer
	fmt.GoStringer
}) {
	text := v.String()
	if verb == 'v' && s.Flag('#') {
		text = v.GoString()
	}
	_, _ = io.WriteString(s, text) // fmt has nowhere to tell of an error
}

// LogValue gives log/slog the lease without its Token.
func (l Lease) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("key", shown(l.Key)), slog.String("owner", l.Owner), slog.Uint64("fence", l.Fence),
		slog.Time("granted", l.Granted), slog.Time("expires", l.Expires),
	)
}

// Validate refuses what can't name a lease, so that nothing is sent for it. Every strategy calls it in Extend and
// Release, whose name is op.
func (l Lease) Validate(op string) error {
	err := ValidateKey(l.Key)
	if err == nil && l.Token == "" {
		err = invalidf("token is empty")
	}
	if err != nil {
		return &Error{Op: op, Key: l.Key, Err: err}
	}
	return nil
}

type hook struct {
	begin func(context.Context, Lease) (context.Context, func(at time.Time, cause error))
	next  *hook
}

// OnHold lets middleware follow a hold: it returns a lease for which the Client calls begin once, when it starts to
// hold, and the returned func (if not nil) once, when the hold is over, with the instant at which it was and the cause.
// The context that begin returns is the parent of [Lock.Context]. Middleware that wraps another sees its begin called
// first and its end called last.
//
// A hold that is lost is over at the end of its lease at the latest. One that is unlocked is over when Unlock is called, and
// this is told when the release is settled, since it may find that the lock was lost. The cause matches [ErrLost], or it is
// [ErrReleased]; if the store never said that the lock is released, the cause matches ErrReleased and is an [*Error] as
// well.
func (l Lease) OnHold(begin func(context.Context, Lease) (context.Context, func(at time.Time, cause error))) Lease {
	l.hooks = &hook{begin: begin, next: l.hooks}
	return l
}

type ownerKey struct{}

// ContextWithOwner names who asks for locks under this context. Strategies that know owners (reentrant) grant a lock
// again to the owner that has it. Owners are always explicit: a goroutine or a process is never one by itself.
// An owner is a name, not a secret; it survives as long as the context does.
func ContextWithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

func ownerFrom(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}
