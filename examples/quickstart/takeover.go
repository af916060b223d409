package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// takeover is the end of a holder and what followed.
type takeover struct {
	holder, heir         int // pids
	held, waited, killed time.Time
	expired              time.Time // the end of the lease that the dead holder had
	taken                time.Time
}

func (t takeover) took() time.Duration { return t.taken.Sub(t.killed) }

// draw gives the rows of the two processes.
func (t takeover) draw() (holder, heir string) {
	column := t.taken.Sub(t.held) * 5 / 4 / columns
	marked := false
	for c := range columns {
		switch now := t.held.Add(time.Duration(c) * column); {
		case now.Before(t.killed):
			holder += mark
		case !marked:
			holder, marked = holder+"X", true
		case now.Before(t.expired):
			holder += "░"
		}
		switch now := t.held.Add(time.Duration(c) * column); {
		case now.Before(t.waited):
			heir += " "
		case now.Before(t.taken):
			heir += blank
		default:
			heir += mark
		}
	}
	return holder, heir
}

// killHolder kills a process that has the lock while another one waits for it.
func killHolder(ctx context.Context, locks *locker.Client, t task) (takeover, error) {
	holder, err := start(ctx, t)
	if err != nil {
		return takeover{}, err
	}
	defer holder.stop()
	heir, err := start(ctx, t)
	if err != nil {
		return takeover{}, err
	}
	defer heir.stop()

	holder.begin()
	first, err := holder.next()
	if err != nil {
		return takeover{}, err
	}
	heir.begin()
	end := takeover{holder: holder.pid(), heir: heir.pid(), held: first.from, waited: time.Now()}
	select {
	case <-time.After(leaseTTL * 5 / 4): // without extensions, the lease would be over before
	case <-ctx.Done():
		return takeover{}, ctx.Err()
	}

	end.killed = time.Now()
	holder.stop()
	end.expired, err = leaseEnd(ctx, locks, t.Key)
	if err != nil {
		return takeover{}, err
	}
	next, err := heir.next()
	if err != nil {
		return takeover{}, err
	}
	if end.taken = next.from; end.taken.Before(end.killed) {
		return takeover{}, fmt.Errorf("process %d took the lock before process %d was killed: %s", end.heir, end.holder,
			holder.complaint())
	}
	end.expired = earliest(end.expired, end.taken) // its end is known to the millisecond, or is that of the heir's
	_ = heir.stdin.Close()                         // it takes this for the end of its parent, and unlocks
	return end, heir.wait()
}

// leaseEnd asks for a lock that is held when the lease on it ends, unless somebody extends it.
func leaseEnd(ctx context.Context, locks *locker.Client, key string) (time.Time, error) {
	asked := time.Now()
	l, err := locks.TryLock(ctx, key)
	var held *locker.HeldError
	switch {
	case err == nil:
		return asked, l.Unlock(ctx)
	case errors.As(err, &held):
		return asked.Add(held.Left), nil
	}
	return time.Time{}, err
}
