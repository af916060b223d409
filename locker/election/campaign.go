package election

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
)

// A round is a campaign, and the term if it was won.
type round struct {
	led    bool
	lead   error         // what lead returned
	err    error         // of the round: of the campaign, or of lead, a loss and the release
	lasted time.Duration // the term, until lead returned or the lease ended; else the campaign
	ttl    time.Duration // of the last lease, less the margin; a term of more was renewed
}

// ends tells whether Run ends with the error.
func (r round) ends() bool {
	if r.lead != nil {
		return !errors.Is(r.err, locker.ErrLost) // an error of lead may follow from a loss
	}
	return backends.Permanent(r.err)
}

// isOutage tells whether the campaign ended because the store fails.
func (r round) isOutage() bool { return !r.led && !errors.Is(r.err, locker.ErrHeld) }

// isShort tells whether the pause grows. A campaign that reached its limit has waited by itself.
func (r round) isShort() bool {
	return r.lasted <= r.ttl && (r.led || !errors.Is(r.err, locker.ErrWaitLimit))
}

// reportInterval is the limit of a campaign while the store fails. Middleware sees the end of each
// campaign.
const reportInterval = 30 * time.Second

// campaign waits for the lock, and holds it until lead has returned. While the store answers there
// is no limit, since a candidate that begins anew loses its position in the queue. So the first
// error ends a campaign, and middleware sees it.
func (e *Election) campaign(
	ctx context.Context, lead func(context.Context, Term) error, outage bool, ttl time.Duration,
) round {
	opts := append(slices.Clip(e.opts), locker.WithAttempts(math.MaxInt))
	if outage {
		opts = append(opts, locker.WithWait(reportInterval))
	}
	// The lock is renewed until its ctx ends. So its ctx follows that of Run before lead is called,
	// and after lead has returned, but not in between. It has no owner: reentrant would grant the lock to
	// every candidate of the same one.
	hold, cancel := context.WithCancelCause(locker.ContextWithOwner(context.WithoutCancel(ctx), ""))
	defer cancel(nil)
	end := func() { cancel(context.Cause(ctx)) }
	unfollow := context.AfterFunc(ctx, end)
	defer func() { unfollow() }()

	r, began := round{ttl: ttl}, time.Now()
	r.err = e.client.Do(hold, e.key, func(_ context.Context, l *locker.Lock) error {
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
		r.led, r.ttl, began = true, lease.Expires.Sub(lease.Granted), time.Now()
		r.lead = e.lead(ctx, l, lead)
		r.lasted = min(time.Since(began), l.Lease().Expires.Sub(began))
		return r.lead
	}, opts...)
	if !r.led {
		r.lasted = time.Since(began)
	}
	return r
}

// lead calls lead with a ctx that ends with the leadership.
func (e *Election) lead(
	ctx context.Context, l *locker.Lock, lead func(context.Context, Term) error,
) error {
	leads, t := newTermContext(l.Context(), ctx), Term{Key: e.key, Number: l.Fence()}
	defer context.AfterFunc(ctx, leads.look)()
	f := following{l: l, leads: leads, err: errNoReturn}
	defer f.returned()
	f.begin(e.hooks, t)
	e.term.Store(leads)
	defer e.term.Store(nil)
	err := lead(leads, t)
	f.err = err
	if errors.Is(err, context.Canceled) && leads.Err() != nil {
		return nil // it has stopped as it was told to
	}
	return err
}

// pause is the time between two rounds, after so many in a row that were short. It is drawn, so
// that candidates that fail together come back one by one.
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
