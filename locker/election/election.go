package election

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// An Election is one candidate for the leadership under a key. Safe for concurrent use.
type Election struct {
	client *locker.Client
	key    string
	opts   []locker.Option

	running atomic.Bool
	term    atomic.Pointer[termContext] // while lead runs
}

// New returns a candidate that asks for the lock on key through c. All candidates of one election
// use the same key, and one store or quorum. The options are those of one [locker.Client.Do];
// [locker.WithTTL] decides how soon another process leads when the leader dies. Bad input, such as
// an empty key, is an error of Run.
//
// A limit by [locker.WithWait], of the options or of the Client, ends a campaign and not Run: the
// candidate loses its position in the queue, and campaigns again. [locker.WithAttempts] is ignored.
func New(c *locker.Client, key string, opts ...locker.Option) *Election {
	return &Election{client: c, key: key, opts: slices.Clone(opts)}
}

// A Term is one time of leadership.
type Term struct {
	// Number rises strictly from term to term, whichever process leads: it is the number of the
	// grant, see [locker.Lock.Fence]. It is 0 if the strategy does not number its grants.
	Number uint64
}

// ErrNotLeader: this process does not lead, by its own clocks.
var ErrNotLeader = errors.New("not the leader")

// Run campaigns, calls lead each time this process becomes the leader, and campaigns again when lead
// has returned nil or the leadership is lost. The ctx of lead ends when the leadership does, or when
// the ctx given to Run ends. Its cause matches [locker.ErrLost] after a loss; otherwise it is the
// cause of that ctx, or [locker.ErrReleased] once lead has returned. Its values are those of the ctx
// given to Run, except that it has no owner ([locker.ContextWithOwner]): a candidate is never the
// same owner as another.
//
// Run returns when lead has returned or is not called, and never returns nil. It ends
//   - with the error of ctx, when ctx has ended; joined by what lead or the release failed with
//   - with the error of lead, or that of a lock which lead took, unless it matches
//     [locker.ErrLost]. Every error of lead counts as a loss if the term was lost by then, since it
//     may follow from that.
//   - with a permanent error of the store, or for bad input. Every other failure of the store is
//     outlasted, whether it meets a campaign or a release.
//
// If lead panics or calls runtime.Goexit, the lock is released, and Run ends in the same way.
//
// An Election has one Run at a time: another one fails at once with a permanent error. When it has
// ended, Run may be called again. Run fails too if ctx descends from a lock of the same Client on the
// same key, which it would wait for.
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

	failing, short, ttl := false, 0, locker.DefaultTTL
	for ctx.Err() == nil {
		began := time.Now()
		t, err := e.campaign(ctx, lead, failing)
		switch {
		case ctx.Err() != nil:
			return e.over(ctx, t, err)
		case permanent(err), t != nil && t.err != nil && !errors.Is(err, locker.ErrLost):
			return err
		case t != nil:
			began, ttl = t.began, t.ttl
		}
		failing = t == nil && !errors.Is(err, locker.ErrHeld)
		if short++; time.Since(began) >= ttl || errors.Is(err, locker.ErrWaitLimit) {
			short = 0
		}
		sleep(ctx, pause(short, ttl, rand.Float64()))
	}
	return e.over(ctx, nil, nil)
}

// term is what Run remembers of a term that is over.
type term struct {
	began time.Time
	ttl   time.Duration // less the margin: a term that lasts as long has been renewed
	err   error         // of lead
}

// outage is how long a campaign outlasts a store that fails. Then middleware sees that it does.
const outage = 30 * time.Second

// campaign waits for the lock, and holds it until lead has returned. Without a term, lead was not
// called. While the store answers there is no limit, since a candidate that begins anew loses its
// position in the queue. So the first error ends a campaign, and middleware sees it.
func (e *Election) campaign(
	ctx context.Context, lead func(context.Context, Term) error, failing bool,
) (t *term, err error) {
	opts := append(slices.Clip(e.opts), locker.WithAttempts(math.MaxInt))
	if failing {
		opts = append(opts, locker.WithWait(outage))
	}
	// The lock is renewed until its ctx ends. So its ctx follows that of Run before lead is called,
	// and after lead has returned, but not in between.
	hold, cancel := context.WithCancelCause(locker.ContextWithOwner(context.WithoutCancel(ctx), ""))
	defer cancel(nil)
	end := func() { cancel(context.Cause(ctx)) }
	unfollow := context.AfterFunc(ctx, end)
	defer func() { unfollow() }()

	err = e.client.Do(hold, e.key, func(_ context.Context, l *locker.Lock) error {
		if !unfollow() {
			end() // before the release, which then does not wait long for an answer
			return nil
		}
		defer func() {
			if ctx.Err() != nil {
				end()
			}
			unfollow = context.AfterFunc(ctx, end)
		}()
		lease := l.Lease()
		t = &term{began: time.Now(), ttl: lease.Expires.Sub(lease.Granted)}
		t.err = e.lead(ctx, l, lead)
		return t.err
	}, opts...)
	return t, err
}

// lead calls lead with a ctx that ends with the leadership.
func (e *Election) lead(
	ctx context.Context, l *locker.Lock, lead func(context.Context, Term) error,
) error {
	leads := newTermContext(l.Context(), ctx)
	defer leads.end(locker.ErrReleased)
	defer context.AfterFunc(ctx, leads.look)()
	e.term.Store(leads)
	defer e.term.Store(nil)
	err := lead(leads, Term{Number: l.Fence()})
	if errors.Is(err, context.Canceled) && leads.Err() != nil {
		return nil // it has stopped as it was told to
	}
	return err
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
func (e *Election) over(ctx context.Context, t *term, err error) error {
	end := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, end) {
		end = fmt.Errorf("%w: %w", end, cause)
	}
	end = e.failure(end)
	if t == nil || err == nil {
		return end
	}
	return fmt.Errorf("%w; %w", err, end)
}

func (e *Election) refuse(why invalidError) error { return e.failure(why) }

func (e *Election) failure(err error) error {
	return &locker.Error{Op: "campaign", Key: e.key, Err: err}
}

// invalidError is bad input: nothing was sent.
type invalidError string

func (e invalidError) Error() string { return string(e) }

// Permanent says that repeating will not help.
func (e invalidError) Permanent() bool { return true }

// ErrorType is "invalid".
func (e invalidError) ErrorType() string { return "invalid" }

func permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

// pause is the time between two campaigns, after so many terms or campaigns in a row that were
// shorter than the TTL. It is drawn, so that candidates that fail together come back one by one.
func pause(short int, ttl time.Duration, random float64) time.Duration {
	const first = 50 * time.Millisecond
	most := min(first<<min(short, 16), max(ttl, first))
	return most/2 + time.Duration(random*float64(most/2))
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
