package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A Kind is what the workers of a schedule do.
type Kind string

// The kinds. Most schedules are of the first.
const (
	oneKey      Kind = ""              // take one lock after the other
	oncePerTick Kind = "once per tick" // Do with a minimum hold
	manyKeys    Kind = "many keys"     // DoAll
)

func kindOf(seed uint64) Kind {
	switch p := throwFor(seed, "kind").Float64(); {
	case p < 0.15:
		return oncePerTick
	case p < 0.3:
		return manyKeys
	}
	return oneKey
}

var errWork = errors.New("the work has failed")

// tick does what a scheduler does at a tick: it takes the lock and works, unless another process
// has the lock. Some works fail.
func (w *worker) tick(key string) {
	want := &Want{Client: w.process.name, Worker: w.name, Key: key, Owner: w.owner, Began: w.h.now(), Ended: Never}
	add(w.h, &w.h.Wants, want)
	call := &caller{worker: w.name, waits: true}
	ctx := context.WithValue(locker.ContextWithOwner(w.ctx, w.owner), callerKey{}, call)
	ttl, keep := w.ttl(), w.between(50*time.Millisecond, maxTTL).Truncate(time.Millisecond)
	opts := []locker.Option{locker.WithTTL(ttl), locker.WithMinHold(keep), locker.WithBackoff(w.patience(key))}
	if w.chance(0.3) {
		opts = append(opts, locker.WithoutRenewal())
	}
	limit := time.Duration(0)
	if w.chance(0.4) {
		opts = append(opts, locker.WithAttempts(1+w.IntN(2)))
	} else {
		limit = w.between(20*time.Millisecond, 4*time.Second)
		opts = append(opts, locker.WithWait(limit))
	}
	stay, fails := w.between(time.Millisecond, 2*keep), w.chance(0.3)
	var d *Hold
	asked := func() { // the answer of Lock is there
		w.h.note(func() {
			took := Span{want.Began, w.h.now()}
			want.Ended, want.Calls = took.To, []Span{took}
			if limit > 0 && d != nil {
				want.Limited = []Limited{{Span: took, For: limit, Granted: true}}
			}
		})
	}
	err := w.process.client.Do(ctx, key, func(_ context.Context, l *locker.Lock) error {
		d = w.holds(l, ttl)
		asked()
		w.work(l, stay)
		w.h.note(func() {
			if d.Keep, d.Work = keep, Done; fails {
				d.Work = Failed
			}
			if !w.process.isDead() {
				d.Unlocking = w.h.now()
			}
		})
		if fails {
			return errWork
		}
		return nil
	}, opts...)
	if d == nil {
		asked()
		if limit > 0 {
			w.h.note(func() {
				want.Limited = []Limited{{Span: want.Calls[0], For: limit, Over: errors.Is(err, locker.ErrWaitLimit)}}
			})
		}
		return
	}
	var unconfirmed *locker.Error
	if errors.Is(err, errWork) && !errors.Is(err, locker.ErrLost) && !errors.As(err, &unconfirmed) {
		err = nil
	}
	if d.Unlocking != Never {
		w.h.note(func() { d.Unlocked, d.UnlockSays = w.h.now(), verdict(err) })
	}
	time.Sleep(anotherMoment) // two wakes at one instant may count as one or as two
}

// several takes several keys at once. The others list them in another order.
func (w *worker) several() {
	keys := slices.Clone(w.keys)
	w.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys = append(keys[:2+w.IntN(len(keys)-1)], keys[0])
	s := &Several{
		Client: w.process.name, Worker: w.name, Keys: keys,
		Began: w.h.now(), Ended: Never, Called: Never, Returned: Never, CtxEnded: Never,
	}
	add(w.h, &w.h.Several, s)
	for _, key := range keys { // without a span, since it waits for one key after the other
		add(w.h, &w.h.Wants, &Want{Client: w.process.name, Worker: w.name, Key: key, Owner: w.owner, Began: s.Began, Ended: s.Began})
	}
	ctx := context.WithValue(locker.ContextWithOwner(w.ctx, w.owner), callerKey{}, &caller{worker: w.name, waits: true})
	opts := []locker.Option{locker.WithTTL(w.ttl()), locker.WithBackoff(w.backoff), locker.WithWait(severalLimit)}
	stay := w.between(time.Millisecond, 300*time.Millisecond)
	err := w.process.client.DoAll(ctx, keys, func(ctx context.Context, held []*locker.Lock) error {
		context.AfterFunc(ctx, func() { w.h.note(func() { s.CtxEnded = w.h.now() }) })
		var tokens []string
		for _, l := range held {
			tokens = append(tokens, w.h.name(l.Lease().Token))
		}
		w.h.note(func() { s.Called, s.Tokens = w.h.now(), tokens })
		time.Sleep(stay) // it does not look at its ctx
		w.h.note(func() { s.Returned = w.h.now() })
		return nil
	}, opts...)
	w.h.note(func() { s.Ended, s.Over = w.h.now(), errors.Is(err, locker.ErrWaitLimit) })
	time.Sleep(anotherMoment)
}

// severalLimit is longer than all workers need for all their works, if nothing goes wrong.
const severalLimit = 30 * time.Second

// holder records the holds of DoAll, which begin before the work does.
type holder struct {
	locker.Locker
	process *process
}

func (m holder) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := m.Locker.Acquire(ctx, req)
	if err != nil {
		return lease, err
	}
	h, worker := m.process.h, callerOf(ctx).worker
	contract.CallOf(ctx).OnHold(func(ctx context.Context, lease contract.Lease) (context.Context, func(time.Time, error)) {
		d := &Hold{
			Client: m.process.name, Worker: worker, Key: lease.Key, Token: h.name(lease.Token), Owner: lease.Owner, TTL: req.TTL,
			T1: h.since(lease.Granted), Granted: h.now(), Expires: h.since(lease.Expires),
			Unlocking: Never, Unlocked: Never, Ended: Never, Abandoned: Never, Final: Never, Slot: lease.Slot,
		}
		add(h, &h.Holds, d)
		return ctx, func(at time.Time, cause error) {
			h.note(func() {
				d.Ended, d.Cause, d.Lost = h.since(at), verdict(cause), reason(cause)
				if errors.Is(cause, locker.ErrReleased) {
					d.Unlocking, d.Unlocked, d.UnlockSays = d.Ended, h.now(), "unknown"
					if cause == locker.ErrReleased { //nolint:errorlint // what wraps it is not confirmed
						d.UnlockSays = "done"
					}
				}
			})
		}
	})
	return lease, nil
}

// finals fills in the last Expires of holds that were recorded by their hooks, which do not know it.
func (h *History) finals() {
	for _, d := range h.Holds {
		if d.Final == Never {
			d.Final = h.expires(d)
		}
	}
}
