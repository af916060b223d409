package redis

import (
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Option changes a Store.
type Option func(*config)

type config struct {
	prefix     string
	maxTTL     time.Duration
	polling    bool
	quarantine bool
	scriptless bool
	replicas   int   // that must acknowledge; 0: none
	wait       []any // the WAIT for them
	invalid    refusal
}

// WithPrefix puts prefix before every key, so that locks have a corner of the key space (and of an ACL) to themselves.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithMaxTTL sets the longest TTL that the store takes; [backends.DefaultMaxTTL] without it. A server that was restarted, with
// its data or without, is in quarantine for as long, so all who lock on it need the same.
func WithMaxTTL(ttl time.Duration) Option { return func(c *config) { c.maxTTL = ttl } }

// WithoutWakes uses no channels: waiters poll. For servers and ACLs without publish and subscribe.
func WithoutWakes() Option { return func(c *config) { c.polling = true } }

// WithoutQuarantine lets the Open function of an adapter take a server that has just started. For tests and
// quickstarts, which start fresh servers; in production it lets a lock be granted twice.
func WithoutQuarantine() Option { return func(c *config) { c.quarantine = false } }

// WithoutScripts compares and acts by WATCH, GET, MULTI and EXEC on a connection of its own, for servers and ACLs that
// forbid scripts. The promises of a [backends.Store] are the same; an extension and a release take two round trips, and
// one more if the lock is not ours. Numbered and nested locks need scripts: their calls are refused.
func WithoutScripts() Option { return func(c *config) { c.scriptless = true } }

// WithReplicas has n replicas acknowledge every grant and every extension before they count, by a WAIT of timeout behind
// the command in one pipeline. If fewer do, the error is a [*ReplicasError]; a grant is deleted again, also one that
// repeats an earlier one, and after an extension the holder may believe in the old end only.
//
// Let n be the number of all replicas: one that has not acknowledged may be promoted, and grants the lock again. Even
// then a failover can lose a lock, to a replica that was added since or has lost its data. A refused attempt may take
// timeout as well, while replicas are behind. timeout must be shorter than the client library waits for a reply. Calls
// of [backends.LegacyStore] do not wait for replicas. With n < 1 or timeout < 1 ms every call is refused.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(c *config) {
		switch {
		case n < 1:
			c.invalid = refusal(fmt.Sprintf("WithReplicas: number of replicas %d is under 1", n))
		case timeout < time.Millisecond:
			c.invalid = refusal(fmt.Sprintf("WithReplicas: timeout %v is under %v", timeout, time.Millisecond))
		default:
			c.replicas, c.wait, c.invalid = n, []any{"WAIT", n, milliseconds(timeout)}, ""
		}
	}
}

func configure(opts []Option) config {
	c := config{maxTTL: backends.DefaultMaxTTL, quarantine: true}
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	return c
}

// QuarantineFor is for adapters: the longest TTL under opts, and whether quarantine is on.
func QuarantineFor(opts ...Option) (maxTTL time.Duration, on bool) {
	c := configure(opts)
	return c.maxTTL, c.quarantine
}

// quarantineMargin covers that servers tell their uptime in whole seconds.
const quarantineMargin = time.Second
