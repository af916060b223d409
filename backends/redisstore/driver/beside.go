package driver

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// beside has connections for commands that keep or end a hold, while the pool has none.
type beside struct {
	of    Bounded
	turns chan struct{} // one for each connection in use

	mu    sync.Mutex
	idle  []leased
	timer *time.Timer // closes those that are idle; nil: there are none, or it runs
}

const (
	besideMost = 10          // connections: as go-redis has for pipelines
	besideIdle = time.Second // how long one stays open without use
	besideAge  = time.Minute // behind one address there may be another server by then
)

func newBeside(p Pool) *beside {
	of, ok := p.(Bounded)
	if !ok {
		return nil
	}
	return &beside{of: of, turns: make(chan struct{}, besideMost)}
}

// get takes a connection of the pool, or one beside it if the pool is used up. If that can't be
// opened, as when the server has too many, the pool is waited for after all.
func (b *beside) get(ctx context.Context) (leased, error) {
	if !b.of.Room().None() {
		c, err := b.fromPool(ctx)
		if err == nil || Ended(ctx) != nil || !isUsedUp(err) {
			return c, err
		}
	}
	c, err := b.take(ctx)
	if err == nil || Ended(ctx) != nil {
		return c, err
	}
	early, cancel := Early(ctx)
	defer cancel()
	if late, failed := b.of.Get(early); failed == nil {
		return leased{PoolConn: late}, nil
	}
	return leased{}, err
}

// fromPool is for a pool that has a connection left, which others may take first.
func (b *beside) fromPool(ctx context.Context) (leased, error) {
	type result struct {
		c   PoolConn
		err error
	}
	waiting, leave := context.WithCancel(ctx)
	left := make(chan struct{})
	stop := WhenFull(b.of.Room, func() { close(left) })
	defer stop()
	got := make(chan result, 1)
	go func() {
		c, err := b.of.Get(waiting)
		got <- result{c, err}
	}()
	select {
	case g := <-got:
		leave()
		return leased{PoolConn: g.c}, b.exhausted(ctx, g.err)
	case <-left:
	case <-ctx.Done():
	}
	leave()
	go func() {
		if late := <-got; late.err == nil {
			_ = late.c.Close() // back to the pool
		}
	}()
	return leased{}, b.of.Room().Exhausted(cmp.Or(Ended(ctx), errFull))
}

var errFull = errors.New("waited")

// exhausted is err, or says that the pool is used up.
func (b *beside) exhausted(waited context.Context, err error) error {
	if err == nil || isUsedUp(err) {
		return err
	}
	room := b.of.Room()
	if waited.Err() != nil && errors.Is(err, waited.Err()) && room.None() {
		return room.Exhausted(err)
	}
	if t := b.of.Translate(err); isUsedUp(t) {
		return room.Exhausted(err)
	}
	return err
}

func isUsedUp(err error) bool {
	k, ok := errors.AsType[kind](err)
	return ok && k.word == "pool_exhausted"
}

// take takes a connection beside the pool.
func (b *beside) take(ctx context.Context) (leased, error) {
	select {
	case b.turns <- struct{}{}:
	case <-ctx.Done():
		return leased{}, ctx.Err()
	}
	if c, ok := b.pop(); ok {
		return c, nil
	}
	c, err := b.of.Beside(ctx)
	if err != nil {
		<-b.turns
		return leased{}, err
	}
	return leased{PoolConn: c, beside: true, opened: time.Now()}, nil
}

func (b *beside) pop() (leased, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for last := len(b.idle) - 1; last >= 0; last-- {
		c := b.idle[last]
		b.idle = b.idle[:last]
		if time.Since(c.opened) < besideAge {
			return c, true
		}
		go c.end()
	}
	return leased{}, false
}

func (b *beside) put(c leased, unusable bool) {
	defer func() { <-b.turns }()
	if unusable {
		b.of.Cut(c.PoolConn)
		c.end()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.used = time.Now()
	b.idle = append(b.idle, c)
	if b.timer == nil {
		b.timer = time.AfterFunc(besideIdle, b.close)
	}
}

// close ends the connections that were not used for a while: those at the front.
func (b *beside) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.idle) > 0 && time.Since(b.idle[0].used) >= besideIdle {
		go b.idle[0].end()
		b.idle = b.idle[1:]
	}
	if b.timer = nil; len(b.idle) > 0 {
		b.timer = time.AfterFunc(besideIdle, b.close)
	}
}
