package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// A History is everything that happened in one schedule. Instants count from its beginning; Never
// is an instant that did not come. Tokens are random, so each is named by its worker and the number
// of the draw.
type History struct {
	Strategy Strategy
	Fault    Fault
	Seed     uint64
	RealTime bool // not in a bubble
	Handover bool // Clients hand leases over
	Kind     Kind
	Slots    bool // permits have slots

	Wants      []*Want
	Attempts   []*Attempt
	Holds      []*Hold
	Extensions []*Extension
	Releases   []*Release
	Several    []*Several
	Messages   []*Message
	Wakes      []*Wake
	States     []*State // of the nodes, in order on each node
	Strokes    []Stroke
	Deaths     []Death
	Jumps      []Jump        // in the order of time
	End        time.Duration // of the schedule
	Remains    []*State      // of the nodes at the end

	mu    sync.Mutex
	began time.Time
	names map[string]string // by token
	drawn map[string]int    // number of tokens, by worker
}

// Never is later than everything.
const Never = time.Duration(1<<63 - 1)

// A Want is the time in which a worker asks for a lock, in one or more calls.
type Want struct {
	Client, Worker, Key, Owner string
	Began, Ended               time.Duration
	Calls                      []Span // of Lock, which polls; TryLock does not
	Limited                    []Limited
}

// Limited is a call of Lock with WithWait.
type Limited struct {
	Span
	For           time.Duration
	Granted, Over bool // Over: it failed with ErrWaitLimit
}

// A Span is the time between two instants.
type Span struct{ From, To time.Duration }

func (s Span) length() time.Duration { return s.To - s.From }

// An Attempt is one call of Acquire of the strategy.
type Attempt struct {
	Client, Worker, Key, Token, Owner string
	Waits                             bool // the wait loop made it
	TTL                               time.Duration
	Began, Answered                   time.Duration
	Outcome                           Outcome
	T1, Expires                       time.Duration // of the lease
	Fence                             uint64
	// Expires has a monotonic reading; in a bubble no time has one
	Monotonic bool
}

// Outcome of an attempt.
type Outcome string

// The three outcomes, and an attempt that was never answered.
const (
	Granted Outcome = "granted"
	Held    Outcome = "held"
	Unknown Outcome = "unknown"
	Pending Outcome = "pending"
)

// A Hold is a Lock from its grant to its end. Final is its last Expires.
type Hold struct {
	Client, Worker, Key, Token, Owner string
	TTL                               time.Duration
	T1, Granted, Expires              time.Duration
	Unlocking, Unlocked               time.Duration // when Unlock was called and when it returned
	UnlockSays                        string        // the kind of its error
	Ended                             time.Duration // when its context ended
	Cause                             string
	Lost                              locker.LostReason // empty: it was not lost
	Final                             time.Duration
	Abandoned                         time.Duration // by a worker that never unlocks
	Keep                              time.Duration // the minimum hold; 0: none
	Work                              Work          // of a Do with a minimum hold
	Slot                              int           // of a permit, if the schedule has slots
}

// Work is how the work of a Do has ended.
type Work string

// The ends of a work. One that did not end is of a process that died.
const (
	NotDone Work = ""
	Done    Work = "done"
	Failed  Work = "failed"
)

// Several is one call of DoAll. An instant that did not come is Never.
type Several struct {
	Client, Worker   string
	Keys             []string // as they were given
	Began, Ended     time.Duration
	Called, Returned time.Duration // the work
	CtxEnded         time.Duration // of the work
	Tokens           []string      // of the locks, in their order
	Over             bool          // it failed with ErrWaitLimit
}

// An Extension is one call of Extend of the strategy.
type Extension struct {
	Token           string
	TTL             time.Duration
	Began, Answered time.Duration
	Before, After   time.Duration // Expires of the lease given and of the one returned
	Done            bool
	Says            string
}

// A Release is one call of Release of the strategy.
type Release struct {
	Token          string
	Sent, Answered time.Duration
	Says           string
}

// A Message is one call of a store over the network.
type Message struct {
	Client, Worker, Op, Key, Token string
	Waiter                         string // the waiter that has a position or wants one
	Group                          string // of the hold, with its Limit
	Limit                          int
	InOrder                        bool
	RoundTrip                      time.Duration // that the waiter tells
	Node                           int
	TTL                            time.Duration
	Sent, Answered                 time.Duration
	Arrived                        []time.Duration // of each copy that was carried out
	Reply                          string          // what the caller was told
	Fence                          uint64          // the number of a grant
	Position                       int             // the position of the waiter
	Left                           time.Duration   // how long the key is held
	Kind                           Reply
	Trouble                        string // what the network does to it; empty: nothing

	turn *turn // the waiter that leaves the queue
}

// A Wake is a message to one waiter.
type Wake struct {
	Node        int
	Key, Waiter string
	Sent        time.Duration
	Arrived     []time.Duration
	Trouble     string
}

// Reply is the kind of an answer.
type Reply byte

// The replies to a Message.
const (
	Silence Reply = iota
	Yes           // it was done
	No            // the key was held, or not found
	Fails         // an error: the outcome is unknown
)

// A State is what a key of a node has after a command or a fault.
type State struct {
	At                time.Duration
	Node              int
	Key               string
	Op, Token, Waiter string // of the command
	Group             string // of the hold that it asks for, with its Limit
	Limit             int
	InOrder, Joins    bool          // it asks in order; its Locker does, but it joins the lease before
	RoundTrip         time.Duration // that its waiter tells
	Failed            bool          // it had no effect
	TTL               time.Duration
	OK                bool
	Before            string        // the value before, as the name of its token; empty: none
	Was               bool          // there was a value before
	Until             time.Duration // when it would have ended
	After             string        // the value after
	Is                bool
	Ends              time.Duration // when it will end; Never: it has no expiry
	// the waiter that the key was reserved for before, and after
	WasFor, For           string
	Position              int           // that Waiter was given
	Shift                 time.Duration // how far the clock jumped
	Blocked, BlockedUntil time.Duration // the node grants nothing between these
}

// A Stroke is one fault of a node, of a process, or, if it has both, of the network between them.
type Stroke struct {
	At     time.Duration
	Node   int
	Client string
	What   string
	Ends   time.Duration
}

// between tells whether the fault concerns messages of the process to the node.
func (s Stroke) between(client string, node int) bool {
	return (s.Client == "" || s.Client == client) && (s.Node == 0 || s.Node == node)
}

// A Death is the end of a process, with all that its workers held.
type Death struct {
	At     time.Duration
	Client string
}

// A Jump is one of the wall clock of a process.
type Jump struct {
	At     time.Duration
	Client string
	By     time.Duration
}

func (h *History) now() time.Duration { return time.Since(h.began) }

func (h *History) since(t time.Time) time.Duration {
	if t.IsZero() {
		return Never
	}
	return t.Sub(h.began)
}

// name returns the name of a token. A token that no worker drew, such as a stamp, names itself.
func (h *History) name(token string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name, known := h.names[token]; known {
		return name
	}
	return token
}

func (h *History) nameNew(token, worker string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name, known := h.names[token]; known {
		return name
	}
	h.drawn[worker]++
	name := fmt.Sprintf("%s#%d", worker, h.drawn[worker])
	h.names[token] = name
	return name
}

// add appends a record.
func add[T any](h *History, to *[]T, what T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*to = append(*to, what)
}

// note changes a record.
func (h *History) note(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// settle sorts the records, so that their order does not depend on that of goroutines.
func (h *History) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(h.Wants, func(a, b *Want) int { return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.Worker, b.Worker)) })
	slices.SortFunc(h.Attempts, func(a, b *Attempt) int {
		return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.Token, b.Token))
	})
	slices.SortFunc(h.Holds, func(a, b *Hold) int { return cmp.Or(cmp.Compare(a.Granted, b.Granted), cmp.Compare(a.Token, b.Token)) })
	slices.SortFunc(h.Several, func(a, b *Several) int { return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.Worker, b.Worker)) })
	slices.SortFunc(h.Extensions, func(a, b *Extension) int {
		return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.Token, b.Token))
	})
	slices.SortFunc(h.Releases, func(a, b *Release) int { return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Token, b.Token)) })
	slices.SortFunc(h.Messages, func(a, b *Message) int {
		return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Token, b.Token), cmp.Compare(a.Op, b.Op),
			cmp.Compare(a.Client, b.Client), cmp.Compare(a.Waiter, b.Waiter), cmp.Compare(a.Answered, b.Answered))
	})
	slices.SortFunc(h.Wakes, func(a, b *Wake) int { return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Waiter, b.Waiter)) })
	slices.SortStableFunc(h.States, func(a, b *State) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.At, b.At)) })
}
