package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

// commands are the calls of a node, and what a fault does to it.
type commands interface {
	backends.NumberedStore
	backends.FencedStore
	backends.OrderedStore
	backends.QueuedStore
	backends.LegacyStore
	backends.TransferStore
	backends.SharedTransferStore

	look(key string) (value string, left time.Duration, found bool)
	forget(key string)
	jump(d time.Duration)
}

// inMemory are the commands of the store in memory.
type inMemory struct{ *memory.LegacyStore }

func newMemory() commands { return inMemory{memory.New(memory.WithMaxTTL(maxTTL)).Legacy()} }

func (m inMemory) look(key string) (string, time.Duration, bool) { return m.Store.Get(key) }

// forget wakes nobody.
func (m inMemory) forget(key string)    { m.Set(key, "", -24*time.Hour) }
func (m inMemory) jump(d time.Duration) { m.Jump(d) }

// A node is a server, which may be down or pause.
type node struct {
	number int
	h      *History
	fresh  func() commands
	rate   float64 // by which its clock runs fast
	keys   []string

	mu          sync.Mutex
	store       commands
	life        int // counts its restarts; each breaks all connections
	down        bool
	paused      bool
	queue       []func() // messages that arrived during the pause
	quarantined bool     // it grants nothing
	unguarded   bool     // a defect: it always grants
	watches     []*subscription
	turns       []*turn
	counts      bool // it knows which processes are connected, and so which waiters it can wake
	forgotten   *atomic.Bool
	onTurn      func(*process)
}

type subscription struct {
	ctx  context.Context
	key  string
	wake func()
}

var (
	errBroken     = errors.New("connection reset by peer")
	errQuarantine = errors.New("server is in quarantine")
	errDown       = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
)

// begin gives the node an empty store.
func (n *node) begin() {
	if n.forgotten != nil {
		n.forgotten.Store(true)
	}
	n.store, n.forgotten = n.fresh(), new(atomic.Bool)
	if n.rate > 0 {
		n.store = fast{n.store, n.rate}
	}
}

// runFast sets the rate of the clock of a node before its first message.
func (n *node) runFast(rate float64) {
	n.rate = rate
	n.begin()
	n.struck(fmt.Sprintf("its clock runs %.1f %% fast", 100*rate), 0, func() {})
}

// granting are the commands that a node in quarantine refuses. Commands that compare the token go
// on.
var granting = []string{
	"SetNX", "SetNXQueued", "SetNXNumbered", "SetNXFenced", "Enter", "SetNXForever", "GetSet", "SetBit on", "SetBit off",
	"Transfer", "TransferHold",
}

// arrive carries out a copy of m, queues it or refuses it. It calls reply, except when the node
// restarts with the copy in its queue.
func (n *node) arrive(m *Message, life int, do func(commands) answer, reply func(answer)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.down:
		reply(answer{err: errDown})
	case n.life != life:
		reply(answer{err: errBroken})
	case n.paused:
		n.queue = append(n.queue, func() { n.carryOut(m, do, reply) })
	default:
		n.carryOut(m, do, reply)
	}
}

func (n *node) carryOut(m *Message, do func(commands) answer, reply func(answer)) {
	if n.quarantined && slices.Contains(granting, m.Op) {
		reply(answer{err: errQuarantine})
		return
	}
	if m.turn != nil {
		n.leave(m.turn, true)
		n.h.note(func() { m.Arrived = append(m.Arrived, n.h.now()) })
		reply(answer{ok: true})
		return
	}
	before := n.see(m.Key)
	a := do(n.store)
	s := n.see(m.Key)
	s.Op, s.Token, s.TTL, s.OK = m.Op, m.Token, lasts(m.TTL, n.rate), a.err == nil && a.ok
	s.Before, s.Was, s.Until, s.WasFor, s.Waiter = before.After, before.Is, before.Ends, before.For, m.Waiter
	s.Position, s.Failed = a.Position, a.err != nil
	s.Group, s.Limit, s.InOrder, s.RoundTrip = m.Group, m.Limit, m.InOrder, m.RoundTrip
	s.Joins = m.Op == "Enter" && !m.InOrder && n.h.Strategy.HoldsInOrder
	n.h.note(func() {
		m.Arrived = append(m.Arrived, s.At)
		n.h.States = append(n.h.States, s)
	})
	n.noteTurn(s)
	reply(a)
}

// see returns the state of a key.
func (n *node) see(key string) *State {
	value, left, found := n.store.look(key)
	s := &State{At: n.h.now(), Node: n.number, Key: key, After: n.h.name(value), Is: found, Ends: Never}
	if waiter, reserved := reservedFor(value); reserved {
		s.For = n.h.name(waiter)
		s.After = "reserved for " + s.For
	}
	if found && left > 0 {
		s.Ends = s.At + left
	}
	return s
}

// remains returns the state of each key.
func (n *node) remains() (states []*State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range n.keys {
		states = append(states, n.see(key))
	}
	return states
}

// connection returns the life of the node that a message belongs to.
func (n *node) connection() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

func (n *node) watch(ctx context.Context, key string, wake func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watches = slices.DeleteFunc(n.watches, func(s *subscription) bool { return s.ctx.Err() != nil })
	n.watches = append(n.watches, &subscription{ctx, key, wake})
	_ = n.store.Watch(ctx, key, wake)
}

// pause stops the node as SIGSTOP does. Messages that arrive wait.
func (n *node) pause(d time.Duration) {
	n.struck(fmt.Sprintf("pauses for %v", d), d, func() { n.paused = true })
	time.AfterFunc(d, n.wakeUp)
}

// wakeUp ends the pause. It carries out each message that waits at an instant of its own: see
// leave.
func (n *node) wakeUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		n.paused = false
		return
	}
	n.queue[0]()
	n.queue = n.queue[1:]
	time.AfterFunc(time.Microsecond, n.wakeUp)
}

// restart kills the node and starts it after the time down, with or without its memory. Then it
// grants nothing for the time quarantine. Messages under way to it are lost.
func (n *node) restart(down time.Duration, forgets bool, quarantine time.Duration) {
	what := fmt.Sprintf("restarts for %v", down)
	if forgets {
		what += " and forgets"
	}
	if quarantine > 0 {
		what += fmt.Sprintf(", in quarantine for %v", quarantine)
	}
	n.struck(what, down+quarantine, func() {
		n.life++
		n.down, n.paused, n.queue = true, false, nil
		n.quarantined = quarantine > 0 && !n.unguarded
		if forgets {
			n.begin()
			n.saw("forgets", State{Blocked: n.h.now(), BlockedUntil: n.h.now() + down + quarantine})
		}
	})
	time.AfterFunc(down, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.down = false
		for _, s := range n.watches { // a client that subscribes again looks again
			if s.ctx.Err() == nil {
				if forgets {
					_ = n.store.Watch(s.ctx, s.key, s.wake)
				}
				s.wake()
			}
		}
		n.resubscribe(forgets)
	})
	if quarantine > 0 {
		life := n.connection()
		time.AfterFunc(down+quarantine, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.life == life {
				n.quarantined = false
			}
		})
	}
}

// forget loses all locks, as by eviction.
func (n *node) forget() {
	n.struck("forgets its locks", 0, func() {
		for _, key := range n.keys {
			n.store.forget(key)
		}
		n.saw("forgets", State{})
	})
}

// jump moves the clock of the node.
func (n *node) jump(d time.Duration) {
	n.struck(fmt.Sprintf("its clock jumps by %v", d), 0, func() {
		n.store.jump(d)
		n.saw("jumps", State{Shift: d})
	})
}

func (n *node) struck(what string, lasts time.Duration, do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := n.h.now()
	add(n.h, &n.h.Strokes, Stroke{At: at, Node: n.number, What: what, Ends: at + lasts})
	do()
}

// saw records the state of each key after a fault.
func (n *node) saw(what string, fault State) {
	for _, key := range n.keys {
		s := n.see(key)
		s.Op, s.Shift, s.Blocked, s.BlockedUntil = what, fault.Shift, fault.Blocked, fault.BlockedUntil
		add(n.h, &n.h.States, s)
	}
}
