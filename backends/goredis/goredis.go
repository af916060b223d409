// Package goredis keeps locks in Redis through github.com/redis/go-redis/v9. What is sent and
// promised is the same for all client libraries: see package backends/redisstore. Below, client is
// go-redis.
//
// # Redis Cluster
//
// Calls follow a slot to where it has moved. While it is on its way (MIGRATING), some fail, with a
// *redisstore.ReplyError that is no refusal: they say neither that the lock is held nor that it is
// granted, and are good again when the slot has moved.
//   - A new grant that is numbered (packages fenced and redlock) or in order (package fair) fails with TRYAGAIN: it is about
//     two keys, and Redis touches two keys only where both are. Extensions and releases go on; a release then tells those
//     who watch, and nobody in a queue.
//   - What needs a connection of its own can't be led on by ASK, and fails with it where the key has left its server or
//     was not there: every call with redisstore.WithReplicas, those that compare with redisstore.WithoutScripts, and the
//     transactions of backends.LegacyStore.
package goredis

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client is what is needed of go-redis. Its Client (also from NewFailoverClient), ClusterClient and
// UniversalClient have it, and so have mocks of them. If it has Pipeline as well, as those three
// do, calls that are made at the same time share round trips.
//
// A Ring has it as well, and is refused: it leads a key to another shard when one does not answer,
// and that shard grants a lock which is held.
type Client interface {
	Process(ctx context.Context, cmd client.Cmder) error
	Watch(ctx context.Context, fn func(*client.Tx) error, keys ...string) error
	Subscribe(ctx context.Context, channels ...string) *client.PubSub
}

// New returns a store that uses c, with the options, the TLS and the credentials that c has.
// Whatever those are, locker.Client returns when its ctx is done; but a connection that hangs is
// given up sooner with the options that [Open] sets. The caller closes c. There is no quarantine
// for servers that may have forgotten locks, unless the options of c went through [Quarantine].
//
// A client with its own timeouts only (ContextTimeoutEnabled false, the default) may go on waiting
// for a reply after the ctx has ended; what that leaves is cleaned up when it gives up at last.
// While a server is down, every attempt on it is followed by attempts to clean up, for as long as
// the TTL, and go-redis writes a line to standard error for each failed dial, unless its
// logging.Disable or SetLogger was called.
//
// New adds a hook to c, which tests the connections that c makes from then on: PING is sent on one
// that was idle for over five seconds, before it is used again, and a dead one is closed. See
// driver.Idle.
//
// If the application uses up the connections of c, as by commands that block, a new lock waits for
// one, and fails a little before its ctx ends: nothing was sent. Renewals and releases go over the
// pool that go-redis has for pipelines. They wait too with redisstore.WithoutScripts, or if
// PipelinePoolSize is negative, or c has no Pipeline or no PoolStats: then give the locks a client
// of their own.
//
// With a Ring every call fails, and nothing is sent.
func New(c Client, opts ...redisstore.Option) *redisstore.Store {
	if e := driver.RefuseNil(c); e != nil {
		return redisstore.New(e, opts...)
	}
	if _, isRing := c.(*client.Ring); isRing {
		return redisstore.New(driver.Refuse(errRing), opts...)
	}
	e := newExecutor(c)
	testIdle(c)
	if one, ok := c.(interface{ Options() *client.Options }); ok {
		e.heard.TLS = one.Options().TLSConfig != nil
		if err := driver.CheckAddr(one.Options().Addr, ": use redis.ParseURL (go-redis)"); err != nil {
			return redisstore.New(driver.Refuse(err), opts...)
		}
	}
	if p, ok := c.(pipelined); ok {
		return redisstore.New(pipeliner{e, p}, opts...)
	}
	return redisstore.New(e, opts...)
}

// Open opens a client with options fit for locks, where o does not set its own, and returns a store
// on it together with the client, for the caller to close:
//   - the deadline of a ctx is honoured while a reply is awaited, and no read or write lasts over a second;
//   - at most one retry, of a command and of a dial: a lock that is late is no use;
//   - a connection that was idle for over a minute is not used again;
//   - a new connection costs three round trips, HELLO, INFO and the command: CLIENT SETINFO is left out, unless o has an
//     IdentitySuffix, and so is CLIENT MAINT_NOTIFICATIONS;
//   - a server that may have forgotten locks is in quarantine for a little more than the longest
//     TTL, which is 30 seconds by default (see [Quarantine], redisstore.WithMaxTTL and
//     redisstore.WithoutQuarantine);
//   - go-redis writes no line to standard error for a dial that fails, since the call returns the error.
//     Other clients of the program log as before. Such a dial counts as a connection that was opened and
//     closed again. Those that MinIdleConns begins at the start still have their lines.
//
// If o is nil, every call of the store and of the client fails.
func Open(o *client.Options, opts ...redisstore.Option) (*redisstore.Store, *client.Client) {
	if o == nil {
		c := client.NewClient(&client.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New(noOptions) }})
		return New(c, append(slices.Clip(opts), redisstore.Invalid(noOptions))...), c
	}
	set := *o
	set.ContextTimeoutEnabled = true
	setDefault(&set.MaxRetries, 1)
	setDefault(&set.DialerRetries, 1)
	setDefault(&set.DialTimeout, time.Second)
	setDefault(&set.ReadTimeout, time.Second)
	setDefault(&set.WriteTimeout, time.Second)
	setDefault(&set.ConnMaxIdleTime, time.Minute)
	setDefault(&set.MaintNotificationsConfig, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled})
	set.DisableIdentity = set.DisableIdentity || set.IdentitySuffix == ""
	if redisstore.Quarantines(opts...) {
		opts = append(slices.Clip(opts), Quarantine(&set))
	}
	c := client.NewClient(&set)
	c.AddHook(quiet{}) // the first hook is the outermost
	return New(c, opts...), c
}

const noOptions = "options are nil: they need an Addr at least"

func setDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}

// errRing refuses a client that can't keep locks.
const errRing = backends.Invalid("a redis.Ring can't keep locks: when a shard is down it leads the key to another, which grants it again")
