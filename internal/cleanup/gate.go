package cleanup

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

const (
	// at once, to a server that does not answer, by callers that need it; and the first ones when
	// it answers again
	fewCalls    = 4
	fewRefusals = 8   // so many failures in a row are about the server and not about their keys
	fullSpeed   = 256 // calls at once: from here on their number is not limited
	maxDoubling = 10  // of the wait for a probe that hangs
)

// Call is a call to a server that Ask or Reserve has let through.
type Call struct {
	grant   bool
	probe   bool
	key     string
	answers int64 // all answers of the server before this call
	grants  int64 // the answers to grants among them
}

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
	c := Call{grant: grant, answers: q.answers(), grants: q.grants.Load()}
	under := q.underWay(grant)
	n := int(under.Add(1))
	if !q.troubled.Load() {
		if n <= limit || needed {
			return c, true
		}
		under.Add(-1)
		return c, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ok := false
	switch {
	case !q.deaf && !(grant && q.refusing):
		ok = needed || n <= limit && (q.window == 0 || n <= q.window)
	case needed:
		ok = n <= fewCalls
	default:
		c.probe = q.mayProbe(time.Now())
		ok = c.probe
	}
	if !ok {
		under.Add(-1)
	}
	return c, ok
}

// Reserve takes a slot for an attempt that is not yet sent. If none is free, it waits for one until
// ctx is done; the error says that nothing was sent. Free or Keep gives the slot back.
//
// If OneServer is set, Answered or Withdraw counts the attempt out. While grants fail, one attempt
// at a time probes the server after a pause, and all others fail with a [SilentError]. When it
// grants again, attempts wait until the ones before them are answered: a few at once, and one more
// for each answer.
func (q *Queue) Reserve(ctx context.Context, key string) (Call, error) {
	c := Call{grant: true, key: key, grants: q.grants.Load()}
	if !q.troubled.Load() && q.TryReserve() {
		if q.OneServer {
			q.granting.Add(1)
		}
		return c, nil
	}
	guarded := q.OneServer && ctx.Value(ByCaller{}) == nil // otherwise the caller has called Ask
	for {
		free, err := q.enter(&c, guarded)
		if free == nil {
			return c, err
		}
		select {
		case <-free:
		case <-ctx.Done():
			q.quit(free)
			return c, &FullError{Err: context.Cause(ctx)}
		}
	}
}

// enter tries once to take a slot. If it fails, free is closed before the next try.
func (q *Queue) enter(c *Call, guarded bool) (free chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.grants = q.grants.Load()
	q.waiting.Add(1) // before the look at the slots: Free reads it after it has freed one
	if !guarded || q.refusing || q.inWindow() {
		c.probe = guarded && q.refusing && q.mayProbe(time.Now())
		switch {
		case guarded && q.refusing && !c.probe:
			q.waiting.Add(-1)
			return nil, &SilentError{q.cause}
		case q.TryReserve():
			q.waiting.Add(-1)
			if q.OneServer {
				q.granting.Add(1)
			}
			return nil, nil
		case c.probe:
			c.probe = false
			q.probes--
		}
	}
	free = make(chan struct{})
	q.waiters = append(q.waiters, free)
	return free, nil
}

// inWindow tells whether one more grant may be under way.
func (q *Queue) inWindow() bool { return q.window == 0 || int(q.granting.Load()) < q.window }

// mayProbe tells whether a server that does not answer may be probed, and counts the probe in.
// There is one probe at a time, after a pause. The wait for a probe that hangs is twice as long as
// for the one before. So few probes hang, however long the server is silent, and there is always a
// next one.
func (q *Queue) mayProbe(now time.Time) bool {
	switch {
	case now.Before(q.retry):
		return false
	case q.probes > 0 && now.Before(q.patience):
		return false
	case q.deaf && q.entries > 0 && q.room(): // the cleanups probe it
		return false
	}
	q.patience = now.Add(hangLimit << min(q.probes, maxDoubling))
	q.probes++
	return true
}

// answers returns the number of all answers.
func (q *Queue) answers() int64 { return q.grants.Load() + q.others.Load() }

// underWay returns the counter for a kind of call.
func (q *Queue) underWay(grant bool) *atomic.Int32 {
	if grant {
		return &q.granting
	}
	return &q.pending
}

// Withdraw counts out a call that was not made, or whose outcome says nothing about the server.
func (q *Queue) Withdraw(c Call) {
	q.underWay(c.grant).Add(-1)
	if !c.probe && !q.troubled.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.probe {
		q.probes--
	}
	q.signal()
}

// Answered counts out a call. The err is nil if the server did it, or answered held or not found. A
// grant that failed counts unless another grant was answered since it was sent. Any other failure
// counts unless any call was answered.
func (q *Queue) Answered(c Call, err error) {
	q.underWay(c.grant).Add(-1)
	answered := err == nil || outcome.Permanent(err)
	switch {
	case err == nil && c.grant:
		q.grants.Add(1)
	case answered:
		q.others.Add(1)
	}
	if err == nil && !q.troubled.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.probe {
		q.probes--
	}
	if answered {
		q.hearCall()
	}
	switch {
	case err == nil && c.grant:
		if q.refusing {
			q.refusing, q.pause, q.cause = false, 0, nil
			q.rampUp()
		}
		q.widen()
	case err == nil:
		q.widen() // for an extension too: many locks may be held while none is asked for
	case c.grant:
		q.refused(c, err)
	case !answered && q.answers() == c.answers:
		q.deaf = true
	}
	if now := time.Now(); err != nil && (q.deaf || q.refusing) && !now.Before(q.retry) {
		q.pause = min(max(2*q.pause, baseBackoff), maxPause)
		q.retry = now.Add(jitter(q.pause, now))
	}
	q.troubled.Store(q.deaf || q.refusing || q.window > 0)
	if q.refusing || q.window == 0 {
		q.signalAll()
	}
	q.signal()
}

// rampUp begins with a few calls at once. Those that hang since the server did not answer may never
// return.
func (q *Queue) rampUp() {
	q.window = fewCalls + int(max(q.granting.Load(), q.pending.Load()))
	if q.window >= fullSpeed {
		q.window = 0
	}
}

// widen lets one more call be under way.
func (q *Queue) widen() {
	if q.window > 0 && !q.refusing {
		q.window = (q.window + 1) % fullSpeed
		q.signal()
	}
}

// refused is called for a grant that failed. One failure is enough to stop grants to a node of a
// quorum, since there are other nodes. Without other servers, and for permanent errors, it takes
// several: they may be about one key or one connection.
func (q *Queue) refused(c Call, err error) {
	q.cause = err
	if n := q.grants.Load(); n != q.granted {
		q.granted, q.failures = n, 0
	}
	if q.OneServer && q.failures > 0 && c.key == q.failedKey {
		return // it may be about this key only
	}
	q.failures, q.failedKey = q.failures+1, c.key
	few := 1
	if q.OneServer || outcome.Permanent(err) {
		few = fewRefusals
	}
	if q.failures >= few && q.grants.Load() == c.grants {
		q.refusing = true
	}
}

// hearCall is called at every answer of the server, even to a cleanup.
func (q *Queue) hearCall() {
	if q.deaf {
		q.deaf, q.pause, q.retry = false, 0, time.Time{}
		q.rampUp()
	}
}

// SilentError says that an attempt was not sent, since others to the same server have failed.
type SilentError struct{ Err error }

func (e *SilentError) Error() string {
	return "not sent: one attempt at a time asks the server until it answers, since others failed: " + e.Err.Error()
}

// Unsent says that nothing was sent.
func (e *SilentError) Unsent() bool { return true }

// Is matches the last failure, except the end of a ctx, which was not that of this call.
func (e *SilentError) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.Err, target)
}

// As matches the last failure.
func (e *SilentError) As(target any) bool { return errors.As(e.Err, target) }
