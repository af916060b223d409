package locker

import (
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

// lineState is what decides in a line. It has no mutex, timer or channel, and step reads no
// clock: so a test can try every event in every state. What the head learns stays with the line,
// so the next head goes on where the last one stopped.
type lineState struct {
	head   head
	ttl    time.Duration // that the head asks for
	woken  bool          // the head should make an attempt
	handed *grant        // over to the head, which has not taken it yet

	held  *HeldError // the last answer of the store; nil: nobody knows
	until time.Time  // when the lease in the way ends; zero: unknown
	local bool       // nothing was heard since this Client was granted the lock: its release wakes the line

	fault    error // of the attempts since the store last answered; nil: it has answered
	failures int   // how many they are
	failedAt time.Time

	watch    watch
	watchErr error // why there is no watch
}

// head is what the head of a line does.
type head int

const (
	absent    head = iota // nobody is in the line
	asleep                // or just about to make its first attempt
	invited               // asleep, and its first attempt joins the lease of the head before
	asking                // it has an attempt under way, or has taken a lease: it can take none
	following             // the same, but it joined, or was handed a lease: nobody joins its lease
)

// watch is how the store wakes a line.
type watch int

const (
	unwatched    watch = iota
	watchBegun         // the store was asked to wake the line
	watchActive        // it has said that it will
	unwatchable        // it cannot wake anybody
	watchFailed        // and the head has not read it yet
	watchRefused       // for all in the line
)

// lineEvent is what happens to a line, with the facts about it.
type lineEvent struct {
	is       happening
	at       time.Time     // onFailure, onOffer
	ttl      time.Duration // onEnter: of the call
	behind   int           // calls behind the head
	next     time.Duration // TTL of the first one of them
	shared   bool          // onGrant: others may hold the lock beside the lease
	room     int           // onGrant: for so many others; negative: for any number
	until    time.Time     // onHeld, onGrant: the end of the lease; zero: unknown
	held     *HeldError    // onHeld
	err      error         // onFailure, onWatchFailed
	lease    *grant        // onOffer
	watch    *watchContext // onWake, onWatched, onWatchFailed
	outlasts bool          // onSleep, onSignal, onAttempt: the call goes on while the store fails
	slept    bool          // onAttempt: since its last attempt, or since it became the head
	rests    bool          // onAttempt: this Client leaves the key to others
}

type happening int

const (
	onEnter       happening = iota // a call enters the line
	onSleep                        // the head is about to sleep
	onAttempt                      // the head is about to make an attempt
	onHeld                         // the attempt found that another holder has the lock
	onFailure                      // the attempt failed
	onUnknown                      // the outcome of the attempt, under the name of the watch, is unknown
	onGrant                        // the head leaves with a lease
	onLeave                        // the head leaves without one
	onWake                         // the store wakes the line
	onFreed                        // a lease that this Client held is over
	onWatched                      // the watch is active
	onWatchFailed                  // there is no watch
	onSignal                       // the head reads its signal
	onOffer                        // a hold of this Client that ends has a lease for the head
	onLingered                     // a line in which nobody is was kept for long enough
	happenings                     // how many there are
)

// lineAction is what the lines do, or the head does, after an event.
type lineAction struct {
	signal     bool // the head
	queue      bool // the call stands behind the head
	promote    bool // make the first waiter the head
	join       int  // let so many waiters behind that one join it; negative: all
	beginWatch bool
	endWatch   bool
	linger     bool // keep the line for a while, though nobody is in it
	remove     bool // the line

	lease  *grant // that the head takes; onGrant, onLeave: nobody is there to take it
	sleep  bool   // the head sleeps before its attempt
	joins  bool   // the attempt joins the lease of the head before
	named  bool   // the attempt has the name under which the store wakes the line
	waiter string // that name
	try    bool   // the head makes an attempt
	anew   bool   // the head begins its sleep anew, since the line is woken in another way
	err    error  // the head ends with it
}

// step is what an event makes of the state. It returns what is to be done.
func (s *lineState) step(e *lineEvent) (a lineAction) {
	switch e.is {
	case onEnter:
		if s.head != absent {
			a.queue = true
			break
		}
		s.head, s.ttl, s.woken = asleep, e.ttl, false // no head was there to be woken
		if !s.local {
			s.held, s.until = nil, time.Time{}
		}

	case onSleep:
		switch {
		case s.watch == watchRefused && !s.outlasts(e): // an earlier head has read it
			a.err = s.watchErr
		case s.watch == unwatched && s.fault == nil: // while the store fails, the head ignores wake-ups
			s.watch, a.beginWatch = watchBegun, true
		}

	case onAttempt:
		if e.rests || !e.slept && (s.held != nil || s.fault != nil && e.outlasts) {
			a.sleep = true
			break
		}
		a.lease, a.joins = s.handed, s.head == invited
		a.named = a.lease == nil && s.watch == watchActive
		s.head, s.handed = asking, nil
		if a.joins || a.lease != nil {
			s.head = following
		}
		if a.lease != nil && s.held != nil && s.held.Position > 0 { // leave the queue of the store
			a.endWatch = s.unwatch()
		}

	case onHeld:
		s.head, s.fault, s.failures = asleep, nil, 0
		s.held, s.until, s.local = e.held, e.until, false

	case onFailure:
		s.head, s.fault, s.failedAt = asleep, e.err, e.at
		s.failures++

	case onUnknown: // what is on its way gets nothing in the name of this watch
		a.endWatch = s.unwatch()

	case onGrant:
		invites := e.room != 0 && s.head != following
		s.fault, s.failures = nil, 0
		if e.shared { // the next one may be granted the lock as well, also when others release it
			s.held, s.until, s.local = nil, time.Time{}, false
		} else { // the wake-up led to this grant
			s.held, s.until, s.local, s.woken = heldHere, e.until, true, false
		}
		a = s.pass(e, s.watch == watchActive)
		if a.promote && invites {
			s.head, a.join = invited, e.room-1
		}

	case onLeave:
		a = s.pass(e, false)
		if a.promote {
			s.woken, a.signal = true, true // the head may have left with a wake-up that it did not use
		}

	case onWake: // while this Client holds the lock, the store reports the release before
		if !s.local {
			s.woken, a.signal = true, true
		}

	case onFreed:
		s.local, s.woken, a.signal = false, true, true

	case onWatched: // the lock may have been released before
		if s.watch == watchBegun {
			s.watch, s.woken, a.signal = watchActive, true, true
		}

	case onWatchFailed:
		if s.watch == watchBegun {
			s.watch, s.watchErr, a.signal = watchFailed, e.err, true
		}

	case onSignal:
		switch {
		case s.watch != watchFailed:
		case errors.Is(s.watchErr, errors.ErrUnsupported):
			s.watch, s.watchErr, a.anew = unwatchable, nil, true
		case s.outlasts(e): // begin another before the next sleep
			a.endWatch, a.anew = s.unwatch(), true
		default:
			s.watch, a.err = watchRefused, s.watchErr
			return a
		}
		// A store that comes back after a fault wakes all waiters: their attempts would arrive at one
		// instant.
		a.try = s.woken && (s.fault == nil || s.handed != nil)
		s.woken = false

	case onOffer: // if an attempt under way hangs, the key would stay locked
		if (s.head == asleep || s.head == invited) && s.handed == nil && fits(e.lease.Expires.Sub(e.at), s.ttl) {
			s.handed, s.woken, a.signal = e.lease, true, true
		}

	case onLingered:
		if s.head == absent {
			a.remove, a.endWatch = true, s.unwatch()
		}
	}
	return a
}

// pass makes the first waiter behind the head the head. If there is none, the line ends, at once or,
// if it is to linger, later.
func (s *lineState) pass(e *lineEvent, linger bool) (a lineAction) {
	if e.behind > 0 {
		s.head, s.ttl = asleep, e.next
		return lineAction{promote: true}
	}
	a = lineAction{lease: s.handed, linger: linger, remove: !linger}
	s.head, s.handed = absent, nil
	if a.remove {
		a.endWatch = s.unwatch()
	}
	return a
}

// unwatch forgets the watch. It is false if there was none.
func (s *lineState) unwatch() (end bool) {
	end = s.watch != unwatched
	s.watch, s.watchErr = unwatched, nil
	return end
}

// outlasts tells whether the head goes on without the watch that failed.
func (s *lineState) outlasts(e *lineEvent) bool { return e.outlasts && !outcome.Permanent(s.watchErr) }

// fits tells whether what is left of a lease is enough for a call that asks for ttl, and no more: if the
// process dies, the key is to be locked for no longer.
func fits(left, ttl time.Duration) bool { return left > ttl/2 && left <= ttl }

// heldHere is all that is known of the lock while this Client holds it.
var heldHere = &HeldError{}

// polls tells whether the head must look by itself, since no watch wakes it.
func (s *lineState) polls() bool { return s.watch == unwatched || s.watch == unwatchable }

// holder is what is known of the holder of key at now, or nil.
func (s *lineState) holder(key string, now time.Time) *HeldError {
	if s.held == nil {
		return nil
	}
	held := *s.held
	if s.held == heldHere {
		held.Key = key
	}
	if !s.until.IsZero() {
		held.Left = max(s.until.Sub(now), 0)
	}
	held.Position = max(held.Position, 1) // in the store's queue
	return &held
}
