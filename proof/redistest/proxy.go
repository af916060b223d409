package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy stands between a client and a server. It understands enough of RESP, in both versions, to
// know which reply belongs to which request: pipelined or not, with pushes, pub/sub and
// replication. It does not understand inline commands and CLIENT REPLY.
type Proxy struct {
	tb       testing.TB
	listener net.Listener
	gate     gate
	running  sync.WaitGroup

	raw   bool         // it passes bytes of any protocol
	delay atomic.Int64 // of what the server sends

	mu     sync.Mutex
	target string
	ended  bool
	links  map[*link]struct{}
	rules  []*ActiveRule
	seen   []string
}

// NewProxy listens on a free loopback port and connects each client to target. If
// the target refuses, the client's connection is reset. The proxy and all its
// connections end with the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	return newProxy(tb, target, false)
}

// NewRelay is a Proxy for a server with any protocol over TCP. It sees no commands, so rules do
// nothing.
func NewRelay(tb testing.TB, target string) *Proxy {
	tb.Helper()
	return newProxy(tb, target, true)
}

func newProxy(tb testing.TB, target string, raw bool) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	p := &Proxy{tb: tb, listener: listener, raw: raw, target: target, links: map[*link]struct{}{}}
	p.gate.set(true)
	p.running.Go(p.accept)
	tb.Cleanup(p.end)
	return p
}

// Lead makes the proxy connect new clients to another target. Open connections stay with the old
// one.
func (p *Proxy) Lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Leads returns the address to which the proxy connects new clients.
func (p *Proxy) Leads() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Addr returns the host:port for the client.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Add makes the proxy obey a rule from the next command on. If several rules match, each counts the
// command, and the one that was added first applies.
func (p *Proxy) Add(rule Rule) *ActiveRule {
	isDelay := rule.Fault == DelayRequest || rule.Fault == DelayReply
	isReply := rule.Fault == Refuse || rule.Fault == Answer
	if rule.Fault < LoseRequest || rule.Fault > Answer || isDelay != (rule.Delay > 0) || isReply != (rule.Reply != "") {
		panic(fmt.Sprintf("redistest: no such rule: %v with a delay of %v and the reply %q", rule.Fault, rule.Delay, rule.Reply))
	}
	a := &ActiveRule{Rule: rule, proxy: p, fired: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, a)
	return a
}

// BlackHole with true stops all connections in both directions; not even the end of a connection
// passes. New connections are accepted and stay silent. It returns when nothing passes any more.
// BlackHole(false) lets everything that was withheld go on in its order.
func (p *Proxy) BlackHole(on bool) { p.gate.set(!on) }

// CutAll resets every open connection and drops what was withheld on it. Requests that were already
// forwarded are still executed. The proxy may accept a connection a moment after the client's dial
// has returned, and does not reset it before.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Delay makes a relay hold up what the server sends: d is the time of a round trip from then on.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Forsake does to the open connections what a NAT does to those it has forgotten: nothing passes on
// them any more, and the client is told nothing, not even that the server closes. New connections
// work. It returns how many there were.
func (p *Proxy) Forsake() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.mu.Lock()
		l.silent, l.forgotten = true, true
		l.mu.Unlock()
	}
	return len(p.links)
}

// Open returns the number of connections. A connection whose client has left counts until all that
// the client has sent is done.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Seen returns the names, in upper case, of all commands that have arrived, in their order, whether
// or not they met a fault. On a connection that withholds a command, later commands have not
// arrived.
func (p *Proxy) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// Forget empties the list of Seen and Count, so that it does not grow for ever.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = nil
}

// Count returns how often a command was seen.
func (p *Proxy) Count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, s := range p.seen {
		if s == name {
			n++
		}
	}
	return n
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.open(conn.(*net.TCPConn))
	}
}

func (p *Proxy) open(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		client.Close()
		return
	}
	l := &link{proxy: p, client: client}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	p.links[l] = struct{}{}
	p.running.Go(func() {
		l.run()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}

// end closes everything and waits for every goroutine.
func (p *Proxy) end() {
	p.listener.Close()
	p.mu.Lock()
	p.ended = true
	for l := range p.links {
		l.end()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// arrived records a command and returns the rule for it, if any.
func (p *Proxy) arrived(args []string) (name string, rule *ActiveRule) {
	name = strings.ToUpper(args[0])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, name)
	for _, r := range p.rules {
		if r.matches(name, args) && rule == nil {
			r.taken++
			rule = r
		}
	}
	return name, rule
}

// A gate lets bytes pass while it is open.
type gate struct {
	passing sync.RWMutex  // held for reading while bytes pass
	opened  chan struct{} // closed while the gate is open
}

func (g *gate) set(open bool) {
	g.passing.Lock()
	defer g.passing.Unlock()
	if g.opened == nil || g.isOpen() && !open {
		g.opened = make(chan struct{})
	}
	if open && !g.isOpen() {
		close(g.opened)
	}
}

func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// pass runs move as soon as the gate is open, but not after the end of ctx.
func (g *gate) pass(ctx context.Context, move func()) {
	for ctx.Err() == nil {
		g.passing.RLock()
		if g.isOpen() {
			move()
			g.passing.RUnlock()
			return
		}
		opened := g.opened
		g.passing.RUnlock()
		select {
		case <-opened:
		case <-ctx.Done():
		}
	}
}
