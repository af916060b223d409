package cleanup

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

const (
	maxSlots = 10_000 // attempts under way and entries
	// slots in use at which Add drops: the rest is for attempts
	maxLeftovers = maxSlots * 3 / 4
	workers      = 4 // calls at once while the server answers
	// calls that have not returned, however long they are under way
	maxHanging  = 8
	hangLimit   = tryLimit + 100*time.Millisecond // for a call until another one is made beside it
	callLimit   = 5 * time.Second                 // for a call; at hangLimit each, 5 calls are under way
	baseBackoff = 50 * time.Millisecond           // of the prober: full jitter
)

// confirmations are the pauses after which an answered cleanup is repeated. The call of the unknown
// attempt may arrive later than the cleanup: from the socket of a server that was stopped, a proxy,
// TCP's retransmission queue.
var confirmations = [...]time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}

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

	removed bool // once
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

// Queue has the cleanups of one server. Their cost is bounded: there are at most 10,000 entries;
// while the server answers, a few calls at once remove them; while it does not, one call at a time
// probes it. A call that hangs is replaced by another one, but its answer still counts: a slow
// server answers too. Between two calls there is a timer and no goroutine, so that a test in fake
// time may end before a cleanup does. The zero Queue is ready to use.
//
// An attempt reserves a slot before it is sent. When its outcome is known, it frees the slot; when
// it is not, the slot becomes an entry. So an unknown outcome always has a cleanup.
type Queue struct {
	OneServer bool // a failure for one key is one for all keys: Reserve guards the server

	slots      atomic.Int32 // reserved ones and those of entries
	waiting    atomic.Int32 // attempts that wait for a slot
	dropped    atomic.Int64
	unanswered atomic.Int32 // entries in byKey

	mu      sync.Mutex
	waiters []chan struct{}
	fresh   list                     // not tried yet
	tried   list                     // the last try failed
	later   [len(confirmations)]list // answered, to be confirmed
	byKey   map[string]*entry        // not answered yet
	calls   []*call                  // under way
	entries int

	silent  bool // the last call failed
	passed  bool // the last call was not for an entry of tried
	hung    bool // it was not answered in time, so it may be in a buffer of the server
	backoff time.Duration
	probe   time.Time // the time of the next call while the server is silent

	timer *time.Timer
	armed time.Time

	// For calls that are not cleanups: see Ask and Reserve.
	granting atomic.Int32 // grants under way
	pending  atomic.Int32 // others under way
	grants   atomic.Int64 // answers to grants: granted or held
	others   atomic.Int64 // all other answers
	troubled atomic.Bool  // one of the next three
	// a call that is not a grant failed, and nothing was answered since it was sent
	deaf     bool
	refusing bool // grants failed, and no grant was answered since they were sent
	window   int  // calls at once by callers that can do without it or wait; 0: no limit

	failures  int // of grants, since the last answer to one
	failedKey string
	granted   int64 // answers to grants before those failures
	cause     error // the last failure

	probes   int           // under way
	patience time.Time     // when the wait for the last of them ends
	pause    time.Duration // before the next probe
	retry    time.Time     // of that probe
}

type entry struct {
	Entry
	ctx    context.Context
	ledger *Ledger
	end    time.Time // the store has forgotten the value
	due    time.Time // of the next confirmation
	stage  int       // answers so far
	late   lateness
	done   bool   // answered at least once, or ended
	next   *entry // of the same key
}

// lateness is what an entry knows of its operation.
type lateness int

const (
	arrived  lateness = iota // or nobody knows
	expected                 // it may arrive
	parked                   // it may arrive, and the entry was confirmed before
	missed                   // it may have arrived since the last call for the entry was made
)

type call struct {
	of      *entry
	stage   int // of the entry when the call began
	began   time.Time
	overdue bool // it hangs, and another call replaces it
}

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
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{
		Entries: q.entries, Slots: int(q.slots.Load()), Calls: len(q.calls), Dropped: q.dropped.Load(),
		Pending: int(q.pending.Load() + q.granting.Load()), Silent: q.silent || q.deaf,
	}
}

// TryReserve takes a slot and does not wait for one.
func (q *Queue) TryReserve() bool {
	for {
		n := q.slots.Load()
		if n >= maxSlots {
			return false
		}
		if q.slots.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// quit removes a waiter. If it was signalled meanwhile, the next waiter is signalled.
func (q *Queue) quit(free chan struct{}) {
	q.mu.Lock()
	if i := slices.Index(q.waiters, free); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
		q.waiting.Add(-1)
	}
	q.signal()
	q.mu.Unlock()
}

// signal wakes the first waiter, if a slot is free.
func (q *Queue) signal() {
	if len(q.waiters) > 0 && q.slots.Load() < maxSlots {
		close(q.waiters[0])
		q.waiters = q.waiters[1:]
		q.waiting.Add(-1)
	}
}

func (q *Queue) signalAll() {
	for _, free := range q.waiters {
		close(free)
	}
	q.waiting.Add(-int32(len(q.waiters)))
	q.waiters = nil
}

// FullError says that an attempt was not sent, since too many calls wait for an answer of its
// server.
type FullError struct{ Err error }

func (e *FullError) Error() string {
	text := "not sent: too many attempts and cleanups wait for an answer of the server"
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *FullError) Unwrap() error { return e.Err }

// Unsent says that nothing was sent.
func (e *FullError) Unsent() bool { return true }

// ErrorType is "cleanup_full".
func (e *FullError) ErrorType() string { return "cleanup_full" }

// Free gives back the slot of an attempt with a known outcome.
func (q *Queue) Free() {
	q.slots.Add(-1)
	if q.waiting.Load() > 0 {
		q.mu.Lock()
		q.signal()
		q.mu.Unlock()
	}
}

// Keep turns the slot of an attempt with an unknown outcome into an entry. It uses only the values
// of ctx: the end of ctx does not stop a cleanup. If the caller of the attempt does the cleanup,
// see [ByCaller], Keep frees the slot and returns false.
func (q *Queue) Keep(ctx context.Context, e Entry) bool {
	if ctx.Value(ByCaller{}) != nil {
		q.Free()
		return false
	}
	q.add(ctx, e)
	return true
}

// Add is for values without a reserved slot: those of leases that have ended. Without a free slot
// it drops and counts the value and returns false. The key then ends by its TTL.
func (q *Queue) Add(ctx context.Context, e Entry) bool {
	for {
		n := q.slots.Load()
		if n >= maxLeftovers {
			q.dropped.Add(1)
			return false
		}
		if q.slots.CompareAndSwap(n, n+1) {
			q.add(ctx, e)
			return true
		}
	}
}

// Confirm is Add for a value whose removal was answered once, but which may be written later.
func (q *Queue) Confirm(ctx context.Context, e Entry) bool {
	e.removed = true
	return q.Add(ctx, e)
}

func (q *Queue) add(ctx context.Context, of Entry) {
	now := time.Now()
	e := &entry{Entry: of, ctx: context.WithoutCancel(ctx), ledger: From(ctx), end: now.Add(of.TTL), done: of.removed}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.entries++
	if of.Late != nil {
		e.late = expected
		context.AfterFunc(of.Late, func() { q.arrive(e) })
	}
	if e.done {
		q.answered(e, now, true)
	} else {
		e.ledger.Begin()
		if e.Key != "" {
			q.index(e)
		}
		if e.AtOnce && q.silent && len(q.calls) < maxHanging {
			q.start(e, now)
		} else {
			q.fresh.push(e)
		}
	}
	q.pump(now)
}

// Settle removes the values of earlier attempts for key whose cleanup was not answered. An attempt
// that was held calls it: the holder may be the ghost of an attempt of the same process. It tells
// whether there was such an attempt. The caller then asks again.
func (q *Queue) Settle(ctx context.Context, key string) (found bool, err error) {
	if q.unanswered.Load() == 0 {
		return false, nil
	}
	var ghosts []*entry
	q.mu.Lock()
	for e := q.byKey[key]; e != nil; e = e.next {
		ghosts = append(ghosts, e)
	}
	q.mu.Unlock()
	for _, e := range ghosts {
		if err := try(ctx, tryLimit, e.Remove); err != nil && !outcome.Permanent(err) {
			return true, err
		}
		q.mu.Lock()
		now := time.Now()
		q.finish(e) // the queue confirms it
		q.hear(now)
		q.pump(now) // the other cleanups need not wait for the next probe
		q.mu.Unlock()
	}
	return len(ghosts) > 0, nil
}

// GhostError says that the holder may be an earlier attempt of this process with an unknown
// outcome, whose cleanup was not answered.
type GhostError struct{ Err error }

func (e *GhostError) Error() string {
	return "not done: the lock may be held by an earlier attempt of this process, and its cleanup failed: " + e.Err.Error()
}

func (e *GhostError) Unwrap() error { return e.Err }

// Unsent says that nothing was done.
func (e *GhostError) Unsent() bool { return true }

// ErrorType is "ghost".
func (e *GhostError) ErrorType() string { return "ghost" }

// Haunted tells whether there is something for Settle to do.
func (q *Queue) Haunted(key string) bool {
	if q.unanswered.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byKey[key] != nil
}

// pump starts the calls that are due, and sets the timer for the next ones.
func (q *Queue) pump(now time.Time) {
	for q.room() && !(q.silent && now.Before(q.probe)) {
		e := q.take(now)
		if e == nil {
			break
		}
		q.start(e, now)
	}
	q.arm(now)
}

func (q *Queue) start(e *entry, now time.Time) {
	c := &call{of: e, stage: e.stage, began: now}
	q.calls = append(q.calls, c)
	go q.make(c)
}

// room tells whether one more call may be under way. Calls that hang do not count, up to a number.
func (q *Queue) room() bool {
	most := workers
	if q.silent {
		most = 1
	}
	for _, c := range q.calls {
		if !c.overdue {
			most--
		}
	}
	return most > 0 && len(q.calls) < maxHanging
}

// take returns the next entry to call, or nil. Entries that have failed come last: a part of the
// store may not answer, and they may all be for that part. While no call is answered, every second
// call is for one of them: otherwise new entries could keep them waiting for ever.
func (q *Queue) take(now time.Time) *entry {
	for {
		var e *entry
		if q.silent && q.passed {
			e = q.tried.pop()
		}
		if q.passed = e == nil; q.passed {
			e = q.untried(now)
		}
		if e == nil {
			q.passed = false
			e = q.tried.pop()
		}
		if e == nil || q.awaits(e, now) {
			return e
		}
		q.drop(e)
	}
}

// untried returns a new entry, or one whose confirmation is due, or nil.
func (q *Queue) untried(now time.Time) *entry {
	if e := q.fresh.pop(); e != nil {
		return e
	}
	for i := range q.later {
		if first := q.later[i].first(); first != nil && !first.due.After(now) {
			return q.later[i].pop()
		}
	}
	return nil
}

var errGone = errors.New("the call ended its goroutine")

func (q *Queue) make(c *call) {
	err := errGone
	defer func() { q.returned(c, err) }() // even if the call ends the goroutine
	err = try(c.of.ctx, callLimit, c.of.Remove)
}

// returned records the outcome of a call.
func (q *Queue) returned(c *call, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	answered := err == nil || outcome.Permanent(err)
	if answered {
		q.hear(now)
	}
	q.calls = slices.DeleteFunc(q.calls, func(other *call) bool { return other == c })
	switch {
	case answered && (!c.overdue || q.recall(c)):
		q.answered(c.of, now, err == nil)
	case c.overdue: // another call is made for this entry
	default:
		q.fail(now, err)
		q.tried.push(c.of)
	}
	q.pump(now)
}

// recall takes the entry of an overdue call out of the queue, or from the call that replaces this
// one. It returns false if the entry was answered meanwhile.
func (q *Queue) recall(c *call) bool {
	if c.stage != c.of.stage {
		return false
	}
	for _, other := range q.calls {
		if other.of == c.of && !other.overdue {
			other.overdue = true
			return true
		}
	}
	n := len(q.tried.entries())
	q.tried.filter(func(e *entry) bool { return e != c.of })
	return len(q.tried.entries()) < n
}

// hear is called at every answer of the server. If the server hung before, it has by now done all
// calls in its buffers, so their values end a TTL from now.
func (q *Queue) hear(now time.Time) {
	if q.hung {
		for _, l := range q.lists() {
			for _, e := range l.entries() {
				e.revive(now)
			}
		}
		for _, c := range q.calls {
			c.of.revive(now)
		}
	}
	q.backoff, q.silent, q.hung = 0, false, false
	q.others.Add(1)
	q.hearCall()
}

func (e *entry) revive(now time.Time) {
	if !e.Known {
		e.end = now.Add(e.TTL)
	}
}

// awaits tells whether the server may have the value or may still write it. If very many calls
// hang, it no longer waits for a server that hangs.
func (q *Queue) awaits(e *entry, now time.Time) bool {
	return now.Before(e.end) || e.late == expected || q.hung && !e.Known && len(q.calls) < maxHanging
}

// fail is called when a call was not answered.
func (q *Queue) fail(now time.Time, err error) {
	switch {
	case timedOut(err):
		q.hung = true
	case refused(err): // a process that has ended has no buffers
		q.hung = false
	}
	q.silent = true
	q.backoff = min(max(2*q.backoff, baseBackoff), maxPause)
	q.probe = now.Add(jitter(q.backoff, now))
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && !op.Timeout()
}

// answered moves an entry to its next confirmation, or drops it.
func (q *Queue) answered(e *entry, now time.Time, removed bool) {
	q.finish(e)
	if !removed || e.Known {
		q.drop(e)
		return
	}
	if last := e.stage == len(confirmations); last || now.Add(confirmations[e.stage]).After(e.end) {
		switch e.late {
		case expected:
			e.late = parked
		case missed:
			q.anew(e)
		default:
			q.drop(e)
		}
		return
	}
	e.due = now.Add(confirmations[e.stage])
	q.later[e.stage].push(e)
	e.stage++
}

// arrive is called when the operation of an entry can no longer arrive. What came just before may still be
// in a buffer of the server.
func (q *Queue) arrive(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	e.end = now.Add(e.TTL)
	if e.late == expected && !q.confirms(e) {
		e.late = missed
		return
	}
	q.anew(e)
	q.pump(now)
}

// confirms takes an entry out that waits for its next confirmation.
func (q *Queue) confirms(e *entry) (waited bool) {
	if e.stage == 0 {
		return false
	}
	q.later[e.stage-1].filter(func(other *entry) bool {
		waited = waited || other == e
		return other != e
	})
	return waited
}

func (q *Queue) anew(e *entry) {
	e.late, e.stage = arrived, 0
	q.fresh.push(e)
}

// finish records that nobody needs to wait for the entry.
func (q *Queue) finish(e *entry) {
	if e.done {
		return
	}
	e.done = true
	if e.Key != "" {
		q.unindex(e)
	}
	e.ledger.Done()
}

// drop forgets an entry.
func (q *Queue) drop(e *entry) {
	q.finish(e)
	q.entries--
	q.slots.Add(-1)
	q.signal()
}

// tick is called by the timer.
func (q *Queue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = time.Time{}
	now := time.Now()
	for _, c := range q.calls {
		if !c.overdue && !now.Before(c.began.Add(hangLimit)) {
			c.overdue = true
			q.fail(now, context.DeadlineExceeded)
			q.tried.push(c.of)
		}
	}
	if q.silent || !q.room() {
		for _, l := range q.lists() {
			l.filter(func(e *entry) bool {
				if q.awaits(e, now) {
					return true
				}
				q.drop(e)
				return false
			})
		}
	}
	q.pump(now)
}

// arm sets the timer for the next entry or call that is due.
func (q *Queue) arm(now time.Time) {
	var next time.Time
	at := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, c := range q.calls {
		if !c.overdue {
			at(c.began.Add(hangLimit))
		}
	}
	switch {
	case q.room():
		for _, l := range q.lists() {
			if e := l.first(); e != nil && q.silent {
				at(latest(q.probe, e.due))
			} else if e != nil {
				at(latest(now, e.due))
			}
		}
	case next.IsZero() && q.entries > 0: // all calls hang: look again later, when one may have returned
		at(now.Add(maxPause))
	}
	if next.IsZero() || !q.armed.IsZero() && !next.Before(q.armed) {
		return
	}
	q.armed = next
	if d := max(next.Sub(now), 0); q.timer == nil {
		q.timer = time.AfterFunc(d, q.tick)
	} else {
		q.timer.Reset(d)
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// lists returns all lists of entries.
func (q *Queue) lists() (all [2 + len(confirmations)]*list) {
	all[0], all[1] = &q.fresh, &q.tried
	for i := range q.later {
		all[2+i] = &q.later[i]
	}
	return all
}

// index lets Settle find an entry.
func (q *Queue) index(e *entry) {
	if q.byKey == nil {
		q.byKey = map[string]*entry{}
	}
	e.next = q.byKey[e.Key]
	q.byKey[e.Key] = e
	q.unanswered.Add(1)
}

func (q *Queue) unindex(e *entry) {
	q.unanswered.Add(-1)
	first := q.byKey[e.Key]
	switch {
	case first != e:
		for first.next != e {
			first = first.next
		}
		first.next = e.next
	case e.next == nil:
		delete(q.byKey, e.Key)
	default:
		q.byKey[e.Key] = e.next
	}
}

// list has entries in the order in which they are due.
type list struct {
	items []*entry
	head  int
}

func (l *list) push(e *entry) { l.items = append(l.items, e) }

func (l *list) first() *entry {
	if l.head == len(l.items) {
		return nil
	}
	return l.items[l.head]
}

func (l *list) pop() *entry {
	e := l.first()
	if e == nil {
		return nil
	}
	l.items[l.head] = nil
	if l.head++; l.head == len(l.items) {
		l.items, l.head = nil, 0
	}
	return e
}

func (l *list) entries() []*entry { return l.items[l.head:] }

// filter keeps the entries for which keep is true.
func (l *list) filter(keep func(*entry) bool) {
	kept := l.items[:0]
	for _, e := range l.entries() {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	clear(l.items[len(kept):])
	l.items, l.head = kept, 0
}

// jitter returns a random part of d. It depends on the nanoseconds of the clock and not on a random
// number, so that a schedule in fake time can be replayed exactly.
func jitter(d time.Duration, now time.Time) time.Duration {
	x := uint64(now.UnixNano()) * 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return time.Duration((x ^ x>>31) % uint64(d))
}
