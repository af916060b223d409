package driver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/internal/info"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
)

// Quarantine keeps a server that may have forgotten locks from granting them again. It knows which
// server answers behind each endpoint of one client: an address, or the name of a Sentinel's set.
// An adapter reports each new connection ([Quarantine.Track], [Quarantine.Saw]). Each Store on that
// client asks before a grant is sent ([Quarantine.Refused]), and again when the grant is answered.
//
// A server is a run_id with a replication id. Quarantine begins when an endpoint shows another
// server than the last time, or a replica that was promoted in place of a master which this process
// used. It lasts 1.01 times the longest TTL (redisstore.WithMaxTTL) and a second, from that
// observation, and then a random part of a second: 31.3 s to 32.3 s by default. It refuses grants
// only: renewals and releases compare the token.
//
// A node of a cluster may come back at another address. So a node that was started after this Quarantine was
// made is in quarantine as well, for as long from its start, unless it is the first master that this Quarantine
// saw. A node that is new to the cluster looks the same.
//
// Not noticed: a cluster that gives the slots of a lost node to others, which have none of its locks.
type Quarantine struct {
	born    time.Time
	contact atomic.Int64 // when a server last answered, in nanoseconds since born
	loud    atomic.Bool  // an endpoint may refuse grants: look
	perNode bool

	mu        sync.Mutex
	maxTTL    time.Duration // the longest of the Stores
	doubted   bool          // one of them was not told that the server forgets nothing
	strict    time.Duration // the longest of the Stores; 0: none has WithQuarantine
	endpoints map[string]*endpoint
}

// endpoint is what a client takes for one server.
type endpoint struct {
	name    string
	conns   map[*tracked]bool
	last    server        // the master that was seen last; zero: none
	started time.Time     // of last, at the latest
	earlier []server      // masters before it
	several bool          // last is one of them
	changed time.Time     // quarantine counts from here; zero: it never began
	why     string        // it began
	jitter  time.Duration // of that quarantine
	untold  error         // the last connection did not tell how long the server is up
	demoted string        // the run_id of a server that was seen as a replica since
	replica error         // the last connection led to a replica
	probe   time.Time     // when one attempt may look again whether it still does
	route   route         // where the connections lead
	clocks  clocks        // of last, and of the server before it
	firm    bool          // this quarantine is not cut short, or it was tried: see Lift
}

// server is what INFO tells of a master.
type server struct{ run, replid, replid2 string }

// promoted tells that it was a replica before, or has loaded what a master had saved.
func (s server) promoted() bool { return s.replid2 != "" && s.replid2 != noReplid }

const (
	maxJitter      = time.Second            // so that the clients of a server do not come back at once
	replicaPause   = 100 * time.Millisecond // between two looks at a replica
	rememberedPast = 8                      // masters of an endpoint
	noReplid       = "0000000000000000000000000000000000000000"

	whyChanged = "it was restarted, replaced or promoted since this client used it (see redisstore.WithMaxTTL and redisstore.WithoutQuarantine)"
	whyJoined  = "it was started since this client was made, as a node that was restarted (see redisstore.WithMaxTTL and redisstore.WithoutQuarantine)"
	whyStrict  = "it was started a short while ago (see redisstore.WithQuarantine)"
)

// NewQuarantine makes a Quarantine. An adapter makes one for each client, and gives it to the
// stores on that client as an option (redisstore.Observed).
func NewQuarantine() *Quarantine {
	return &Quarantine{born: time.Now(), endpoints: map[string]*endpoint{}}
}

// PerNode is for an adapter that calls [Quarantine.Refuses] for each grant that it sends to a node
// of a cluster. Without it, a Store refuses all grants while one endpoint does. Call it before q is
// used.
func (q *Quarantine) PerNode() { q.perNode = true }

// Attach is for a Store: its longest TTL, and the strict time of WithQuarantine or zero.
func (q *Quarantine) Attach(maxTTL, strict time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.maxTTL, q.strict = max(q.maxTTL, maxTTL), max(q.strict, strict)
	q.loud.Store(true)
}

// Track returns a connection to use in place of c. It is closed when endpoint shows another server.
func (q *Quarantine) Track(endpoint string, c net.Conn) net.Conn {
	n := netConn{c, q.TrackCloser(endpoint, c.Close)}
	q.mu.Lock()
	q.at(endpoint).route.leads(c.RemoteAddr())
	q.mu.Unlock()
	if s, ok := c.(syscall.Conn); ok { // go-redis tests idle connections by it
		return sysConn{n, s}
	}
	return n
}

// TrackCloser is Track for a connection that is no net.Conn. Call what it returns in place of end.
func (q *Quarantine) TrackCloser(name string, end func() error) func() error {
	t := &tracked{end}
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.at(name)
	e.conns[t] = true
	return func() error {
		q.mu.Lock()
		delete(e.conns, t)
		q.mu.Unlock()
		return end()
	}
}

type tracked struct{ end func() error }

type netConn struct {
	net.Conn
	end func() error
}

func (c netConn) Close() error { return c.end() }

type sysConn struct {
	netConn
	syscall.Conn
}

func (q *Quarantine) at(name string) *endpoint {
	e := q.endpoints[name]
	if e == nil {
		e = &endpoint{name: name, conns: map[*tracked]bool{}}
		q.endpoints[name] = e
	}
	return e
}

// drop closes all connections of e. Closing TLS may take a while.
func (e *endpoint) drop() {
	conns := e.conns
	e.conns = map[*tracked]bool{}
	if len(conns) == 0 {
		return
	}
	go func() {
		for c := range conns {
			_ = c.end() // nothing is expected of it any more
		}
	}()
}

// Saw is told what a new connection of endpoint leads to, before anything else is sent on it: the
// replies to INFO server and INFO replication, one behind the other, or the error of one of them.
// If it returns an error, the adapter closes the connection and returns that error to its caller.
func (q *Quarantine) Saw(name, reply string, err error) error {
	if err != nil && !isUntold(err) {
		if reply, ok := errors.AsType[*ReplyError](err); ok && reply.Addr == "" {
			reply.Addr = name // in the text below
		}
		return fmt.Errorf("INFO, which quarantine needs on a new connection: %w", err)
	}
	now, fields := time.Now(), info.Parse(reply)
	if info.Mode(fields) == "sentinel" {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.at(name)
	seen := server{fields["run_id"], fields["master_replid"], fields["master_replid2"]}
	if role := fields["role"]; role != "" && role != "master" {
		return q.sawReplica(e, role, seen.run, info.Mode(fields) == "cluster")
	}
	q.endBootstrap(seen)
	up, told := info.Uptime(fields)
	e.replica, e.untold = nil, nil
	if !told {
		e.untold = &untoldError{e.name, err}
	}
	changed, isNew := q.changed(e, seen), seen.run == "" || seen.run != e.last.run
	if changed {
		wasUp := now.Add(info.UptimeError - up).Before(q.contacted()) // while the one before it answered
		e.firm = now.Before(q.end(e)) || !isNew || !told || wasUp || seen.promoted() || e.several
		e.drop() // with the new one: an adapter can't always tell which it is
		e.why = whyChanged
		e.changed, e.jitter = q.from(now, up, told && !seen.promoted()), rand.N(maxJitter)
	}
	joined := !changed && told && e.last.run == "" && q.joined(e, seen.run, now.Add(info.UptimeError-up))
	if isNew {
		e.started = now.Add(-max(up-info.UptimeError, 0))
	}
	e.clocks.note(isNew, info.Clock(fields), now)
	if seen.run != "" {
		e.last, e.demoted = seen, ""
	}
	q.loud.Store(true)
	q.Answered(nil)
	if refused := q.refusal(e, false); refused != nil && (changed || joined || isNew && q.strict > 0) {
		return refused // what waits for this connection may be a grant
	}
	if changed {
		return e.quarantined(now, whyChanged, false)
	}
	return nil
}

// isUntold tells that a server answers, and does not tell what it is: it does not know INFO, or
// does not permit it. A wrong password is told by the next command as well, which says more.
func isUntold(err error) bool {
	reply, ok := errors.AsType[*ReplyError](err)
	if !ok || reply.turnedAway() {
		return false
	}
	switch code := reply.Code(); code {
	case "ERR", "NOPERM", "NOAUTH", "WRONGPASS":
		return true
	default:
		return code != strings.ToUpper(code) // words without a code
	}
}

// changed tells whether seen may have forgotten what this process has stored at e.
//
// A replication id also changes when a master gets its first replica, and when it has been without
// one for an hour. Then it has no second id. A replica that is promoted keeps the old id as its
// second.
func (q *Quarantine) changed(e *endpoint, seen server) bool {
	switch {
	case seen.run == "" || seen == e.last:
		return false
	case e.last.run == "":
		return seen.promoted() && q.used(seen.replid2)
	case e.last.run == seen.run && (e.last.replid == seen.replid || !seen.promoted() && e.demoted != seen.run):
		return false
	}
	e.several = slices.Contains(e.earlier, seen)
	if e.earlier = append(e.earlier, e.last); len(e.earlier) > rememberedPast {
		e.earlier = e.earlier[1:]
	}
	return true
}

// joined tells whether the master of a new endpoint may be a node of a cluster that was restarted since q was
// made, and begins its quarantine. It was started at start at the latest. A node that has two names has
// one state.
func (q *Quarantine) joined(e *endpoint, run string, start time.Time) bool {
	for _, other := range q.endpoints {
		if run != "" && other.last.run == run {
			e.firm, e.why, e.changed, e.jitter = other.firm, other.why, other.changed, other.jitter
			return !e.changed.IsZero()
		}
	}
	if run == "" || !q.hasMaster() || !start.After(q.born) {
		return false
	}
	if now := time.Now(); start.After(now) {
		start = now
	}
	e.firm, e.why = true, whyJoined
	e.changed, e.jitter = start, rand.N(maxJitter)
	return true
}

// used tells whether a master of this replication id was seen behind any endpoint.
func (q *Quarantine) used(replid string) bool {
	was := func(s server) bool { return s.replid == replid }
	for _, e := range q.endpoints {
		if was(e.last) || slices.ContainsFunc(e.earlier, was) {
			return true
		}
	}
	return false
}

// contacted is when a server last answered.
func (q *Quarantine) contacted() time.Time { return q.born.Add(time.Duration(q.contact.Load())) }

// from is when a quarantine that begins now counts from: the start of a server that has forgotten
// by a restart, if no server has answered this process since then. A replica that was promoted may
// lack what its master granted later.
func (q *Quarantine) from(now time.Time, up time.Duration, restarted bool) time.Time {
	if restarted && now.Add(-up-info.UptimeError).After(q.contacted()) {
		return now.Add(-max(up-info.UptimeError, 0))
	}
	return now
}

// sawReplica refuses a connection to a replica, since a promotion would not end it. The client of a
// cluster keeps such connections until it has found a master, or it could not begin with a replica.
func (q *Quarantine) sawReplica(e *endpoint, role, run string, cluster bool) error {
	e.demoted = run
	e.replica, e.probe = &replicaError{e.name, role}, time.Now().Add(replicaPause)
	if cluster && !q.hasMaster() {
		return nil
	}
	e.drop()
	q.loud.Store(true)
	return e.replica
}

func (q *Quarantine) hasMaster() bool {
	for _, e := range q.endpoints {
		if e.last.run != "" {
			return true
		}
	}
	return false
}

// endBootstrap drops the connections to replicas that a cluster's client has begun with.
func (q *Quarantine) endBootstrap(master server) {
	if master.run == "" || q.hasMaster() {
		return
	}
	for _, e := range q.endpoints {
		if e.replica != nil {
			e.drop()
		}
	}
}

// demote is told of a reply READONLY: a server was demoted and kept its connections. They might
// outlive the next promotion.
func (q *Quarantine) demote() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.endpoints {
		e.demoted = e.last.run
		e.drop()
	}
}

// Refuses returns why endpoint may not grant now, or nil. Sent says that the grant was sent, and
// answered.
func (q *Quarantine) Refuses(endpoint string, sent bool) error {
	if !q.loud.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.endpoints[endpoint]; e != nil {
		return q.refusal(e, sent)
	}
	return nil
}

// Refused is Refuses for a Store, which does not know the endpoint.
func (q *Quarantine) Refused(sent bool) error {
	if q.perNode || !q.loud.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	loud := false
	for _, e := range q.endpoints {
		if e.replica != nil && len(q.endpoints) > 1 {
			continue // of a cluster: nothing is granted there
		}
		if err := q.refusal(e, sent); err != nil {
			return err
		}
		loud = loud || e.replica != nil
	}
	q.loud.Store(loud)
	return nil
}

// end is when the quarantine of e ends; zero: there was none.
func (q *Quarantine) end(e *endpoint) time.Time {
	if e.changed.IsZero() {
		return time.Time{}
	}
	return e.changed.Add(q.maxTTL + q.maxTTL/100 + time.Second + e.jitter)
}

func (q *Quarantine) refusal(e *endpoint, sent bool) error {
	now := time.Now()
	if e.untold != nil && q.strict > 0 {
		return e.untold
	}
	if end := q.end(e); now.Before(end) {
		return e.quarantined(end, e.why, sent)
	}
	if end := e.started.Add(q.strict); q.strict > 0 && now.Before(end) {
		return e.quarantined(end, whyStrict, sent)
	}
	switch {
	case e.replica == nil || sent:
		return nil
	case now.Before(e.probe):
		return e.replica
	}
	e.probe = now.Add(replicaPause) // this attempt looks
	return nil
}

func (e *endpoint) quarantined(until time.Time, why string, sent bool) error {
	return &QuarantineError{Address: e.name, Until: until, why: why, several: e.several, sent: sent}
}

// Quiet tells that Refused will return nil. It is faster.
func (q *Quarantine) Quiet() bool { return !q.loud.Load() }

// Answered is for a Store, which calls it with the error of each call, or nil.
func (q *Quarantine) Answered(err error) {
	if err == nil {
		q.contact.Store(int64(time.Since(q.born)))
	} else if reply, ok := errors.AsType[*ReplyError](err); ok && reply.Code() == "READONLY" {
		q.demote()
	}
}

// Grants tells whether a command of a Store grants a lock.
func Grants(args []any) bool {
	switch args[0] {
	case "SET", "SETNX", "GETSET", "SETBIT":
		return true
	case "EVALSHA", "EVAL":
		return scripts.Grants(args)
	}
	return false
}

// QuarantineError refuses a grant: the server may have forgotten a lock that is still held. Its
// text has the time of day in the local time zone, as in the lines of a log beside it.
type QuarantineError struct {
	Address string    // of the server; the name of a Sentinel's set
	Until   time.Time // then it grants again

	why           string
	several, sent bool
	firm          error // why it is not cut short, though the server was declared to forget nothing
}

func (e *QuarantineError) Error() string {
	text := fmt.Sprintf("the server at %s is in quarantine until %s: %s, and may have forgotten locks that are held",
		e.Address, e.Until.Format(time.TimeOnly), e.why)
	if e.several {
		text = fmt.Sprintf("several servers answer at %s in turn, and would grant a lock twice: give each an address of its own", e.Address)
	}
	if e.firm != nil {
		text += "; " + e.firm.Error()
	}
	if e.sent {
		text += "; a grant that was on its way does not count"
	}
	return text
}

// Unsent says that nothing happened, so there is nothing to clean up.
func (e *QuarantineError) Unsent() bool { return !e.sent }

// Permanent says that repeating will not help.
func (e *QuarantineError) Permanent() bool { return e.several && !e.sent }

// ErrorType is "quarantined".
func (e *QuarantineError) ErrorType() string { return "quarantined" }

// replicaError is a connection that was dropped because it led to a replica.
type replicaError struct{ address, role string }

func (e *replicaError) Error() string {
	return fmt.Sprintf("the server at %s is a replica (role %s) and can't grant locks", e.address, e.role)
}

func (e *replicaError) Unsent() bool      { return true }
func (e *replicaError) ErrorType() string { return "replica" }

// untoldError is a server that does not tell what WithQuarantine needs to know.
type untoldError struct {
	address string
	cause   error
}

func (e *untoldError) Error() string {
	why := "its INFO has no uptime_in_seconds"
	if e.cause != nil {
		why = e.cause.Error()
	}
	return fmt.Sprintf("redisstore.WithQuarantine needs INFO of the server at %s, to know how long it has been up: %s", e.address, why)
}

func (e *untoldError) Unwrap() error     { return e.cause }
func (e *untoldError) Unsent() bool      { return true }
func (e *untoldError) Permanent() bool   { return true }
func (e *untoldError) ErrorType() string { return "quarantined" }
