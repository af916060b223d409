package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// A History is everything that happened in one schedule. Instants are counted from its beginning; Never is one that did not
// come. Tokens are random, so they are named by who drew them and the number of the draw.
type History struct {
	Strategy Strategy
	Fault    Fault
	Seed     uint64
	RealTime bool // not in a bubble
	Handover bool // Clients hand leases over

	Wants      []*Want
	Attempts   []*Attempt
	Holds      []*Hold
	Extensions []*Extension
	Releases   []*Release
	Messages   []*Message
	Wakes      []*Wake
	States     []*State // of the nodes, in the order in which they came about on each
	Strokes    []Stroke
	Deaths     []Death
	Jumps      []Jump        // in the order of time
	End        time.Duration // when nothing was left to happen
	Remains    []*State      // what the nodes had then

	mu    sync.Mutex
	began time.Time
	names map[string]string // of tokens
	drawn map[string]int    // tokens, by worker
}

// Never is later than everything.
const Never = time.Duration(1<<63 - 1)

// A Want is the time in which a worker asks for a lock, with one call or several.
type Want struct {
	Client, Worker, Key, Owner string
	Began, Ended               time.Duration
	Calls                      []Span // of Lock, which polls; TryLock does not
	Limited                    []Limited
}

// Limited is a call of Lock that had WithWait, and said so if that was over.
type Limited struct {
	Span
	For           time.Duration
	Granted, Over bool
}

// A Span is from an instant to another.
type Span struct{ From, To time.Duration }

func (s Span) length() time.Duration { return s.To - s.From }

// An Attempt is one call of Acquire of the strategy.
type Attempt struct {
	Client, Worker, Key, Token, Owner string
	Waits                             bool // made by the wait loop
	TTL                               time.Duration
	Began, Answered                   time.Duration
	Outcome                           Outcome
	T1, Expires                       time.Duration // of the lease
	Fence                             uint64
	Monotonic                         bool // Expires has a monotonic reading; in a bubble no time has one
}

// Outcome of an attempt.
type Outcome string

// The three outcomes, and an attempt that was never answered.
const (
	Granted Outcome = "granted"
	Refused Outcome = "refused"
	Unknown Outcome = "unknown"
	Pending Outcome = "pending"
)

// A Hold is a Lock from its grant to its end. Final is what its Expires was at last.
type Hold struct {
	Client, Worker, Key, Token, Owner string
	TTL                               time.Duration
	T1, Granted, Expires              time.Duration
	Unlocking, Unlocked               time.Duration // when Unlock was called and when it returned
	UnlockSays                        string        // its error
	Ended                             time.Duration // when its context did
	Cause                             string
	Lost                              locker.LostReason // empty: it was not lost
	Final                             time.Duration
	Abandoned                         time.Duration // by an owner who never unlocks
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

// A Message is one call of a store through the network.
type Message struct {
	Client, Worker, Op, Key, Token string
	Waiter                         string // who has a place or wants one
	Node                           int
	TTL                            time.Duration
	Sent, Answered                 time.Duration
	Arrived                        []time.Duration // of each copy that was carried out
	Reply                          string          // what the caller was told
	Fence                          uint64          // and the number of a grant
	Position                       int             // and his place
	Left                           time.Duration   // and how long the key is another's
	Kind                           Reply
	Trouble                        string // what the network does with it; empty: nothing

	turn *turn // of who gives up his place
}

// A Wake is a message to one waiter.
type Wake struct {
	Node        int
	Key, Waiter string
	Sent        time.Duration
	Arrived     []time.Duration
	Trouble     string
}

// Reply is what a caller was told in one word.
type Reply byte

// The replies to a Message.
const (
	Silence Reply = iota
	Yes           // it was done
	No            // the store refused, or did not find it
	Fails         // an error: nobody knows
)

// A State is what lies under a key of a node after a command or a fault.
type State struct {
	At                    time.Duration
	Node                  int
	Key                   string
	Op, Token, Waiter     string // what brought it about
	TTL                   time.Duration
	OK                    bool
	Before                string // the token that lay there, or another text; empty: nothing
	Was                   bool
	Until                 time.Duration // when it would have ended
	After                 string
	Is                    bool
	Ends                  time.Duration // when it will end: Never if it has no expiry
	WasFor, For           string        // the waiter for whom it was reserved, and is
	Position              int           // that Waiter was given
	Shift                 time.Duration // the clock has jumped by that much
	Blocked, BlockedUntil time.Duration // the node refuses everyone meanwhile
}

// A Stroke is a fault that befalls a node, a process, or if it has both what lies between the two.
type Stroke struct {
	At     time.Duration
	Node   int
	Client string
	What   string
	Ends   time.Duration
}

// between tells whether it concerns what the process sends to the node.
func (s Stroke) between(client string, node int) bool {
	return (s.Client == "" || s.Client == client) && (s.Node == 0 || s.Node == node)
}

// A Death is the end of a process, with all that its workers held.
type Death struct {
	At     time.Duration
	Client string
}

// A Jump sets the wall clock of a process.
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

// name gives a token its name. A token that nobody has drawn here, such as a stamp, is its own.
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

// add appends what is recorded.
func add[T any](h *History, to *[]T, what T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*to = append(*to, what)
}

// note changes what was recorded.
func (h *History) note(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// settle puts what goroutines recorded side by side into an order that does not depend on theirs.
func (h *History) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(h.Wants, func(a, b *Want) int { return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.Worker, b.Worker)) })
	slices.SortFunc(h.Attempts, func(a, b *Attempt) int {
		return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.Token, b.Token))
	})
	slices.SortFunc(h.Holds, func(a, b *Hold) int { return cmp.Or(cmp.Compare(a.Granted, b.Granted), cmp.Compare(a.Token, b.Token)) })
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
