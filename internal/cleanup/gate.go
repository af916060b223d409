package cleanup

import (
	"context"
	"errors"
	"sync"
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

// gate is the breaker of one server. A call asks it first and is counted in, and is counted out
// with its outcome. While the server does not answer, the gate lets through a few calls, or one
// probe at a time. When it answers again, their number ramps up.
//
// Cleanups do not pass the gate, but tell it of their answers: see hear.
type gate struct {
	oneServer bool // a failure for one key is one for all keys
	traffic   traffic
	troubled  atomic.Bool // deaf, refusing, or window > 0: then calls need the mutex

	mu sync.Mutex
	// a call that is not a grant failed, and nothing was answered since it was sent
	deaf     bool
	refusing bool // grants failed, and no grant was answered since they were sent
	window   int  // calls at once by callers that can do without it or wait; 0: no limit
	failed   failedGrants
	probes   probes
}

// Call is a call to a server that Ask or Reserve has let through.
type Call struct {
	grant     bool
	uncounted bool // no gate is asked for it
	probe     bool
	key       string
	answers   int64 // all answers of the server before this call
	grants    int64 // the answers to grants among them
}

// ask is [Queue.Ask]. probing tells whether the next probe is a cleanup.
func (g *gate) ask(grant, needed bool, limit int, probing func() bool) (Call, bool) {
	c := Call{grant: grant, answers: g.traffic.answers(), grants: g.traffic.grants.Load()}
	under := g.traffic.of(grant)
	n := int(under.Add(1))
	if !g.troubled.Load() {
		if n <= limit || needed {
			return c, true
		}
		under.Add(-1)
		return c, false
	}
	probed := !needed && probing() // before the mutex: hear is called under that of the leftovers
	g.mu.Lock()
	defer g.mu.Unlock()
	ok := false
	switch {
	case !g.deaf && !(grant && g.refusing):
		ok = needed || n <= limit && (g.window == 0 || n <= g.window)
	case needed:
		ok = n <= fewCalls
	default:
		c.probe = !(g.deaf && probed) && g.probes.begin(time.Now())
		ok = c.probe
	}
	if !ok {
		under.Add(-1)
	}
	return c, ok
}

// admit asks for the attempt of c, and counts it in. It is false without an error if the attempt
// must wait until others are answered. An attempt that is not guarded is only counted.
func (g *gate) admit(c *Call, guarded bool) (ok bool, err error) {
	c.probe, c.grants = false, g.traffic.grants.Load()
	switch {
	case c.uncounted:
		return true, nil
	case !guarded || !g.troubled.Load():
		g.traffic.granting.Add(1)
		return true, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.refusing:
		if c.probe = g.probes.begin(time.Now()); !c.probe {
			return false, &SilentError{g.failed.last}
		}
	case g.window > 0 && int(g.traffic.granting.Load()) >= g.window:
		return false, nil
	}
	g.traffic.granting.Add(1)
	return true, nil
}

// withdraw is [Queue.Withdraw]. It returns how many attempts that wait may look at the gate again.
func (g *gate) withdraw(c Call) (wake int) {
	if c.uncounted {
		return 0
	}
	g.traffic.of(c.grant).Add(-1)
	if !c.probe && !g.troubled.Load() {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.probe {
		g.probes.count--
	}
	return 1
}

// answered is [Queue.Answered]. It returns how many attempts that wait may look at the gate again.
func (g *gate) answered(c Call, err error) (wake int) {
	if c.uncounted {
		return 0
	}
	g.traffic.of(c.grant).Add(-1)
	answered := err == nil || outcome.Permanent(err)
	switch {
	case err == nil && c.grant:
		g.traffic.grants.Add(1)
	case answered:
		g.traffic.others.Add(1)
	}
	if err == nil && !g.troubled.Load() {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.probe {
		g.probes.count--
	}
	if answered {
		g.reached()
	}
	wake = 1
	switch {
	case err == nil:
		if c.grant && g.refusing {
			g.refusing, g.probes.pause.length, g.failed.last = false, 0, nil
			g.rampUp()
		}
		wake += g.widen() // for an extension too: many locks may be held while none is asked for
	case c.grant:
		g.refusing = g.failed.add(c, err, g.traffic.grants.Load(), g.oneServer) || g.refusing
	case !answered && g.traffic.answers() == c.answers:
		g.deaf = true
	}
	if err != nil && (g.deaf || g.refusing) {
		g.probes.postpone(time.Now())
	}
	g.troubled.Store(g.deaf || g.refusing || g.window > 0)
	if g.refusing || g.window == 0 {
		return everyone
	}
	return wake
}

// hear notes an answer to a cleanup.
func (g *gate) hear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.traffic.others.Add(1)
	g.reached()
}

// reached is called at every answer of the server.
func (g *gate) reached() {
	if g.deaf {
		g.deaf, g.probes.pause = false, backoff{}
		g.rampUp()
	}
}

// rampUp begins with a few calls at once. Those that hang since the server did not answer may never
// return.
func (g *gate) rampUp() {
	g.window = fewCalls + int(max(g.traffic.granting.Load(), g.traffic.pending.Load()))
	if g.window >= fullSpeed {
		g.window = 0
	}
}

// widen lets one more call be under way. It returns how many more attempts may look.
func (g *gate) widen() (wake int) {
	if g.window == 0 || g.refusing {
		return 0
	}
	g.window = (g.window + 1) % fullSpeed
	return 1
}

func (g *gate) isDeaf() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.deaf
}

// traffic counts the calls that are under way, and the answers. While the server answers, calls
// change nothing else of the gate.
type traffic struct {
	granting atomic.Int32 // grants under way
	pending  atomic.Int32 // others under way
	grants   atomic.Int64 // answers to grants: granted or held
	others   atomic.Int64 // all other answers
}

// of returns the counter for a kind of call.
func (t *traffic) of(grant bool) *atomic.Int32 {
	if grant {
		return &t.granting
	}
	return &t.pending
}

func (t *traffic) underWay() int { return int(t.pending.Load() + t.granting.Load()) }

func (t *traffic) answers() int64 { return t.grants.Load() + t.others.Load() }

// failedGrants are the grants that have failed since the last answer to one.
type failedGrants struct {
	count  int
	key    string // of the last of them
	before int64  // answers to grants before them
	last   error
}

// add notes a grant that failed, and tells whether these are enough to stop grants. One failure is
// enough to stop grants to a node of a quorum, since there are other nodes. Without other servers,
// and for permanent errors, it takes several: they may be about one key or one connection.
func (f *failedGrants) add(c Call, err error, grants int64, oneServer bool) (enough bool) {
	f.last = err
	if grants != f.before {
		f.before, f.count = grants, 0
	}
	if oneServer && f.count > 0 && c.key == f.key {
		return false // it may be about this key only
	}
	f.count, f.key = f.count+1, c.key
	few := 1
	if oneServer || outcome.Permanent(err) {
		few = fewRefusals
	}
	return f.count >= few && grants == c.grants
}

// probes are calls to a server that does not answer: one at a time, after a pause. The wait for a
// probe that hangs is twice as long as for the one before. So few probes hang, however long the
// server is silent, and there is always a next one.
type probes struct {
	count    int       // under way
	patience time.Time // when the wait for the last of them ends
	pause    backoff   // before the next one
}

// begin tells whether a probe may be made now, and counts it in.
func (p *probes) begin(now time.Time) bool {
	if p.pause.lasts(now) || p.count > 0 && now.Before(p.patience) {
		return false
	}
	p.patience = now.Add(hangLimit << min(p.count, maxDoubling))
	p.count++
	return true
}

// postpone begins a longer pause, unless one lasts.
func (p *probes) postpone(now time.Time) {
	if !p.pause.lasts(now) {
		p.pause.begin(now)
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
