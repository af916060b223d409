package driver

import (
	"fmt"
	"net"
	"time"
)

// Back is what a server that was restarted says of itself, on one connection.
type Back struct {
	Run   string    // its run_id
	Clock time.Time // its wall clock
	Asked time.Time // before the question for both was sent
	Read  time.Time // when the answer had come
	Wrong string    // a setting with which it may forget; empty: none
}

// Exact tells that the clock is known well enough.
func (b Back) Exact() bool { return b.Read.Sub(b.Asked) <= maxStep/2 }

// Unread tells that the clock of a server was not read by [Quarantine.Read] yet.
func (q *Quarantine) Unread() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.endpoints {
		return len(q.endpoints) == 1 && !e.clocks.exact && e.last.run != ""
	}
	return false
}

// Read is told of the clock of a server that was not restarted, for the next time that it is.
func (q *Quarantine) Read(b Back) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.endpoints {
		if e.last.run == b.Run {
			e.clocks.note(false, b.Clock, b.Read)
			e.clocks.exact = true
		}
	}
}

// Doubt is for a Store that was not told that the server forgets nothing.
func (q *Quarantine) Doubt() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.doubted = true
}

// Firm is e, with the reason why the quarantine is not cut short.
func (e *QuarantineError) Firm(why error) *QuarantineError {
	firm := *e
	firm.firm = why
	return &firm
}

// Lift ends the quarantine of a server that was declared to forget nothing, unless something speaks
// against it: the error says what. What the server shows now proves nothing about what it kept before, so the
// declaration is needed. Lift refuses if a setting of the server is another one now, if it was
// promoted or has loaded what another master had saved, if its connections have ever led to another
// address, if it was up while the server before it still answered, if another quarantine had not ended,
// and if its clock has gone ahead by more than maxStep: a server that was down meanwhile finds its locks
// expired. It is asked once for each quarantine.
//
// A clock that was set back is no reason: locks live longer then.
func (q *Quarantine) Lift(b Back) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.endpoints {
		if e.last.run == b.Run && !e.changed.IsZero() {
			if why := q.against(e, b); why != "" {
				e.firm = true
				return fmt.Errorf("that it forgets nothing is not believed, since %s", why)
			}
			e.changed = time.Time{}
			return nil
		}
	}
	return fmt.Errorf("it was restarted again")
}

// A holder with a TTL of a second has a margin of 12 ms: 1 % and 2 ms. So a step of maxStep may pass,
// and a reading may be older than another one whose clock is behind by as much.
const maxStep = 5 * time.Millisecond

func (q *Quarantine) against(e *endpoint, b Back) string {
	step, known := e.clocks.step(b.Clock, b.Asked)
	switch {
	case b.Wrong != "":
		return b.Wrong
	case q.doubted:
		return "another store on this client was not told so"
	case q.perNode || len(q.endpoints) > 1:
		return "the client has several servers"
	case e.firm:
		return "it was promoted or changed several times, or was up before"
	case !e.route.known():
		return "it may answer at another address"
	case !known:
		return "it tells no time"
	case step > maxStep:
		return fmt.Sprintf("its clock has gone ahead by %v", step.Round(time.Millisecond))
	}
	return ""
}

// route is the address that the connections of an endpoint lead to.
type route struct {
	addr   string
	varies bool
}

func (r *route) leads(to net.Addr) {
	if to == nil {
		r.varies = true
		return
	}
	r.varies = r.varies || r.addr != "" && r.addr != to.String()
	r.addr = to.String()
}

func (r *route) known() bool { return r.addr != "" && !r.varies }

// clocks compares the wall clock of a server with the monotonic one of this process.
type clocks struct {
	before, now reading
	exact       bool // now is as exact as can be
}

// reading is a wall clock, and when it was read at the latest.
type reading struct{ server, read time.Time }

func (c *clocks) note(isNew bool, server, read time.Time) {
	if isNew {
		c.before, c.now, c.exact = c.now, reading{}, false
	}
	r := reading{server, read}
	if late := c.now.ahead(r); c.now.server.IsZero() || late < 0 || late > maxStep {
		c.now = r // the one before was told later, or the clock has been set back since
	}
}

// ahead is how much more the server's clock was ahead of ours in r than in the later s. The time that an
// answer takes counts as well.
func (r reading) ahead(s reading) time.Duration {
	return s.read.Sub(r.read) - s.server.Sub(r.server)
}

// step is how much more the server's clock has advanced than ours, at most, from the last reading before it
// was restarted to one that began when it was asked.
func (c *clocks) step(server, asked time.Time) (step time.Duration, known bool) {
	if server.IsZero() || c.before.server.IsZero() {
		return 0, false
	}
	return -c.before.ahead(reading{server, asked}), true
}
