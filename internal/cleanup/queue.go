package cleanup

import (
	"context"
	"errors"
	"time"
)

// Queue has the attempts and the cleanups of one server. Their cost is bounded, and an unknown
// outcome always has a cleanup: an attempt reserves a slot before it is sent. When its outcome is
// known, it frees the slot; when it is not, the slot becomes an entry.
//
// Its three parts know nothing of each other. Each has its own file and its own mutex:
//
//	slots      how many attempts and entries there may be
//	gate       whether a call is made to a server that does not answer
//	leftovers  what is removed: the calls, their repetitions and confirmations
type Queue struct {
	slots     slots
	gate      gate
	leftovers leftovers
}

// New returns the Queue of a server. With oneServer, a failure for one key is one for all keys, and
// Reserve asks the gate.
func New(oneServer bool) *Queue {
	q := &Queue{gate: gate{oneServer: oneServer}}
	q.leftovers.heard, q.leftovers.gone, q.leftovers.alarm.ring = q.gate.hear, q.slots.free, q.leftovers.tick
	return q
}

// Reserve takes a slot for an attempt that is not yet sent. If none is free, it waits for one until
// ctx is done; the error says that nothing was sent. Free or Keep gives the slot back.
//
// If the Queue is that of one server, Answered or Withdraw counts the attempt out, and guarded says
// that the attempt passes the gate. While grants fail, one guarded attempt at a time probes the
// server after a pause, and all others fail with a [SilentError]. When it grants again, they wait
// until the ones before them are answered: a few at once, and one more for each answer.
func (q *Queue) Reserve(ctx context.Context, key string, guarded bool) (Call, error) {
	c := Call{grant: true, uncounted: !q.gate.oneServer, key: key}
	var turn chan struct{}
	for {
		ok, err := q.enter(&c, guarded)
		if ok || err != nil {
			q.slots.leave(turn)
			return c, err
		}
		if turn == nil {
			turn = q.slots.join()
			continue // a slot may have become free before
		}
		select {
		case <-turn:
			turn = nil
		case <-ctx.Done():
			q.slots.leave(turn)
			return c, &FullError{Err: context.Cause(ctx)}
		}
	}
}

// enter asks the gate and takes a slot. It is false if the attempt must wait for one of the two.
func (q *Queue) enter(c *Call, guarded bool) (ok bool, err error) {
	if ok, err := q.gate.admit(c, guarded); !ok {
		return false, err
	}
	if q.slots.take(maxSlots) {
		return true, nil
	}
	q.Withdraw(*c)
	return false, nil
}

// TryReserve takes a slot and does not wait for one.
func (q *Queue) TryReserve() bool { return q.slots.take(maxSlots) }

// Free gives back the slot of an attempt with a known outcome.
func (q *Queue) Free() { q.slots.free() }

// Keep turns the slot of an attempt with an unknown outcome into an entry. It uses only the values
// of ctx: the end of ctx does not stop a cleanup.
func (q *Queue) Keep(ctx context.Context, e Entry) { q.leftovers.add(ctx, e) }

// Add is for values without a reserved slot: those of leases that have ended. Without a free slot
// it drops and counts the value and returns false. The key then ends by its TTL.
func (q *Queue) Add(ctx context.Context, e Entry) bool {
	if !q.slots.takeForLeftover() {
		e.over()
		return false
	}
	q.leftovers.add(ctx, e)
	return true
}

// Confirm is Add for a value whose removal was answered once, but which may be written later.
func (q *Queue) Confirm(ctx context.Context, e Entry) bool {
	e.removed = true
	return q.Add(ctx, e)
}

// Settle removes the values of earlier attempts for key whose cleanup was not answered. An attempt
// that was held calls it: the holder may be the ghost of an attempt of the same process. It tells
// whether there was such an attempt. The caller then asks again.
func (q *Queue) Settle(ctx context.Context, key string) (found bool, err error) {
	return q.leftovers.settle(ctx, key)
}

// Haunted tells whether there is something for Settle to do.
func (q *Queue) Haunted(key string) bool { return q.leftovers.haunted(key) }

// Ask says whether to call a server, and counts the call in. Answered counts it out.
//
// A caller that does not need this server sets needed to false. Then a server that does not answer
// gets one call at a time, after a pause. A slow server gets calls only while at most limit are
// under way. A caller that needs the server may always call it, but only a few at once while it
// does not answer.
//
// A server may refuse grants and still answer all other calls. The two are counted apart: grants
// that hang must not stop extensions and releases.
func (q *Queue) Ask(grant, needed bool, limit int) (Call, bool) {
	return q.gate.ask(grant, needed, limit, q.leftovers.probing)
}

// Answered counts out a call. The err is nil if the server did it, or answered held or not found. A
// grant that failed counts unless another grant was answered since it was sent. Any other failure
// counts unless any call was answered.
func (q *Queue) Answered(c Call, err error) { q.slots.wake(q.gate.answered(c, err)) }

// Withdraw counts out a call that was not made, or whose outcome says nothing about the server.
func (q *Queue) Withdraw(c Call) { q.slots.wake(q.gate.withdraw(c)) }

// Stats are the numbers of a Queue.
type Stats struct {
	Entries int   // values to remove or confirm
	Slots   int   // Entries and attempts under way
	Calls   int   // under way
	Dropped int64 // leftovers without a slot
	Pending int   // calls under way that are not cleanups
	Silent  bool  // the server did not answer the last call
}

// Stats returns the present numbers.
func (q *Queue) Stats() Stats {
	entries, calls, silent := q.leftovers.stats()
	return Stats{
		Entries: entries, Slots: int(q.slots.used.Load()), Calls: calls, Dropped: q.slots.dropped.Load(),
		Pending: q.gate.traffic.underWay(), Silent: silent || q.gate.isDeaf(),
	}
}

// Entry is a value that an operation may have left in the store.
type Entry struct {
	Key string        // of the lock, for [Queue.Settle]; empty: it does not find the entry
	TTL time.Duration // the store forgets the value by itself after this time

	// Remove removes the value. It returns nil if the store answered, even if there was no value.
	Remove func(context.Context) error

	// Known says that the operation that wrote the value was answered, so it cannot arrive later.
	// One answer to Remove is then enough.
	Known bool

	// AtOnce says that the server has answered the last operation that wrote the value. The first
	// call then does not wait for a probe, nor behind one that hangs.
	AtOnce bool

	// Late is done when the connection of the operation has answered or was given up; nil: nobody knows.
	// Until then the operation may arrive, so the entry stays. Then the value is removed once more.
	Late context.Context

	// Done is called once, when nobody needs to wait for the entry any more: Remove was answered, or
	// the entry is dropped. It must not block. Nil: nobody waits.
	Done func()

	removed bool // once
}

func (e *Entry) over() {
	if e.Done != nil {
		e.Done()
	}
}

// LateOf is the end of what err, the error of an operation, has left under way; nil: nobody knows. The
// error has a method Late() context.Context if the connection of the operation is silent and is not given
// up, while others are used.
func LateOf(err error) context.Context {
	var l interface{ Late() context.Context }
	if errors.As(err, &l) {
		return l.Late()
	}
	return nil
}
