package goredis

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/go-redis/v9"
)

// pool is the client of one server. Go-redis gives it a pool for commands, which the application may use up,
// and beside it one for pipelines: with the same dialer, OnConnect and hooks, and closed when the
// client is. It has no connection until a pipeline needs one.
type pool interface {
	pipelined
	processor
	PoolStats() *client.PoolStats
	Options() *client.Options
}

// poolOf is the pool that a command takes its connection of; nil: that is not known.
func (e executor) poolOf(ctx context.Context, args []any) pool {
	one := any(e.client)
	if cluster, ok := e.client.(cluster); ok {
		key := keyOf(args)
		if key == "" {
			return nil
		}
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil
		}
		one = master
	}
	p, _ := one.(pool)
	return p
}

// roomIn tells how much of the pool for commands is in use. Those who wait for a connection count.
func roomIn(p pool) driver.Room {
	o, stats := p.Options(), p.PoolStats()
	most := o.PoolSize
	if o.MaxActiveConns > 0 {
		most = min(most, o.MaxActiveConns)
	}
	return driver.Room{InUse: int(stats.TotalConns) - int(stats.IdleConns) + int(stats.PendingRequests), Most: most, Remedy: "PoolSize"}
}

// ampleFor is how long a pool that had ample room is not looked at again. A look costs three allocations.
const ampleFor = time.Millisecond

// ample remembers when a client was seen to have ample room.
type ample struct {
	born time.Time
	seen atomic.Int64 // in nanoseconds since born; 0: never
}

// has tells whether a call can take its connection of p without a thought.
func (a *ample) has(p pool, isOne bool) bool {
	now := int64(time.Since(a.born)) + 1
	if seen := a.seen.Load(); isOne && seen != 0 && time.Duration(now-seen) < ampleFor {
		return true
	}
	if !roomIn(p).Ample() {
		return false
	}
	if isOne {
		a.seen.Store(now)
	}
	return true
}

// process sends one command. If the application has used up the pool for commands, what keeps or ends a
// hold goes over the pool for pipelines, and anything else waits, but not until its ctx has ended: so the
// caller hears that nothing was sent.
func (e executor) process(ctx context.Context, args []any, isOnce bool) (value any, err error) {
	p := e.poolOf(ctx, args)
	if p == nil || e.ample.has(p, !e.Clustered()) {
		return e.send(ctx, ctx, e.client, args, isOnce)
	}
	full, err := e.take(ctx, p, args, driver.Keeps(args), func(waiting context.Context) (err error) {
		value, err = e.send(ctx, waiting, p, args, isOnce)
		return err
	})
	if full {
		value, err = e.beside(ctx, p, args, isOnce)
	}
	if e.Clustered() && driver.IsMoving(err) {
		return e.send(ctx, ctx, e.client, args, isOnce)
	}
	return value, err
}

// take calls send, which waits for a connection of p until waiting has ended. Full tells that there
// was none for a command that keeps or ends a hold.
func (e executor) take(ctx context.Context, p pool, args []any, keeps bool, send func(waiting context.Context) error) (full bool, err error) {
	if !keeps {
		early, cancel := driver.Early(ctx)
		defer cancel()
		err = send(early)
		if room := roomIn(p); room.None() && wasLeft(ctx, early, err) && !isExhausted(err) {
			err = driver.NotSent(ctx, e.addr(args), room.Exhausted(early.Err()))
		}
		return false, err
	}
	if roomIn(p).None() {
		return true, nil
	}
	waiting, leave := context.WithCancel(ctx) // others may take the connection first
	defer leave()
	defer driver.WhenFull(func() driver.Room { return roomIn(p) }, leave)()
	err = send(waiting)
	return wasLeft(ctx, waiting, err), err
}

// beside sends a command over the pool for pipelines. If that is used up too, go-redis waits for the
// pool for commands.
func (e executor) beside(ctx context.Context, p pool, args []any, isOnce bool) (any, error) {
	cmd := newCommand(ctx, args)
	var sent answered = cmd
	if isOnce {
		sent = once{cmd}
	}
	pipeline := p.Pipeline()
	_ = pipeline.Process(ctx, sent)
	_, whole := pipeline.Exec(ctx)
	value, err := e.answer(ctx, args, sent, whole)
	return value, e.noted(err)
}

// exhausted is the error of a call that go-redis gave no connection.
func (e executor) exhausted(ctx context.Context, args []any, err error) error {
	if p := e.poolOf(ctx, args); p != nil {
		return roomIn(p).Exhausted(err)
	}
	return driver.Kind("pool_exhausted", true, err)
}

// wasLeft tells that a call got no connection of the pool, and that nothing was sent: waiting has ended, and
// ctx goes on.
func wasLeft(ctx, waiting context.Context, err error) bool {
	w, ok := errors.AsType[*driver.WireError](err)
	if !ok || !w.NotSent || ctx.Err() != nil {
		return false
	}
	return isExhausted(err) || waiting.Err() != nil && errors.Is(w.Err, waiting.Err())
}

func isExhausted(err error) bool {
	w, ok := errors.AsType[*driver.WireError](err)
	return ok && w.NotSent && w.ErrorType() == "pool_exhausted"
}
