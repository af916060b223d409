package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// detour is a server behind connections of which one is slow: a round trip that the key "lead" is in
// arrives after a time.
type detour struct {
	driver.Executor
	arrives time.Duration
	gate    chan struct{} // for the key "busy"

	mu   sync.Mutex
	keys map[string]string
	sets map[string]int // by token
}

func (d *detour) Once(_ context.Context, args ...any) (any, error) {
	if args[1] == "busy" || args[0] == "EVALSHA" && args[3] == "busy" {
		<-d.gate
	}
	time.Sleep(100 * time.Microsecond)
	return d.run(args), nil
}

func (d *detour) Do(ctx context.Context, args ...any) (any, error) { return d.Once(ctx, args...) }

func (d *detour) OnceAll(_ context.Context, commands []*driver.Command) {
	time.Sleep(100 * time.Microsecond)
	if commands[0].Args[1] == "lead" {
		time.Sleep(d.arrives)
	}
	for _, c := range commands {
		c.Reply, c.Err = d.run(c.Args), nil
	}
}

func (d *detour) DoAll(ctx context.Context, commands []*driver.Command) { d.OnceAll(ctx, commands) }
func (d *detour) Lane(context.Context, []any) any                       { return nil }

func (d *detour) run(args []any) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	if args[0] == "SET" {
		key, token := args[1].(string), args[2].(string)
		d.sets[token]++
		if d.keys[key] != "" {
			return nil
		}
		d.keys[key] = token
		return "OK"
	}
	key, token := args[3].(string), args[4].(string)
	switch mine := d.keys[key] == token; {
	case args[1] == scripts.Acquire.Digest && (mine || d.keys[key] == ""):
		d.keys[key] = token
		return []any{int64(1), ""}
	case args[1] == scripts.Acquire.Digest:
		return []any{int64(0), int64(1000), ""}
	case mine: // a release
		delete(d.keys, key)
		return int64(1)
	}
	return int64(0)
}

func (d *detour) holds(key string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keys[key]
}

// The first grant and its cleanup go over different connections, and the cleanup is confirmed long
// before the grant arrives. So what is left of the grant is removed when its connection answers, and
// Drain waits for that. A store that is used without a Client is not left, nor is the node of a
// quorum: nobody would clean up then.
func TestAGrantOnASilentConnectionIsRepeatedAndCleanedUpWhenItArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const arrives = 20 * time.Second
		d := &detour{arrives: arrives, gate: make(chan struct{}), keys: map[string]string{}, sets: map[string]int{}}
		s := New(d, WithoutWakes(), WithMaxTTL(time.Minute))
		locks := locker.New(single.New(s), locker.WithTTL(30*time.Second))
		began := time.Now()
		var all sync.WaitGroup
		for n := range 3 { // as many as there are permits
			all.Go(func() { _, _ = s.SetNX(t.Context(), "busy", fmt.Sprint(n), time.Minute) })
		}
		synctest.Wait()
		stays := func(key string, ctx context.Context) {
			all.Go(func() {
				if r, err := s.SetNX(ctx, key, key, time.Minute); !r.OK || err != nil || time.Since(began) < arrives {
					t.Errorf("SetNX of %s = %v, %v after %v", key, r, err, time.Since(began))
				}
			})
			synctest.Wait()
		}
		stays("lead", t.Context())
		all.Go(func() {
			l, err := locks.TryLock(t.Context(), "key")
			if took := time.Since(began); err != nil || took > time.Second {
				t.Errorf("TryLock = %v after %v", err, took)
				return
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		stays("direct", t.Context())
		ledger := new(cleanup.Ledger)
		ledger.Leaves()
		stays("node", context.WithValue(context.WithValue(t.Context(), cleanup.LedgerKey{}, ledger), cleanup.ByCaller{}, true))
		d.gate <- struct{}{} // one permit, so that they travel together
		time.Sleep(200 * time.Microsecond)
		close(d.gate)
		for time.Since(began) < time.Second {
			var others sync.WaitGroup
			for n := range 10 {
				others.Go(func() {
					l, err := locks.TryLock(t.Context(), fmt.Sprint("other ", n))
					if err == nil {
						err = l.Unlock(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			others.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(arrives - time.Since(began) - time.Millisecond)
		if holder := d.holds("key"); holder != "" {
			t.Errorf("the key is still locked, by %s", holder)
		}
		if err := locks.Drain(t.Context()); err != nil || time.Since(began) < arrives {
			t.Errorf("Drain = %v after %v", err, time.Since(began))
		}
		all.Wait()
		time.Sleep(100 * time.Millisecond)
		if holder := d.holds("key"); holder != "" {
			t.Errorf("the key is locked by the first attempt")
		}
		for token, n := range d.sets {
			if n > 1 {
				t.Errorf("%s was sent %d times", token, n)
			}
		}
	})
}

// grouping is a Pipeliner that notes what is sent outside of a connection of its own.
type grouping struct {
	trips
	pinned int
}

func (g *grouping) Pinned(context.Context, string, func(driver.Conn) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pinned++
	return errors.ErrUnsupported
}

// WAIT on another connection than the write would be answered at once, since nothing was written there.
func TestACommandAndItsWAITNeverShareARoundTripWithOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &grouping{trips: trips{by: map[string]int{}}}
		s := New(g, WithReplicas(1, time.Second))
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				_, _ = s.SetNX(t.Context(), fmt.Sprint(n), "t", time.Second)
				_, _ = s.ExpireIf(t.Context(), fmt.Sprint(n), "t", time.Second)
			})
		}
		all.Wait()
		if g.pinned != 40 || len(g.words) > 0 {
			t.Errorf("%d of 40 calls had a connection of their own; the others sent %v", g.pinned, g.words)
		}
	})
}
