package redisstore

import (
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// Option changes a Store.
type Option func(*config)

type config struct {
	prefix     string
	maxTTL     time.Duration
	polling    bool
	quarantine *driver.Quarantine // of the client; nil: its connections are not seen
	unguarded  bool               // WithoutQuarantine
	strict     time.Duration      // of WithQuarantine
	isStrict   bool               // it was given
	keeps      bool               // WithServerThatForgetsNothing
	scriptless bool
	addr       string // of the server; empty: only the client library may tell
	replicas   int    // that must acknowledge; 0: none
	wait       []any  // the WAIT for them
	invalid    error
}

// WithPrefix puts prefix before every key, so that locks have a corner of the key space (and of an
// ACL) to themselves.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithMaxTTL sets the longest TTL that the store takes; [backends.DefaultMaxTTL], 30 seconds,
// without it. A longer one is refused before anything is sent. Quarantine lasts 1.01 times this
// limit, and one to two seconds more, so all programs that lock on a server need the same limit:
// the longest TTL of any of them. To upgrade programs with longer TTLs, see docs/safety.md, "The
// longest TTL". The largest limit is ten years.
func WithMaxTTL(ttl time.Duration) Option {
	return func(c *config) {
		if ttl < time.Millisecond {
			c.invalid = backends.Invalidf("redisstore.WithMaxTTL: %v is under 1ms", ttl)
			return
		}
		if ttl > longestTTL {
			c.invalid = backends.Invalidf("redisstore.WithMaxTTL: %v is over %v", ttl, longestTTL)
			return
		}
		c.maxTTL = ttl
	}
}

// longestTTL leaves room for slots in the scores of shared holds: see holds.lua.
const longestTTL = 10 * 365 * 24 * time.Hour

// WithoutWakes uses no channels: waiters poll. For servers and ACLs without publish and subscribe. A release
// then wakes no waiter of a store that has channels either, which would need the permission to publish. That
// waiter looks by itself, as after a lost wake-up.
func WithoutWakes() Option { return func(c *config) { c.polling = true } }

// WithoutQuarantine does without quarantine: a server that has forgotten locks grants them again
// at once. For servers that keep each write on disk (appendfsync always) and have no replicas, and
// for tests.
func WithoutQuarantine() Option { return func(c *config) { c.unguarded = true } }

// WithServerThatForgetsNothing is your word that the server keeps everything that it has answered, through
// clean restarts, kill -9 and power cuts: appendonly is yes and appendfsync always, from before the first
// lock on; nobody changes that while it runs (CONFIG SET, a first rewrite that has not ended,
// no-appendfsync-on-rewrite); the disk keeps what was synced; it is never restored from a backup,
// nor replaced by a replica. Then quarantine ends as soon as the server is back, and a longest TTL of
// an hour does not close all locks for an hour.
//
// Nothing that a server shows after a restart proves what it kept before. So a wrong word grants locks
// that are held to others. Quarantine lasts as long as without this option if something speaks against it:
// another setting now, a promotion, another address, several servers or another store on the client that has
// no such word, a restart before the last quarantine had ended, or a clock that has gone ahead
// by over 5 ms while the server was down. The time that answers take counts as well, so with a round trip
// of 5 ms or more quarantine is hardly ever cut short. The error of a call says which. If the clock was set
// back, locks last longer than their TTL.
//
// It needs the permission for CONFIG GET and INFO, quarantine (as after Open), and go-redis or rueidis with
// one server: redigo does not tell where a connection leads.
func WithServerThatForgetsNothing() Option {
	return func(c *config) { c.keeps = true }
}

// WithQuarantine is the strict form, for the nodes of a quorum, which must not fail over: a server
// that has been up for less than d grants nothing, whether this process used it before or not. So
// locks are also safe from processes that start after a restart. A new server works after d.
//
// d is at least the longest TTL (see [WithMaxTTL]), and the store needs to see the connections of
// its client, as after Open. A server that does not tell uptime_in_seconds, or permits no INFO, is
// refused. Its uptime follows its wall clock.
func WithQuarantine(d time.Duration) Option {
	return func(c *config) { c.unguarded, c.isStrict, c.strict = false, true, d }
}

// WithoutScripts compares and acts by WATCH, GET, MULTI and EXEC on a connection of its own, for
// servers and ACLs that forbid them. The promises of a [backends.Store] are the same; an extension and a
// release take two round trips, and one more if the lock is not ours. Numbered and shared locks
// need scripts: their calls are refused.
//
// If the application uses up all connections of its pool, as by commands that block, renewals and
// releases wait for one too, and a held lock may be lost. So give the locks a client of their own.
// With rueidis it is the pool for blocking commands (BlockingPoolSize).
func WithoutScripts() Option { return func(c *config) { c.scriptless = true } }

// WithReplicas has n replicas acknowledge every grant and every extension before they count, by a
// WAIT of timeout behind the command in one pipeline. If fewer do, the error is a [*ReplicasError];
// a grant is deleted again, also one that repeats an earlier one, and after an extension the holder
// may believe in the old end only.
//
// Let n be the number of all replicas: one that has not acknowledged may be promoted, and grants
// the lock again. Even then a failover can lose a lock, to a replica that was added since or has
// lost its data. A refused attempt may take timeout as well, while replicas are behind. timeout
// must be shorter than the client library waits for a reply. Calls of [backends.LegacyStore] do not
// wait for replicas. With n < 1 or timeout < 1 ms every call is refused.
//
// With rueidis, a grant and an extension then take a connection of the pool for blocking commands
// (BlockingPoolSize). If the application uses up all of them, an extension waits for one, and a held
// lock may be lost. So give the locks a client of their own.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(c *config) {
		switch {
		case n < 1:
			c.invalid = backends.Invalidf("redisstore.WithReplicas: number of replicas %d is under 1", n)
		case timeout < time.Millisecond:
			c.invalid = backends.Invalidf("redisstore.WithReplicas: timeout %v is under %v", timeout, time.Millisecond)
		default:
			c.replicas, c.wait, c.invalid = n, []any{"WAIT", n, milliseconds(timeout)}, nil
		}
	}
}

func configure(opts []Option) config {
	c := config{maxTTL: backends.DefaultMaxTTL}
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	if c.keeps && (c.unguarded || c.quarantine == nil || c.isStrict) && c.invalid == nil {
		c.invalid = backends.Invalid("redisstore.WithServerThatForgetsNothing: it ends quarantine early, and the store has none, or the strict one; use Open, or Quarantine of the adapter")
	}
	switch {
	case c.unguarded:
		c.quarantine = nil
	case !c.isStrict:
	case c.strict < c.maxTTL:
		c.invalid = backends.Invalidf("redisstore.WithQuarantine: %v is under the longest TTL of %v (see redisstore.WithMaxTTL)", c.strict, c.maxTTL)
	case c.quarantine == nil:
		c.invalid = backends.Invalid("redisstore.WithQuarantine: the store does not see the connections of its client; use Open, or Quarantine of the adapter")
	}
	return c
}

// Observed is for adapters: an option for the stores on the client whose connections q sees. They lead to
// addr; it is empty if the client library tells where they lead.
func Observed(addr string, q *driver.Quarantine) Option {
	return func(c *config) { c.addr, c.quarantine = addr, q }
}

// At is for adapters: an option that says where the server is.
func At(addr string) Option { return func(c *config) { c.addr = addr } }

// Address is for adapters: the address that opts give; empty: none.
func Address(opts ...Option) string { return configure(opts).addr }

// Invalid is for adapters: an option with which every call fails because of bad input. Why names
// it.
func Invalid(why string) Option { return func(c *config) { c.invalid = backends.Invalid(why) } }

// Quarantines is for adapters: whether opts leave quarantine on.
func Quarantines(opts ...Option) bool { return !configure(opts).unguarded }
