package redisstore

import (
	"context"
	"time"
)

// Executor is all that the family asks of a client library: commands in, replies out, and a connection for wake-ups.
// An adapter is a screenful; package goredis is one.
//
// A reply is nil, an int64, a string or a []any of replies, where an element may be an error of
// whatever type. An error reply of the server is a [*ReplyError] with the server's address. Any
// other error goes through [Fault], which says what it means for the call.
//
// One that has one server may name it by a method Endpoint() string: see [Store.Endpoint]. One that
// may be connected to a cluster has a method Clustered() bool as well: there PUBLISH does not count
// all who have heard.
type Executor interface {
	// Do sends a command to the server that has its first key; the library may send it again after a fault.
	Do(ctx context.Context, args ...any) (any, error)

	// Once is Do for a command that must not be sent twice.
	Once(ctx context.Context, args ...any) (any, error)

	// Pinned runs fn with a connection that nothing else uses meanwhile, to the server that has key. What fn left
	// watched is unwatched. It returns fn's error as it is. It may run fn again on another server if fn returned the
	// reply of a cluster that key is not on this one (MOVED): nothing was done then.
	Pinned(ctx context.Context, key string, fn func(Conn) error) error

	// Subscribe prepares a connection of its own for wake-ups; it need not open it yet.
	Subscribe(ctx context.Context) Subscription
}

// Pipeliner is an Executor of a client library that can send several commands in one round trip. With it, calls that are made
// at the same time share round trips.
type Pipeliner interface {
	Executor

	// DoAll and OnceAll are Do and Once for commands that have nothing to do with one another, in one round trip. They
	// set Reply and Err of each to what Do would return. An error reply to one says nothing of the others; any other error
	// is that of all commands which were not answered before it. OnceAll sends none of them twice.
	DoAll(ctx context.Context, commands []*Command)
	OnceAll(ctx context.Context, commands []*Command)

	// Lane names, by something comparable, the server that a command goes to; nil if there is only one. Commands of
	// different lanes share no round trip, so that a server that hangs keeps none waiting but those who want it.
	// Args are those of a script, or of a command whose key comes first.
	Lane(ctx context.Context, args []any) any
}

// Command is one of several that are sent together, and its answer.
type Command struct {
	Args  []any
	Reply any
	Err   error
	Alone bool // its caller is to send it by itself: it was not carried out, or may be sent again
}

// Conn is one connection, for commands that depend on one another: WATCH and EXEC, or a write and WAIT.
type Conn interface {
	// Pipeline sends commands together, once, and returns a reply for each, in order. An error reply of the server is
	// a *ReplyError in the place of the reply; the error says that some or all replies did not come.
	Pipeline(ctx context.Context, commands ...[]any) ([]any, error)
}

// Subscription is one connection that hears messages. It does not connect again by itself, or if the library insists,
// each channel is confirmed again. Receive is called by one goroutine, all else by another.
type Subscription interface {
	// Subscribe and Unsubscribe send a request for one channel; the answer comes through Receive, in order.
	Subscribe(channel string) error
	Unsubscribe(channel string) error
	// Ping asks for an EventPong.
	Ping() error
	// Receive blocks for the next event. A permanent *ReplyError refuses the oldest unanswered
	// request and leaves the connection usable; after any other error the connection is closed, and
	// another one is tried.
	Receive() (Event, error)
	// Close ends the connection, and a Receive that is under way.
	Close() error
}

// Event is what arrives on a Subscription.
type Event struct {
	Kind    EventKind
	Channel string
	Payload string // of an EventMessage
}

// EventKind tells events apart.
type EventKind int

// The kinds of events.
const (
	EventPong EventKind = iota
	EventSubscribed
	EventUnsubscribed
	EventMessage
)

// Ended is for adapters: the error of ctx, or what it will be as soon as its timer has had its turn.
func Ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
