package locker

import (
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Option changes how a Client locks: given to [New] for all its calls, or to one call.
type Option func(*config)

// ClientOption is for [New]: each Option, and those that are about the whole Client.
type ClientOption interface{ client(*config) }

func (o Option) client(c *config) {
	if o == nil {
		c.refuse(outcome.Invalidf("option is nil"))
		return
	}
	o(c)
}

// clientOption is for New alone.
type clientOption func(*config)

func (o clientOption) client(c *config) { o(c) }

// DefaultTTL is the TTL without [WithTTL]: how long a lock stays locked when its holder dies.
const DefaultTTL = 10 * time.Second

type config struct {
	terms
	wait          waitPolicy
	middleware    []contract.Middleware
	holder        holder
	handover      int // how often a lease is handed over; 0: never
	otherSoftware bool
	err           error
}

// terms are what the options say of a hold.
type terms struct {
	ttl           time.Duration // that a renewal asks for
	minHold       time.Duration // from the grant; 0: none
	maxHold       time.Duration // from the grant; 0: none
	renewed       bool
	abandonedStop bool // an abandoned hold is not renewed
}

// asks is the TTL in the request: the store then keeps the key for the minimum hold, whatever
// becomes of this process.
func (t *terms) asks() time.Duration { return max(t.ttl, t.minHold) }

// waitPolicy travels from Lock to the waiting Locker, past any middleware in the ctx.
type waitPolicy struct {
	ttl      time.Duration // the limit of one attempt
	limit    time.Duration // 0: as long as the ctx
	attempts int           // 0: any number
	backoff  Backoff       // nil: the default
	once     bool          // TryLock: one attempt, not in line
	fresh    bool          // takes no lease that is handed over: see WithMinHold
}

// configure is the defaults with the options of a Client.
func configure(opts []ClientOption) config {
	c := config{terms: terms{ttl: DefaultTTL, renewed: true}}
	for _, opt := range opts {
		if opt == nil {
			opt = Option(nil)
		}
		opt.client(&c)
	}
	return c
}

// with applies the options of one call.
func (c config) with(opts []Option) config {
	for _, opt := range opts {
		opt.client(&c)
	}
	return c
}

// refuse keeps the first error.
func (c *config) refuse(err error) {
	if c.err == nil {
		c.err = err
	}
}

// WithTTL sets how long a lease lasts, in whole milliseconds: at least [contract.MinTTL], and at most what
// the store allows (30 seconds, or see WithMaxTTL of the store's package). The lock stays locked
// for that long when its holder dies. Without renewal, it can be held for no longer.
func WithTTL(ttl time.Duration) Option {
	return func(c *config) {
		if err := contract.ValidateTTL(ttl); err != nil {
			c.refuse(err)
		}
		c.ttl = ttl
	}
}

// WithoutRenewal lets a lease run out after its TTL. By default the Client renews it, at a third
// of the TTL, for as long as the lock is held.
func WithoutRenewal() Option { return func(c *config) { c.renewed = false } }

// WithMaxHold ends a hold after d, counted from the grant, so that a stuck program does not keep a
// lock for ever. The lock is renewed no more, and its context ends with a [LostError] whose reason
// is [LostMaxHold]. The rest of the lease runs out, unless Unlock ends it: the work has that long
// to stop. At its end the Client releases what is left, whether or not Unlock comes.
func WithMaxHold(d time.Duration) Option {
	return func(c *config) {
		if d <= 0 {
			c.refuse(outcome.Invalidf("maximum hold %v is not positive", d))
		}
		c.maxHold = d
	}
}

// WithWait limits the wait, whatever its cause; the error then matches [ErrWaitLimit], and
// [ErrHeld] if the lock is held. Unlike a deadline on the ctx it does not limit the hold. An
// attempt that is under way at the end is given a moment to be answered. To not wait at all there
// is [Client.TryLock].
//
// With it, a Lock outlasts an outage of the store: an attempt that fails is repeated, unless the
// error is permanent (bad input, a missing permission). The pauses are drawn evenly from 50 ms,
// doubling up to 1 s until the store answers. An attempt without an answer is followed by another one
// after 2 s, then 4 s, and so on up to the TTL; later, if the store has been slow before. Without it,
// Lock fails with the first error of the store.
func WithWait(d time.Duration) Option {
	return func(c *config) {
		if d <= 0 {
			c.refuse(outcome.Invalidf("wait limit %v is not positive; TryLock does not wait", d))
		}
		c.wait.limit = d
	}
}

// WithAttempts limits how often a call asks the store, whether the attempts are answered or fail.
// Lock returns the error of the last attempt, which matches [ErrHeld] if the lock is held. A call
// behind another one of the same Client that waits for the key waits too: only the first in line asks.
// TryLock never waits.
func WithAttempts(n int) Option {
	return func(c *config) {
		if n < 1 {
			c.refuse(outcome.Invalidf("%d attempts: at least one is needed", n))
		}
		c.wait.attempts = n
	}
}

// WithBackoff sets the pauses between attempts on a lock that is held. By default a waiter polls
// after 8 ms, doubling up to 250 ms. Where the store wakes it, it looks by itself after a quarter
// of the time that it has waited already, 250 ms at least and 6 s at most, and behind the third
// position of a store's queue after 2 s times the position, 15 s at most. All are jittered,
// downwards to the half.
//
// Under [WithWait] the pauses hold after an attempt that the store has failed as well, but not after
// one without an answer, which was waited for. There the default is drawn from 0 to 50 ms, which
// doubles with each further failure up to 1 s.
func WithBackoff(b Backoff) Option {
	return func(c *config) {
		if b == nil {
			c.refuse(outcome.Invalidf("backoff is nil"))
		}
		c.wait.backoff = b
	}
}

// WithOtherSoftware is for keys that other software locks as well, such as redsync, redislock or a
// loop over SET NX: every Client of ours on these keys needs it. Without it, a release reserves the
// key for the next waiter of ours, and the other software gets the lock seldom or never.
//
// With it there is no queue, no reservation and no wake: a waiter polls like the others, about
// every 50 ms, and a Client that has released a key waits as long before it asks for that key
// again. If several calls of the Client wait for a key, one of them polls for all, as often as they
// would together; from the ninth on, no more often. The wait after a release is shorter by as much.
// [Client.TryLock] does not wait. Chance decides who is next. It can't be used with
// [WithMaxHandovers] or with package fair.
func WithOtherSoftware() ClientOption {
	return clientOption(func(c *config) { c.otherSoftware = true })
}

// WithMiddleware wraps the waiting Locker of a Client: middleware sees one Acquire per Lock,
// whatever the number of attempts. The first one is the outermost. [contract.Wrap] puts middleware around
// each attempt instead.
func WithMiddleware(middleware ...contract.Middleware) ClientOption {
	return clientOption(func(c *config) {
		for _, m := range middleware {
			if m == nil {
				c.refuse(outcome.Invalidf("middleware is nil"))
				return
			}
		}
		c.middleware = append(c.middleware, middleware...)
	})
}
