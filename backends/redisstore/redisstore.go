// Package redisstore is the family of Redis backends: what they send, how they read the replies,
// how keys and channels are named, wake-ups and the health check, once for all client libraries. An
// adapter such as package goredis makes a client library a [driver.Executor]; applications use the
// adapter.
//
//	SetNX      SET key token NX PX ttl           for a free lock, one native command;
//	           EVALSHA acquire.lua               if the key is not free: until when, or our own token
//	ExpireIf   EVALSHA extend.lua                PEXPIRE if key holds token and would end sooner
//	DeleteIf   EVALSHA pass.lua                  DEL and PUBLISH if key holds token, and its queue is empty
//	Watch      SUBSCRIBE {key}:wake              one connection per Store, while someone waits
//
// Further calls are in queued.go, fenced.go, shared.go, transfer.go, inspect.go and legacy.go;
// WithoutScripts and WithReplicas send other commands.
//
// All times are relative (PX): no clock of a client is ever sent to a server. A key gets 1 ms more than
// the TTL: see lifeOfKey.
package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/pipeline"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/wake"
	"github.com/lockstep-go/lockstep/internal/address"
	"github.com/lockstep-go/lockstep/internal/bounded"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/internal/turns"
)

// Store is a store of every kind in package backends, on Redis. Its commands are understood since
// Redis 2.6, except that scripts which ask for the TIME need 5.0.
type Store struct {
	exec     driver.Executor
	config   config
	guard    guard
	line     *line      // for all calls but the plain commands of legacy.go
	ops      operations // by scripts or transactions, with replicas or without
	starter  starter
	queueing bool // waiters may stand in a queue, if that is permitted
	wakes    *wake.Listener
	own      string // the channel for the waiters of this Store
	lost     string // the channel for the waiters of all stores with the prefix: see place.lua
	turns    turns.Turns
	keptOut  atomic.Bool // the queue of a lock was found not to be permitted
	multi    atomic.Bool // MULTI and EXEC have been permitted
}

var (
	_ backends.NumberedStore = (*Store)(nil)
	_ backends.FencedStore   = (*Store)(nil)
	_ backends.OrderedStore  = (*Store)(nil)
	_ backends.LegacyStore   = (*Store)(nil)
	_ backends.QueuedStore   = (*Store)(nil)
	_ backends.Identifier    = (*Store)(nil)
	_ backends.Inspector     = (*Store)(nil)
	_ backends.Lister        = (*Store)(nil)
	_ backends.Evictor       = (*Store)(nil)

	_ backends.TransferStore       = (*Store)(nil)
	_ backends.SharedTransferStore = (*Store)(nil)
)

// New is for adapters: it returns a Store that sends its commands through exec, and those of calls
// made at the same time together if exec is a [driver.Pipeliner].
func New(exec driver.Executor, opts ...Option) *Store {
	if exec == nil {
		exec = driver.RefuseNil(nil)
	}
	s := &Store{exec: exec, config: configure(opts), guard: unguarded{}, wakes: wake.New(exec.Subscribe)}
	s.own, s.lost = s.config.prefix+"lockstep:"+rand.Text(), s.config.prefix+"lockstep:lost"
	if q := s.config.quarantine; q != nil {
		q.Attach(s.config.maxTTL, s.config.strict)
		g := guarded{Quarantine: q}
		if s.config.keeps {
			g.cut = &shortCut{exec: exec, quarantine: q, tried: make(chan struct{}, 1)}
		} else {
			q.Doubt()
		}
		s.guard = g
	}
	s.line = &line{exec: exec, sendOnce: exec.Once, send: exec.Do, guard: s.guard}
	s.ops, s.starter = choose(s), waiting{s}
	simple := !s.config.scriptless && s.config.replicas == 0
	s.queueing = simple && !s.config.polling
	if p, ok := exec.(driver.Pipeliner); ok {
		shared := pipeline.New(p.Once, p.OnceAll, p.Lane)
		s.line.sendOnce, s.line.send = shared.Send, pipeline.New(p.Do, p.DoAll, p.Lane).Send
		if simple && !s.clustered() {
			s.starter = sharing{waiting{s}, shared}
		}
	}
	return s
}

// Endpoint is the address of the server, for the texts of errors; empty if the client library does
// not tell, or has several servers. It sends nothing.
func (s *Store) Endpoint() string { return address.Of(s.exec) }

// Prompt tells whether the calls of the client library end by themselves, also if their ctx has
// only a deadline. It sends nothing.
func (s *Store) Prompt() bool { return prompt.Of(s.exec) }

// SetNX stores token under key for ttl if key is free or holds token already, and never makes that
// live shorter than it would have.
func (s *Store) SetNX(ctx context.Context, key, token string, ttl time.Duration) (backends.Result, error) {
	return s.set(ctx, s.config.prefix+key, token, ttl)
}

// set is SetNX for a key with its prefix.
func (s *Store) set(ctx context.Context, key, token string, ttl time.Duration) (backends.Result, error) {
	if err := s.granting(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	return s.counts(s.ops.grant(ctx, s.line, key, token, lifeOfKey(ttl)))
}

// acquired reads the reply of acquire.lua.
func acquired(reply any, err error) (backends.Result, error) {
	r, _, err := granted(reply, err)
	return r, err
}

// granted reads what scripts that grant reply: {1, what else they tell} or {0, how long the key
// still lives, the label of its holder}.
func granted(reply any, err error) (r backends.Result, told any, _ error) {
	if err != nil {
		return r, nil, err
	}
	list, _ := reply.([]any)
	switch {
	case len(list) == 2 && list[0] == int64(1):
		return backends.Result{OK: true}, list[1], nil
	case len(list) == 3 && list[0] == int64(0):
		left, isInt := list[1].(int64)
		holder, isText := list[2].(string)
		if isInt && isText {
			return refused(left, holder), nil, nil
		}
	}
	return r, nil, unexpected(reply)
}

// refused reads a PTTL: -1 is a value without expiry, -2 one that has just expired. holder is what
// holder.lua gives.
func refused(left int64, holder string) backends.Result {
	holder = backends.InTheWay(holder)
	if left == -1 {
		return backends.Result{Foreign: true, Holder: holder}
	}
	return backends.Result{Left: leftOf(left), Holder: holder}
}

// ExpireIf makes key live for ttl from now if it holds token, and never shorter than it would have
// lived.
func (s *Store) ExpireIf(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	if err := s.check(ctx, ttl); err != nil {
		return false, err
	}
	return s.ops.extend(ctx, s.line, s.config.prefix+key, token, lifeOfKey(ttl))
}

// DeleteIf removes key if it holds token, and wakes its waiters. It is sent once.
func (s *Store) DeleteIf(ctx context.Context, key, token string) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	return s.ops.release(ctx, s.line, s.config.prefix+key, token)
}

// releasing is what release.lua is told.
func (s *Store) releasing(key, token string) []any { return []any{key, token, s.channel(key)} }

// channel is that of key, empty for none.
func (s *Store) channel(key string) string {
	if s.config.polling {
		return ""
	}
	return wakeChannel(key)
}

// Watch calls wake when key may have become free: after a release, and after the connection for
// wake-ups was lost and found again. The connection is opened for the first waiter and closed after
// the last.
func (s *Store) Watch(ctx context.Context, key string, wake func()) error {
	if s.config.polling {
		return errPolling
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.wakes.Watch(ctx, wakeChannel(s.config.prefix+key), wake)
}

var errPolling = fmt.Errorf("wake-ups are switched off: %w", errors.ErrUnsupported)

// ready refuses all calls of a store that was given bad options, and those that come too late.
func (s *Store) ready(ctx context.Context) error {
	if s.config.invalid != nil {
		return s.config.invalid
	}
	if err := ctx.Err(); err != nil {
		return backends.NotSent(s.at(err))
	}
	return nil
}

// at puts the address before the error of a ctx that has ended, if nobody has put it there.
func (s *Store) at(err error) error {
	addr := s.Endpoint()
	if addr == "" || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), addr) {
		return err
	}
	return fmt.Errorf("server %s: %w", addr, err)
}

// forPeople is bounded.Call, with the address in the error of a client library that does not return.
func forPeople[T any](ctx context.Context, s *Store, call func(context.Context) (T, error)) (T, error) {
	result, err := bounded.Call(ctx, call)
	return result, s.at(err)
}

// reading is forPeople for a call that only reads.
func reading[T any](ctx context.Context, s *Store, call func(context.Context) (T, error)) (T, error) {
	result, err := forPeople(ctx, s, call)
	return result, ofRead(err)
}

// A readError is the error of a call that only reads, so it has no outcome. What a command became is told
// by errors that do not know which call has sent it.
type readError struct{ error }

func ofRead(err error) error {
	if err == nil || !strings.Contains(err.Error(), driver.OutcomeUnknown) {
		return err
	}
	return readError{err}
}

func (e readError) Error() string {
	return strings.ReplaceAll(e.error.Error(), driver.OutcomeUnknown, "")
}
func (e readError) Unwrap() error { return e.error }

// check refuses what must not be sent.
func (s *Store) check(ctx context.Context, ttl time.Duration) error {
	if err := backends.CheckTTL(ctx, ttl, s.config.maxTTL, "redisstore.WithMaxTTL"); err != nil {
		return err
	}
	return s.ready(ctx)
}

// granting is check for a call that grants: not on a server in quarantine.
func (s *Store) granting(ctx context.Context, ttl time.Duration) error {
	if err := s.check(ctx, ttl); err != nil {
		return err
	}
	return s.guard.mayGrant(ctx)
}

// lifeOfKey is ttl in ms for a key: rounded up, and one more. The expiry of a key is a whole ms of the
// server's clock. Before Redis 8.0, and in Valkey, a key lives until the end of this ms. Since Redis
// 8.0, the search for expired keys removes it at the beginning.
func lifeOfKey(ttl time.Duration) int64 { return milliseconds(ttl) + 1 }

// leftOf is how long a lease lasts whose key lives for pttl ms, the ms of lifeOfKey not counted: never
// more than the TTL. A key that is still there has at least a ms; one that has just ended (-2) has 0. A hold
// of a shared lock lives as long.
func leftOf(pttl int64) time.Duration {
	if pttl < 0 {
		return 0
	}
	return duration(max(pttl-1, 1), time.Millisecond)
}

// milliseconds rounds up: nothing ends before its time. A hold of a shared lock lives until the end
// of its ms: see holds.lua.
func milliseconds(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// duration is so many units, or the most there can be: 292 years.
func duration(units int64, unit time.Duration) time.Duration {
	return time.Duration(min(units, math.MaxInt64/int64(unit))) * unit
}

// yes reads the reply of what answers 1 or 0.
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

func unexpected(reply any) error {
	return driver.Kind("protocol", false, fmt.Errorf("unexpected reply %v of type %T; the outcome is unknown", withoutTokens(reply), reply))
}

// withoutTokens is a reply to show. On a connection whose replies are out of step, it may be that of
// another call, with a token.
func withoutTokens(reply any) any {
	switch r := reply.(type) {
	case string:
		if len(r) > len("QUEUED") {
			return fmt.Sprintf("(%d bytes)", len(r))
		}
	case []any:
		list := make([]any, len(r))
		for i := range r {
			list[i] = withoutTokens(r[i])
		}
		return list
	}
	return reply
}
