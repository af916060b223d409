package driver

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// opening remembers what a server says first on a connection. Go-redis takes every error reply to
// HELLO for that of an old server, and goes on. A server that refuses connections has closed it by
// then, and without this the call would say so only: EOF or broken pipe.
type opening struct {
	addr  string                 // of the server
	begun atomic.Bool            // something was read
	said  atomic.Pointer[string] // an error reply that is all that was read
}

func (o *opening) read(b []byte) {
	switch {
	case len(b) == 0:
	case o.begun.Swap(true):
		o.said.Store(nil)
	case b[0] == '-':
		line, _, _ := strings.Cut(string(b[1:]), "\r\n")
		o.said.Store(&line)
	}
}

// refusal is the error of a server that takes no commands on this connection. Nothing is written on
// it from then on, so nothing of a call was sent.
func (o *opening) refusal() error {
	if said := o.said.Load(); said != nil && isTurnedAway(*said) {
		return &ReplyError{Addr: o.addr, Text: *said, Connecting: true}
	}
	return nil
}

// explain adds to the end of the connection what the server said before it.
func (o *opening) explain(end error) error {
	said := o.said.Load()
	if said == nil {
		return end
	}
	if refused := o.refusal(); refused != nil {
		return refused
	}
	text, _, _ := strings.Cut(*said, argsQuoted)
	return answered{fmt.Errorf("%w; the server answered only %q, to the first command", end, text)}
}

// answered is the end of a connection on which the server had said something.
type answered struct{ error }

func (a answered) Unwrap() error { return a.error }

// IsTurnedAway tells that the server refuses the connection, and has closed it.
func IsTurnedAway(err error) bool {
	reply, ok := errors.AsType[*ReplyError](err)
	return ok && reply.turnedAway()
}

// isTurnedAway tells that a server sent text when it closed a connection at once: it has too many,
// or is in protected mode. Nothing that was sent on the connection is read.
func isTurnedAway(text string) bool { return isFull(text) || isProtected(text) }

func isFull(text string) bool { return strings.HasPrefix(text, "ERR max number of clients reached") }

func isProtected(text string) bool {
	return strings.HasPrefix(text, "DENIED Redis is running in protected mode")
}
