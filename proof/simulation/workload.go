package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// A worker is a goroutine of a process that takes locks, one after the other. Its own dice decide
// what it does. Other workers and the network decide only when.
type worker struct {
	dice
	name    string
	process *process
	h       *History
	ctx     context.Context // of the process, or one that never ends
	owner   string
	keys    []string
	polls   bool // the strategy has no wakes
	queued  bool
}

// maxTTL is the longest lease.
const maxTTL = 2 * time.Second

func (w *worker) ttl() time.Duration {
	if w.h.Fault == Far { // a lease is worth something only if it lasts for a few round trips
		return pick(w.dice, time.Second, maxTTL)
	}
	return pick(w.dice, 60*time.Millisecond, 150*time.Millisecond, 400*time.Millisecond, time.Second, maxTTL)
}

func (w *worker) run() {
	for range 3 + w.IntN(4) {
		time.Sleep(w.between(1, 150*time.Millisecond))
		if w.process.isDead() {
			return
		}
		switch w.h.Kind {
		case oncePerTick:
			w.tick(pick(w.dice, w.keys...))
		case manyKeys:
			w.several()
		default:
			w.want(pick(w.dice, w.keys...), 0)
		}
	}
}

// want asks for a lock in one of several ways, again if that fails, and holds it.
func (w *worker) want(key string, depth int) {
	want := &Want{Client: w.process.name, Worker: w.name, Key: key, Owner: w.owner, Began: w.h.now(), Ended: Never}
	add(w.h, &w.h.Wants, want)
	patience := want.Began + w.between(time.Second, 6*time.Second)
	ttl := w.ttl()
	for {
		l, stop, err := w.lock(key, ttl, want)
		if err == nil {
			w.h.note(func() { want.Ended = w.h.now() })
			w.hold(l, stop, ttl, depth)
			return
		}
		if w.process.isDead() || w.h.now() > patience || errors.Is(err, locker.ErrHeld) && w.chance(0.3) {
			w.h.note(func() { want.Ended = w.h.now() })
			return
		}
		time.Sleep(w.between(10*time.Millisecond, 150*time.Millisecond))
	}
}

// lock calls the Client once. stop ends the ctx of the call, and so the renewal. It is nil if that
// ctx cannot end.
func (w *worker) lock(key string, ttl time.Duration, want *Want) (l *locker.Lock, stop context.CancelFunc, err error) {
	call := &caller{worker: w.name, waits: true}
	ctx := context.WithValue(locker.ContextWithOwner(w.ctx, w.owner), callerKey{}, call)
	if ctx.Done() != nil {
		ctx, stop = context.WithCancel(ctx)
	}
	opts := []locker.Option{locker.WithTTL(ttl), locker.WithBackoff(w.patience(key))}
	if w.chance(0.4) {
		opts = append(opts, locker.WithoutRenewal())
	}
	if w.chance(0.1) {
		opts = append(opts, locker.WithMaxHold(w.between(50*time.Millisecond, 2*time.Second)))
	}
	lock, limit := w.process.client.Lock, time.Duration(0)
	switch p := w.Float64(); {
	case p < 0.15:
		lock, call.waits = w.process.client.TryLock, false
	case p < 0.3:
		var cancel context.CancelFunc
		// during the first attempt, or later
		ctx, cancel = context.WithTimeout(ctx, w.between(quickest, pick(w.dice, 2*quick, 600*time.Millisecond)))
		stop = both(cancel, stop)
	case p < 0.4:
		opts = append(opts, locker.WithAttempts(1+w.IntN(4)))
	default:
		limit = w.between(20*time.Millisecond, 4*time.Second)
		opts = append(opts, locker.WithWait(limit))
	}
	began := w.h.now()
	l, err = lock(ctx, key, opts...)
	if call.waits {
		w.h.note(func() {
			took := Span{began, w.h.now()}
			want.Calls = append(want.Calls, took)
			if limit > 0 {
				want.Limited = append(want.Limited, Limited{took, limit, err == nil, errors.Is(err, locker.ErrWaitLimit)})
			}
		})
	}
	if err != nil && stop != nil {
		stop()
	}
	return l, stop, err
}

func both(first, second func()) func() {
	return func() {
		first()
		if second != nil {
			second()
		}
	}
}

// pollCap is the longest pause of a waiter without a queue.
const pollCap = 250 * time.Millisecond

// patience returns the Backoff of one call.
func (w *worker) patience(key string) locker.Backoff {
	if !w.queued {
		return w.backoff
	}
	var since time.Time
	return func(int, float64) time.Duration {
		if since.IsZero() {
			since = time.Now()
		}
		d := look(time.Since(since), w.process.position(key))
		return d/2 + throwFor(w.h.Seed, "backoff", w.name, w.h.now().String()).between(0, d/2)
	}
}

// look returns the longest pause of a waiter that the store wakes: see locker/backoff.go.
func look(waited time.Duration, position int) time.Duration {
	if position > lookouts {
		return min(time.Duration(position)*2*time.Second, 15*time.Second)
	}
	return min(max(waited/4, pollCap), 6*time.Second)
}

// backoff is that of the Client without queues, with a number that depends on the instant in place
// of its random one.
func (w *worker) backoff(attempt int, _ float64) time.Duration {
	first := pollCap
	if w.polls {
		first = 8 * time.Millisecond
	}
	return locker.Exponential(first, pollCap)(attempt, throwFor(w.h.Seed, "backoff", w.name, w.h.now().String()).Float64())
}

// hold holds the lock for a while, and then unlocks it or not.
func (w *worker) hold(l *locker.Lock, stop context.CancelFunc, ttl time.Duration, depth int) {
	if stop != nil {
		defer stop()
	}
	d := w.holds(l, ttl)
	stay := w.between(time.Millisecond, min(ttl*5/2, 2500*time.Millisecond))
	switch p := w.Float64(); {
	case w.owner != "" && depth < 2 && p < 0.3:
		w.work(l, stay/4)
		w.want(l.Key(), depth+1)
		w.work(l, stay/4)
	case p < 0.5:
		w.work(l, stay)
	case p < 0.7: // calls Extend
		w.work(l, stay/2)
		ctx, cancel := context.WithTimeout(l.Context(), w.between(time.Millisecond, 200*time.Millisecond))
		_ = l.Extend(ctx, w.ttl())
		cancel()
		w.work(l, stay/2)
	case p < 0.85 || stop == nil: // does not look at the context
		time.Sleep(stay)
	default: // abandons the lock, and nothing renews it any more
		w.h.note(func() { d.Abandoned = w.h.now() })
		return
	}
	if w.process.isDead() {
		return
	}
	w.unlock(l, d)
}

// holds records a lock that was granted.
func (w *worker) holds(l *locker.Lock, ttl time.Duration) *Hold {
	lease := l.Lease()
	d := &Hold{
		Client: w.process.name, Worker: w.name, Key: lease.Key, Token: w.h.name(lease.Token), Owner: lease.Owner, TTL: ttl,
		T1: w.h.since(lease.Granted), Granted: w.h.now(), Expires: w.h.since(lease.Expires),
		Unlocking: Never, Unlocked: Never, Ended: Never, Abandoned: Never, Slot: lease.Slot,
	}
	add(w.h, &w.h.Holds, d)
	context.AfterFunc(l.Context(), func() {
		cause := context.Cause(l.Context())
		w.h.note(func() {
			d.Ended, d.Final, d.Cause, d.Lost = w.h.now(), w.h.since(l.Lease().Expires), verdict(cause), reason(cause)
		})
	})
	return d
}

func reason(cause error) locker.LostReason {
	var lost *locker.LostError
	if errors.As(cause, &lost) {
		return lost.Reason
	}
	return ""
}

// work ends when the context of the lock does, or after d.
func (w *worker) work(l *locker.Lock, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.Context().Done():
	}
}

func (w *worker) unlock(l *locker.Lock, d *Hold) {
	ctx := context.WithValue(context.Background(), callerKey{}, &caller{worker: w.name})
	if w.chance(0.5) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.between(time.Millisecond, 300*time.Millisecond))
		defer cancel()
	}
	w.h.note(func() { d.Unlocking = w.h.now() })
	err := l.Unlock(ctx)
	w.h.note(func() { d.Unlocked, d.UnlockSays = w.h.now(), verdict(err) })
	// it was lost; two wakes at one instant may count as one or as two
	if d.Unlocked == d.Unlocking {
		time.Sleep(anotherMoment)
	}
}
