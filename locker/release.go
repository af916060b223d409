package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
)

const releaseLimit = time.Second // for one call: a connection that is stuck must not use up the lease

// release is Unlock's work: it waits for extensions under way, sends Release until it is answered or the lease has
// ended, and tells everyone.
func (l *Lock) release() {
	var err error
	if lost := (*LostError)(nil); errors.As(l.over, &lost) { // and so released and told
		if err = lost; lost.Reason == LostMaxHold && !l.Lease().Ended() {
			_ = l.sendRelease() // the caller learns that it was lost
			l.client.lines.freed(l.Key())
		}
	} else {
		joined := l.join()
		err = wrap("release", l.Key(), l.sendRelease())
		if !joined {
			go l.releaseLeftover() // the extension that hangs may land yet
		}
		l.client.lines.freed(l.Key())
		cause := error(ErrReleased)
		if errors.Is(err, ErrLost) {
			cause = err
		}
		l.tell(cause)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlock.over, l.unlock.err = true, err
	if l.unlock.done != nil {
		close(l.unlock.done)
	}
}

// join waits until no extension is under way, or until the lease has ended: then one that hangs can prolong nothing
// that anybody believes in.
func (l *Lock) join() bool {
	if l.joined == nil {
		return true
	}
	timer := time.NewTimer(time.Until(l.Lease().Expires))
	defer timer.Stop()
	select {
	case <-l.joined:
		return true
	case <-timer.C:
		return false
	}
}

// sendRelease repeats Release until it is answered, within the life of the lease.
func (l *Lock) sendRelease() error {
	lease, values := l.Lease(), l.given
	if values.Done() != nil {
		values = context.WithoutCancel(values)
	}
	l.releasing.Context, l.releasing.deadline = values, earlier(time.Now().Add(releaseLimit), lease.Expires)
	l.client.renewals.watchRelease(l)
	err := l.client.locker.Release(&l.releasing, lease)
	l.client.renewals.remove(l)
	if err == nil || errors.Is(err, ErrLost) || refused(err) || lease.Ended() {
		return err
	}
	ctx, cancel := context.WithDeadline(values, lease.Expires)
	defer cancel()
	_ = cleanup.Repeat(ctx, func(ctx context.Context) (again error) {
		switch err = l.client.locker.Release(ctx, lease); {
		case errors.Is(err, ErrLost): // the Release whose answer got lost did it: nothing was left for this one
			err = nil
		case err != nil && !refused(err):
			return err
		}
		return nil
	})
	return err
}

// releaseCall is an Unlock that its caller may leave.
type releaseCall Lock

func (c *releaseCall) run() { (*Lock)(c).release() }

// releaseLeftover makes one attempt to end a lease that is over by our clocks: the store may still have it.
func (l *Lock) releaseLeftover() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.given), releaseLimit)
	defer cancel()
	_ = l.client.locker.Release(ctx, l.Lease()) // best effort: what is left ends with its TTL
	l.client.lines.freed(l.Key())
}

// discard releases a lease that came too late for its caller.
func (c *Client) discard(ctx context.Context, lease Lease, ttl time.Duration) {
	cleanup.Go(ctx, ttl, func(ctx context.Context) error {
		err := c.locker.Release(ctx, lease)
		if err == nil || errors.Is(err, ErrLost) {
			c.lines.freed(lease.Key)
			return nil
		}
		return err
	})
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
