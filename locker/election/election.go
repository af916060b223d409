package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
)

// An Election is one candidate for the leadership under a key. Safe for concurrent use.
type Election struct {
	client *locker.Client
	key    string
	opts   []locker.Option
	hooks  []func(context.Context, Term) func(End) // what OnTerm was given

	running atomic.Bool
	term    atomic.Pointer[termContext] // while lead runs
}

// New returns a candidate that asks for the lock on key through c. All candidates of one election
// use the same key, and one store or quorum. The options are those of one [locker.Client.Do];
// [locker.WithTTL] decides how soon another process leads when the leader dies. Bad input, such as
// an empty key, is an error of Run.
//
// Give it a Client without [locker.WithWait]: a limit ends a campaign and not Run. The candidate
// loses its position in the queue and campaigns again, which costs about ten calls of the store.
// [locker.WithAttempts] is ignored.
func New(c *locker.Client, key string, opts ...locker.Option) *Election {
	return &Election{client: c, key: key, opts: slices.Clone(opts)}
}

// A Term is one time of leadership.
type Term struct {
	Key string // of the election

	// Number rises strictly from term to term, whichever process leads: it is the number of the
	// grant, see [locker.Lock.Fence]. It is 0 if the strategy does not number its grants.
	Number uint64
}

// ErrNotLeader says that this process does not lead, by its own clocks.
var ErrNotLeader = errors.New("not the leader")

// Run campaigns, calls lead each time this process becomes the leader, and campaigns again when
// lead has returned nil or the leadership is lost. The ctx of lead ends when the leadership does,
// or when the ctx given to Run ends. Its cause matches [locker.ErrLost] after a loss; otherwise it
// is the cause of that ctx, or [locker.ErrReleased] once lead has returned. Its values are those of
// the ctx given to Run, except that it has no owner ([locker.ContextWithOwner]): a candidate is
// never the same owner as another.
//
// Run returns when lead has returned or is not called, and never returns nil. It ends
//   - with the error of ctx, when ctx has ended; joined by what lead or the release failed with
//   - with the error of lead, unless it matches [locker.ErrLost] or the term was lost by then: an
//     error may follow from a loss
//   - with a permanent error of the store, or for bad input. Every other failure of the store is
//     outlasted, whether it meets a campaign or a release.
//
// If lead panics or calls runtime.Goexit, the lock is released, and Run ends in the same way.
//
// An Election has one Run at a time: another one fails at once with a permanent error, since it could
// begin a term beside a lead that ignores its ctx. When Run has ended, it may be called again. Run fails too if ctx descends from a lock of the same Client on
// the same key, which it would wait for.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, t Term) error) error {
	switch {
	case e == nil:
		return (&Election{}).refuse("the Election is nil; use election.New")
	case lead == nil:
		return e.refuse("lead is nil")
	case ctx == nil:
		return e.refuse("ctx is nil; use context.Background()")
	case !e.running.CompareAndSwap(false, true):
		return e.refuse("another Run of this Election is under way")
	}
	defer e.running.Store(false)

	short, outage, ttl := 0, false, locker.DefaultTTL
	for ctx.Err() == nil {
		r := e.campaign(ctx, lead, outage, ttl)
		switch {
		case ctx.Err() != nil:
			return e.over(ctx, r)
		case r.ends():
			return r.err
		case r.isShort():
			short++
		default:
			short = 0
		}
		outage, ttl = r.isOutage(), r.ttl
		sleep(ctx, pause(short, ttl, rand.Float64()))
	}
	return e.over(ctx, round{})
}

// IsLeader returns nil while this process leads: from when lead is called until it has returned or
// its ctx has ended, whichever comes first. The error matches [ErrNotLeader], and the cause with
// which the ctx of lead has ended if lead still runs. A process that was suspended past the end of
// its lease gets the error at its first look.
//
// IsLeader sends nothing and does not look at its ctx, which is there to satisfy interfaces such as
// Elector of package gocron.
func (e *Election) IsLeader(context.Context) error {
	if e == nil {
		return ErrNotLeader
	}
	leads := e.term.Load()
	switch {
	case leads == nil:
		return ErrNotLeader
	case leads.Err() != nil:
		return fmt.Errorf("%w: %w", ErrNotLeader, context.Cause(leads))
	}
	return nil
}

// over is the error of a Run whose ctx has ended, after what its last term failed with.
func (e *Election) over(ctx context.Context, last round) error {
	end := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, end) {
		end = fmt.Errorf("%w: %w", end, cause)
	}
	end = e.failure(end)
	if !last.led || last.err == nil {
		return end
	}
	return fmt.Errorf("%w; %w", last.err, end)
}

func (e *Election) refuse(why backends.Invalid) error { return e.failure(why) }

func (e *Election) failure(err error) error {
	return &locker.Error{Op: "campaign", Key: e.key, Err: err}
}
