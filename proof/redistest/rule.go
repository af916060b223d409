package redistest

import (
	"fmt"
	"slices"
	"time"
)

// A Fault is what happens to one request or to its reply.
type Fault int

// The faults. After LoseRequest and LoseReply the connection stays open. Since replies come in
// order, nothing more comes back on it, but its later requests still reach the server. CutRequest
// and CutReply reset the client's connection.
const (
	LoseRequest  Fault = iota + 1 // the request never reaches the server
	CutRequest                    // reset before the request is forwarded
	LoseReply                     // the request is executed, its reply is lost
	CutReply                      // the request is executed, and a reset comes in place of its reply
	DelayRequest                  // forwarded after Rule.Delay, even if the client has left by then
	DelayReply                    // executed at once, answered after Rule.Delay
	Refuse                        // not executed, answered by the error Rule.Reply; a transaction around it fails too
	Answer                        // executed, and answered by Rule.Reply
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

	// Commands are the names to match, in upper case. The name of a script is EVAL or EVALSHA. With
	// no names all commands match, even those that a client sends to open a connection, such as
	// HELLO.
	Commands []string

	// Match, if set, must return true as well. The name in args is as the client wrote it. Match
	// must not call the Proxy.
	Match func(args []string) bool

	Nth   int // the number of the first matching command that meets the fault, from 1
	Times int // how many commands meet it; negative: all until Remove
}

// An ActiveRule is a Rule that a Proxy obeys.
type ActiveRule struct {
	Rule
	proxy *Proxy
	fired chan struct{}

	// Guarded by proxy.mu.
	matched, taken, done int
}

// Fired returns a channel that is closed when the fault has happened Times times, or once if Times
// is negative. The fault of a reply happens after the whole reply was read from the server, so the
// command has been executed. A delay happens when it begins.
//
// The channel stays open if the server never answers, or if the connection ends while the command
// is withheld.
func (a *ActiveRule) Fired() <-chan struct{} { return a.fired }

// Remove makes the Proxy forget the rule. A fault under way goes on to its end.
func (a *ActiveRule) Remove() {
	a.proxy.mu.Lock()
	defer a.proxy.mu.Unlock()
	a.proxy.rules = slices.DeleteFunc(a.proxy.rules, func(r *ActiveRule) bool { return r == a })
}

// matches counts the command if it matches, and tells whether it meets the fault.
func (a *ActiveRule) matches(name string, args []string) bool {
	if len(a.Commands) > 0 && !slices.Contains(a.Commands, name) || a.Match != nil && !a.Match(args) {
		return false
	}
	a.matched++
	return a.matched >= a.Nth && (a.Times < 0 || a.taken < max(a.Times, 1))
}

// happened is called for every fault that has happened.
func (a *ActiveRule) happened() {
	a.proxy.mu.Lock()
	defer a.proxy.mu.Unlock()
	if a.done++; a.done == max(a.Times, 1) {
		close(a.fired)
	}
}

// fault returns zero if a is nil: no rule applies to the command.
func (a *ActiveRule) fault() Fault {
	if a == nil {
		return 0
	}
	return a.Fault
}
