// Package driver is for the authors of adapters: what the Redis family needs of a client library,
// and what it offers to an adapter. For a library that hands out connections, an adapter implements
// [Pool], and [OverPool] does the rest. For another library it implements [Executor], and [Pipeliner]
// if the library can send several commands in one round trip; it turns each error into a
// [*ReplyError] or, through [Fault], into a [*WireError]. It reports each new connection to a
// [Quarantine].
//
// Applications use an adapter, such as package goredis, and package redisstore. This package promises no
// compatibility: any version may change it.
package driver

import (
	"context"
	"time"
)

// Executor is all that the family needs of a client library: commands in, replies out, and a
// connection for wake-ups. Package goredis has an example.
//
// A reply is nil, an int64, a string or a []any of replies, where an element may be an error of
// whatever type. An error reply of the server is a [*ReplyError] with the server's address. Any
// other error goes through [Fault], which says what it means for the call.
//
// Two methods are optional. Endpoint() string returns the address of the server, if there is one
// server: see Store.Endpoint. Clustered() bool tells whether the client is one of a Redis Cluster,
// where PUBLISH counts only subscribers of the same node.
type Executor interface {
	// Do sends a command to the server that has its first key. The library may send it again after
	// a fault.
	Do(ctx context.Context, args ...any) (any, error)

	// Once is Do for a command that must not be sent twice.
	Once(ctx context.Context, args ...any) (any, error)

	// Pinned runs fn with a connection to the server that has key. Nothing else uses the connection
	// meanwhile. Keys that fn leaves watched are unwatched. Pinned returns the error of fn as it
	// is. It may run fn again on another server if fn returned MOVED: nothing was done then.
	Pinned(ctx context.Context, key string, fn func(Conn) error) error

	// Subscribe prepares a connection of its own for wake-ups; it need not open it yet.
	Subscribe(ctx context.Context) Subscription
}

// Pipeliner is an Executor of a client library that can send several commands in one round trip.
// With it, calls that are made at the same time share round trips.
type Pipeliner interface {
	Executor

	// DoAll and OnceAll are Do and Once for independent commands, in one round trip. They set Reply
	// and Err of each command to what Do would return. An error reply is the error of one command.
	// Any other error is the error of all commands that were not answered before it. OnceAll sends
	// no command twice.
	DoAll(ctx context.Context, commands []*Command)
	OnceAll(ctx context.Context, commands []*Command)

	// Lane returns a comparable value for the server that a command goes to; nil if there is only
	// one server. Commands of different lanes share no round trip, so a server that hangs delays
	// only its own commands. It is kept for good, with all that it refers to. Args are those of a
	// script, or of a command whose key comes first.
	Lane(ctx context.Context, args []any) any
}

// Command is one of several that are sent together, and its answer.
type Command struct {
	Args  []any
	Reply any
	Err   error
	Alone bool // the caller must send it alone: it was not done, or may be sent again
}

// Conn is one connection, for commands that depend on one another: WATCH and EXEC, or a write and
// WAIT.
type Conn interface {
	// Pipeline sends commands together, once, and returns a reply for each, in order. An error
	// reply of the server is a *ReplyError in the position of the reply. If the error is not nil,
	// some or all replies did not come.
	Pipeline(ctx context.Context, commands ...[]any) ([]any, error)
}

// Subscription is one connection that receives messages. It does not connect again by itself. If
// the library does, each channel is confirmed again. One goroutine calls Receive, another one the
// rest.
type Subscription interface {
	// Subscribe and Unsubscribe send a request for one channel; the answer comes through Receive,
	// in order.
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

// Ended returns the error of ctx. It is not nil as soon as the deadline has passed, even if the
// timer of ctx has not fired yet.
func Ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(end) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
