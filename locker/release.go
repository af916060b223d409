package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
)

const (
	releaseLimit = time.Second            // for one call: a connection that is stuck must not use up the lease
	joinLimit    = 100 * time.Millisecond // for extensions to follow their ctx, which has ended
	tellLimit    = 100 * time.Millisecond // for middleware to take note of a loss: the program may end after Unlock
)

// release is Unlock's work, done once: it waits for extensions under way and sends Release.
func (l *Lock) release() {
	if lost, ok := errors.AsType[*LostError](l.over); ok { // lose has told everyone, and released what was left unless the holder winds up
		if l.windsUp(lost) {
			l.join()
			ctx, cancel := context.WithDeadline(l.values(), l.Lease().Expires)
			defer cancel()
			_ = cleanup.Repeat(ctx, l.releaseOnce) // the caller is told of the loss
		}
		await(l.told, tellLimit)
		l.settle(lost)
		return
	}
	l.join()
	l.releasing.Context = l.values()
	l.releasing.deadline = earlier(time.Now().Add(releaseLimit), l.Lease().Expires)
	if err := l.firstRelease(); err != nil {
		l.resend()
	}
}

// firstRelease sends Release under a deadline that the scheduler keeps.
func (l *Lock) firstRelease() (again error) {
	l.client.renewals.watchRelease(l)
	defer func() { // also if the Locker ends the goroutine
		l.client.renewals.remove(l)
		l.releasing.expire() // for whatever it has left waiting for its end
	}()
	return l.sendRelease(&l.releasing)
}

// releaseCall is a release that its caller may leave.
type releaseCall Lock

func (c *releaseCall) call()     { (*Lock)(c).release() }
func (c *releaseCall) answered() { (*Lock)(c).settle(errNoAnswer) } // unless it is settled, or by a resend that still runs

// join waits until no extension is under way, but not for long: their ctx has ended, and one that hangs in its client
// library in spite of that would keep the lock from everyone. It can't bring back what Release has ended.
func (l *Lock) join() {
	if l.joined != nil {
		await(l.joined, joinLimit)
	}
}

func await(done <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// resend repeats Release until one is answered, within the life of the lease. It may run while the first one hangs.
func (l *Lock) resend() {
	lease := l.Lease()
	ctx, cancel := context.WithDeadline(l.values(), lease.Expires)
	defer cancel()
	hangs := time.AfterFunc(time.Until(lease.Expires)+joinLimit, func() { // a store may never return
		l.settle(&Error{Op: "release", Key: lease.Key, Err: errNoAnswer})
	})
	defer hangs.Stop()
	if err := cleanup.Repeat(ctx, l.sendRelease); err != nil {
		l.settle(&Error{Op: "release", Key: lease.Key, Err: err})
	}
}

// sendRelease sends one Release and settles the matter if it is answered; if not, it returns the error.
func (l *Lock) sendRelease(ctx context.Context) (again error) {
	l.mu.Lock()
	if l.unlock.over {
		l.mu.Unlock()
		return nil
	}
	l.unlock.sent++
	lease := l.lease
	l.mu.Unlock()

	lease.unlocked = true
	err := l.client.locker.Release(ctx, lease)
	if err == nil || refused(err) {
		l.settle(err)
		return nil
	}
	if !errors.Is(err, ErrLost) {
		return err
	}
	l.mu.Lock()
	sent := l.unlock.sent
	l.mu.Unlock()
	if sent > 1 { // one of those whose answer got lost did it, and left nothing for this one
		err = nil
	}
	l.settle(err)
	return nil
}

// settle takes the first result: it tells middleware, the next in line, and whoever waits in Unlock.
func (l *Lock) settle(err error) {
	l.mu.Lock()
	if l.unlock.over {
		l.mu.Unlock()
		return
	}
	l.unlock.over = true
	l.unlock.err = wrap("release", l.lease.Key, err)
	unlocked := errors.Is(l.over, ErrReleased)
	done := l.unlock.done
	l.mu.Unlock()

	if done != nil {
		defer close(done) // also if a hook panics
	}
	l.client.lines.freed(l.Key())
	if unlocked {
		l.client.workers.exit()
		cause := ErrReleased
		switch {
		case errors.Is(err, ErrLost):
			cause = err
		case err != nil:
			cause = fmt.Errorf("%w: %w", ErrReleased, l.unlock.err)
		}
		l.tell(cause)
	}
}

// releaseLeftover makes one attempt in the background to end a lease that is over by our clocks: the store may still have it. As a
// clean-up, since a store that is silent for long loses all locks at once.
func (l *Lock) releaseLeftover() {
	l.client.cleanups.Settle(l.values(), l.ttl, func(ctx context.Context) error {
		_ = l.releaseOnce(ctx) // best effort: what is left ends with its TTL
		l.client.lines.freed(l.Key())
		return nil
	})
}

func (l *Lock) releaseOnce(ctx context.Context) error {
	return releaseOnce(ctx, l.client.locker, l.Lease())
}

// values is the ctx given to Lock without its end.
func (l *Lock) values() context.Context {
	if l.given.Done() == nil {
		return l.given
	}
	return context.WithoutCancel(l.given)
}

// discard releases a lease that came too late for its caller.
func (c *Client) discard(ctx context.Context, lease Lease, ttl time.Duration) {
	discard(ctx, c.locker, &c.cleanups, &c.lines, lease, ttl)
}

func discard(ctx context.Context, l Locker, cleanups *cleanup.Group, lines *lines, lease Lease, ttl time.Duration) {
	cleanups.Settle(ctx, ttl, func(ctx context.Context) error {
		err := releaseOnce(ctx, l, lease)
		if err == nil {
			lines.freed(lease.Key)
		}
		return err
	})
}

// releaseOnce ends a lease that nobody holds any more. That it is gone already is as good.
func releaseOnce(ctx context.Context, l Locker, lease Lease) error {
	if err := l.Release(ctx, lease); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
