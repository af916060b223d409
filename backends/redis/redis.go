// Package redis is the family of Redis backends: what they send, how they read the replies, how keys and channels are
// named, wake-ups and the health check, once for all client libraries. An adapter such as package goredis makes a
// client library an [Executor]; applications use the adapter.
//
//	SetNX      SET key token NX PX ttl           for a free lock, one native command;
//	           EVALSHA acquire.lua               if that was refused: by whom, for how long, or by our own token
//	ExpireIf   EVALSHA extend.lua                PEXPIRE if key holds token and would end sooner
//	DeleteIf   EVALSHA release.lua               DEL and PUBLISH if key holds token
//	Watch      SUBSCRIBE {key}:wake              one connection per Store, while someone waits
//
// All times are relative (PX): no clock of a client is ever sent to a server.
package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Store is a [backends.Store] on Redis. It is tested with redis-server 7.0.15; what it sends has been understood since 2.6.
type Store struct {
	exec   Executor
	config config
	wakes  wakes
}

// Option changes a Store.
type Option func(*config)

type config struct {
	prefix     string
	maxTTL     time.Duration
	polling    bool
	quarantine bool
}

// WithPrefix puts prefix before every key, so that locks have a corner of the key space (and of an ACL) to themselves.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithMaxTTL sets the longest TTL that the store takes; [backends.DefaultMaxTTL] without it. A server that was
// restarted without its data is in quarantine for as long.
func WithMaxTTL(ttl time.Duration) Option { return func(c *config) { c.maxTTL = ttl } }

// WithoutWakes uses no channels: waiters poll. For servers and ACLs without publish and subscribe.
func WithoutWakes() Option { return func(c *config) { c.polling = true } }

// WithoutQuarantine lets the Open function of an adapter take a server that has just started. For tests and
// quickstarts, which start fresh servers; in production it lets a lock be granted twice.
func WithoutQuarantine() Option { return func(c *config) { c.quarantine = false } }

// New is for adapters: it returns a Store that sends its commands through exec.
func New(exec Executor, opts ...Option) *Store {
	s := &Store{exec: exec, config: config{maxTTL: backends.DefaultMaxTTL, quarantine: true}}
	for _, opt := range opts {
		opt(&s.config)
	}
	s.wakes.exec = exec
	return s
}

// QuarantineFor is for adapters: the longest TTL under opts, and whether quarantine is on.
func QuarantineFor(opts ...Option) (maxTTL time.Duration, on bool) {
	c := New(nil, opts...).config
	return c.maxTTL, c.quarantine
}

// quarantineMargin covers that servers tell their uptime in whole seconds.
const quarantineMargin = time.Second

// SetNX stores token under key for ttl if key is free or holds token already.
func (s *Store) SetNX(ctx context.Context, key, token string, ttl time.Duration) (backends.Result, error) {
	ms, err := s.check(ctx, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	key = s.config.prefix + key
	// A free lock costs a native command, which the server runs in less time than a script. Only if it is refused
	// does the script look why; what it finds counts, since it may have become free or been ours all the time.
	//
	// Both are sent once. A client library that sends SET again hides that the first one may still be on its way: it
	// would store the token when the lock has long been released, or refused.
	reply, err := s.exec.Once(ctx, "SET", key, token, "NX", "PX", ms)
	if err != nil {
		return backends.Result{}, err
	}
	if reply != nil {
		return backends.Result{OK: true}, nil
	}
	reply, err = acquireScript.run(ctx, s.exec.Once, key, token, ms)
	if err != nil {
		return backends.Result{}, err
	}
	return acquired(reply)
}

// acquired reads the reply of acquire.lua.
func acquired(reply any) (backends.Result, error) {
	pair, _ := reply.([]any)
	if len(pair) == 2 {
		ok, isInt := pair[0].(int64)
		left, isIntToo := pair[1].(int64)
		switch {
		case !isInt || !isIntToo:
		case ok == 1:
			return backends.Result{OK: true}, nil
		case left == -1:
			return backends.Result{Foreign: true}, nil
		case ok == 0:
			return backends.Result{Left: time.Duration(max(left, 0)) * time.Millisecond}, nil
		}
	}
	return backends.Result{}, unexpected(reply)
}

// ExpireIf makes key live for ttl from now if it holds token, and never shorter than it would have lived.
func (s *Store) ExpireIf(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	ms, err := s.check(ctx, ttl)
	if err != nil {
		return false, err
	}
	return yes(extendScript.run(ctx, s.exec.Do, s.config.prefix+key, token, ms))
}

// DeleteIf removes key if it holds token, and wakes those who watch it. It is sent once.
func (s *Store) DeleteIf(ctx context.Context, key, token string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	key = s.config.prefix + key
	channel := ""
	if !s.config.polling {
		channel = wakeChannel(key)
	}
	return yes(releaseScript.run(ctx, s.exec.Once, key, token, channel))
}

// Watch calls wake when key may have become free: after a release, and after the connection for wake-ups was lost and
// found again. The connection is opened for the first waiter and closed after the last.
func (s *Store) Watch(ctx context.Context, key string, wake func()) error {
	if s.config.polling {
		return errPolling
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.wakes.watch(ctx, wakeChannel(s.config.prefix+key), wake)
}

// check refuses what must not be sent, and gives ttl in milliseconds, rounded up: never shorter than asked.
func (s *Store) check(ctx context.Context, ttl time.Duration) (int64, error) {
	switch {
	case ttl < time.Millisecond:
		return 0, refusal(fmt.Sprintf("ttl %v is under the store's limit of %v", ttl, time.Millisecond))
	case ttl > s.config.maxTTL:
		return 0, refusal(fmt.Sprintf("ttl %v is over the store's limit of %v (see WithMaxTTL)", ttl, s.config.maxTTL))
	}
	return int64((ttl + time.Millisecond - 1) / time.Millisecond), ctx.Err()
}

// refusal is bad input: nothing was sent.
type refusal string

func (r refusal) Error() string { return string(r) }

// Refused says that repeating will not help.
func (r refusal) Refused() bool { return true }

// ErrorType is "invalid".
func (r refusal) ErrorType() string { return "invalid" }

// yes reads the reply of a script that answers 1 or 0.
func yes(reply any, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	switch reply {
	case int64(1):
		return true, nil
	case int64(0):
		return false, nil
	}
	return false, unexpected(reply)
}

func unexpected(reply any) error { return fmt.Errorf("unexpected reply %v of type %T", reply, reply) }
