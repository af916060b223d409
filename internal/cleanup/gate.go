package cleanup

import (
	"sync/atomic"
	"time"
)

const (
	fewCalls    = 4   // at once to a server that does not answer, by callers that can't do without it; and first, when it answers again
	fewRefusals = 8   // permanent errors of grants in a row: then they are about the server
	fullSpeed   = 256 // calls at once: from here on their number is not limited
)

// Call is a call to a server that Ask has let through.
type Call struct {
	grant   bool
	probe   bool
	answers int64 // of the server before it
	grants  int64
}

// Ask says whether a server should be asked, and counts the call in. Answered counts it out. A caller that can do without
// the server says so: then a server that does not answer is asked by one call at a time, after a pause, and a server that
// is slow by so many that no more than limit calls are under way. A caller that needs it is let through, but only a few
// at once while it does not answer. A grant is the kind of call that a server may refuse while it answers all others. Grants and
// others are counted apart: grants that hang must not keep extensions and releases from being sent.
func (q *Queue) Ask(grant, needed bool, limit int) (Call, bool) {
	c := Call{grant: grant, answers: q.answers.Load(), grants: q.grants.Load()}
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
	deaf := q.deaf || grant && q.refusing
	ok := false
	switch {
	case !deaf:
		ok = needed || n <= limit && (q.window == 0 || n <= q.window)
	case needed:
		ok = n <= fewCalls
	case !q.probing && !time.Now().Before(q.retry) && !(q.deaf && q.entries > 0): // else the cleanups probe it
		ok, c.probe, q.probing = true, true, true
	}
	if !ok {
		under.Add(-1)
	}
	return c, ok
}

// underWay counts the calls of a kind.
func (q *Queue) underWay(grant bool) *atomic.Int32 {
	if grant {
		return &q.granting
	}
	return &q.pending
}

// Withdraw counts out a call that was not made.
func (q *Queue) Withdraw(c Call) {
	q.underWay(c.grant).Add(-1)
	if c.probe {
		q.mu.Lock()
		q.probing = false
		q.mu.Unlock()
	}
}

// Answered counts out a call. The server did what the call asked for, or said that it can't since somebody else has the
// lock or nobody has; or it failed.
func (q *Queue) Answered(c Call, err error) {
	q.underWay(c.grant).Add(-1)
	answered := err == nil || Permanent(err)
	if answered {
		q.answers.Add(1)
	}
	if err == nil && c.grant {
		q.grants.Add(1)
	}
	if err == nil && !q.troubled.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.probe {
		q.probing = false
	}
	switch {
	case answered:
		q.hearCall()
	case q.answers.Load() == c.answers: // nothing was answered since it was sent
		q.deaf = true
	}
	if err == nil && c.grant {
		q.refusing, q.pause, q.failures = false, 0, 0
	}
	switch {
	case err == nil:
		if q.window > 0 && !q.refusing { // an extension as well: many locks may be held while none is asked for
			q.window = (q.window + 1) % fullSpeed
		}
	case c.grant:
		// A permanent error may be about one key alone.
		if q.failures++; q.grants.Load() == c.grants && (!answered || q.failures >= fewRefusals) {
			q.refusing = true
		}
		q.window = fewCalls
		fallthrough
	default:
		if now := time.Now(); !now.Before(q.retry) {
			q.pause = min(max(2*q.pause, baseBackoff), maxPause)
			q.retry = now.Add(jitter(q.pause, now))
		}
	}
	q.troubled.Store(q.deaf || q.refusing || q.window > 0)
}

// hearCall is called at every answer of the server, also to a cleanup.
func (q *Queue) hearCall() {
	if q.deaf {
		q.deaf, q.pause, q.retry, q.window = false, 0, time.Time{}, fewCalls
	}
}
