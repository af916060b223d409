package redistest

import (
	"fmt"
	"slices"
	"time"
)

// A Fault is what happens to one request or to its reply.
type Fault int

// The faults. After LoseRequest and LoseReply the connection stays open, and since
// replies come in order, nothing more comes back on it, while its later requests
// still reach the server. CutRequest and CutReply reset the client's connection.
const (
	LoseRequest  Fault = iota + 1 // the request never reaches the server
	CutRequest                    // reset before the request is forwarded
	LoseReply                     // the request is executed, its reply is swallowed
	CutReply                      // the request is executed, then the reset comes instead of its reply
	DelayRequest                  // forwarded after Rule.Delay, even if the client has left by then
	DelayReply                    // executed at once, answered after Rule.Delay
	// not executed, answered by Rule.Reply, which is an error; a transaction around it is refused
	// as well
	Refuse
	Answer // executed, and answered by Rule.Reply
)

// String returns the name of the constant.
func (f Fault) String() string {
	names := []string{"LoseRequest", "CutRequest", "LoseReply", "CutReply", "DelayRequest", "DelayReply", "Refuse", "Answer"}
	if f < 1 || int(f) > len(names) {
		return fmt.Sprintf("Fault(%d)", int(f))
	}
	return names[f-1]
}

// A Rule says which commands meet which fault. The zero values mean: every command,
// from the first one on, once.
type Rule struct {
	Fault Fault
	Delay time.Duration // of DelayRequest and DelayReply
	Reply string        // of Refuse and Answer, as it is sent, such as "-BUSY\r\n"

	// Commands are the names to match, in upper case. Scripts go by EVAL or EVALSHA.
	// With none, also the commands match that a client sends by itself to open a
	// connection, such as HELLO.
	Commands []string

	// Match, if set, is asked too, with the name as the client wrote it. It must not
	// call the Proxy.
	Match func(args []string) bool

	Nth   int // the first matching command to meet the fault, from 1
	Times int // how many do; negative: all until Remove
}

// An ActiveRule is a Rule that a Proxy obeys.
type ActiveRule struct {
	Rule
	proxy *Proxy
	fired chan struct{}

	// Guarded by proxy.mu.
	matched, taken, done int
}

// Fired returns a channel that is closed when the fault has happened for the last of
// its Times, or for the first time if they have no number. A reply's fault happens
// after the whole reply was read from the server: the command has been executed.
// A delay happens when it begins.
//
// The channel stays open if the server never answers, or if the connection ends
// while the command is held.
func (a *ActiveRule) Fired() <-chan struct{} { return a.fired }

// Remove makes the Proxy forget the rule. A fault under way still takes its course.
func (a *ActiveRule) Remove() {
	a.proxy.mu.Lock()
	defer a.proxy.mu.Unlock()
	a.proxy.rules = slices.DeleteFunc(a.proxy.rules, func(r *ActiveRule) bool { return r == a })
}

// matches counts the command if the rule is about it, and reports whether its turn
// has come.
func (a *ActiveRule) matches(name string, args []string) bool {
	if len(a.Commands) > 0 && !slices.Contains(a.Commands, name) || a.Match != nil && !a.Match(args) {
		return false
	}
	a.matched++
	return a.matched >= a.Nth && (a.Times < 0 || a.taken < max(a.Times, 1))
}

// happened is called for every fault that came true.
func (a *ActiveRule) happened() {
	a.proxy.mu.Lock()
	defer a.proxy.mu.Unlock()
	if a.done++; a.done == max(a.Times, 1) {
		close(a.fired)
	}
}

// fault returns zero for a command that no rule took.
func (a *ActiveRule) fault() Fault {
	if a == nil {
		return 0
	}
	return a.Fault
}
