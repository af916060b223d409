package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestNoLockIsLostWhileOneOrTwoOfFiveServersAreGone(t *testing.T) {
	const shortest = 9 * time.Second
	for client, reach := range byDefault {
		for how, way := range ways {
			t.Run(client+", "+how, func(t *testing.T) {
				if client == "redigo" {
					full.Only(t)
				}
				t.Parallel()
				trial.WhileBusy(t, shortest, func(t testing.TB, shortest time.Duration) { losesNone(t, reach, way, shortest) })
			})
		}
	}
}

// losesNone holds locks whose TTL is between shortest and twice as much, while servers go away.
func losesNone(t testing.TB, reach reach, way way, shortest time.Duration) {
	const locks = 200
	renewals := 250 // four times
	if full.Size() {
		renewals = 1000
	}
	servers := redistest.StartN(t, 5)
	l := &renewed{Locker: reach.quorum(t, servers, plain)}
	c := locker.New(l)
	var held []*locker.Lock
	take := func(n int) {
		for i := range n {
			ttl := shortest + shortest/time.Duration(n)*time.Duration(i)
			lock, err := c.TryLock(t.Context(), fmt.Sprint("key ", len(held)), locker.WithTTL(ttl.Round(time.Millisecond)))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, lock)
		}
	}
	take(locks / 2)
	for _, s := range servers[:2] {
		way.begin(s)
		take(locks / 4)
		until := l.renewals.Load() + int64(renewals/2)
		await(t, fmt.Sprint(renewals/2, " renewals"), func() bool {
			for _, lock := range held {
				if lock.Context().Err() != nil { // it is renewed no more
					t.Fatalf("%s: %v", lock.Key(), context.Cause(lock.Context()))
				}
			}
			return l.renewals.Load() >= until
		})
	}
	for _, lock := range held {
		if lock.Context().Err() != nil {
			t.Errorf("%s: %v", lock.Key(), context.Cause(lock.Context()))
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
	t.Logf("%d locks, %d renewals, %d that failed", len(held), l.renewals.Load(), l.failures.Load())
	await(t, "the living are free", func() bool { return locked(t, servers[2:]) == 0 })
}

// renewed counts extensions.
type renewed struct {
	locker.Locker
	renewals, failures atomic.Int64
}

func (l *renewed) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	extended, err := l.Locker.Extend(ctx, lease, ttl)
	if err == nil && extended.Expires.After(lease.Expires) {
		l.renewals.Add(1)
	} else if ctx.Err() == nil {
		l.failures.Add(1)
	}
	return extended, err
}

// TestStoppedServersAreNotWaitedFor checks that the stopped servers have not answered when the
// quorum has.
func TestStoppedServersAreNotWaitedFor(t *testing.T) {
	const rounds = 5
	for client, reach := range byDefault {
		for stopped := 1; stopped <= 2; stopped++ {
			t.Run(fmt.Sprintf("%s, %d stopped", client, stopped), func(t *testing.T) {
				t.Parallel()
				servers := redistest.StartN(t, 5)
				nodes, watched := make([]locker.Locker, 5), make([]*witness, 5)
				for i, store := range reach.all(t, servers) {
					watched[i] = &witness{Locker: single.New(store)}
					nodes[i] = watched[i]
				}
				l, err := redlock.New(nodes, redlock.WithNodeLimit(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range servers[:stopped] {
					s.Pause()
				}
				pending := map[string]int{}
				for range rounds {
					req := contract.Request{Key: "key", Token: contract.NewToken(), TTL: time.Minute}
					lease := contract.Lease{}
					for i, op := range []func() error{
						func() (err error) { lease, err = l.Acquire(t.Context(), req); return err },
						func() (err error) { lease, err = l.Extend(t.Context(), lease, req.TTL); return err },
						func() error { return l.Release(t.Context(), lease) },
					} {
						if err := op(); err != nil {
							t.Fatalf("%s = %v", operations[i], err)
						}
						silent := 0
						for _, w := range watched[:stopped] {
							if _, answered := w.answers.Load(operations[i] + req.Token); !answered {
								silent++
							}
						}
						if silent == stopped {
							pending[operations[i]]++
						}
					}
				}
				for _, call := range operations { // one call may have been slower than its client allows
					if pending[call] == 0 {
						t.Errorf("each %s has waited for the stopped servers", call)
					}
				}
				t.Logf("%v of %d returned before the stopped servers", pending, rounds)
			})
		}
	}
}

var operations = []string{"acquire", "extend", "release"}

// witness records which calls have been answered.
type witness struct {
	locker.Locker
	answers sync.Map // by the name of the call and the token
}

func (w *witness) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	defer w.answers.Store("acquire"+req.Token, true)
	return w.Locker.Acquire(ctx, req)
}

func (w *witness) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	defer w.answers.Store("extend"+lease.Token, true)
	return w.Locker.Extend(ctx, lease, ttl)
}

func (w *witness) Release(ctx context.Context, lease contract.Lease) error {
	defer w.answers.Store("release"+lease.Token, true)
	return w.Locker.Release(ctx, lease)
}

func TestThreeOfFiveServersGoneIsAnErrorWithinTheLimitAndLeavesNothing(t *testing.T) {
	const limit, lease = 300 * time.Millisecond, 5 * time.Minute // nothing ends by itself
	for client, reach := range byDefault {
		for how, way := range ways {
			t.Run(client+", "+how, func(t *testing.T) {
				t.Parallel()
				servers := redistest.StartN(t, 5)
				held := mustAcquire(t, reach.quorum(t, servers, plain), contract.Request{Key: "held", Token: contract.NewToken(), TTL: lease})
				await(t, "all have it", func() bool { return on(t, servers, "held") == 5 })
				l := reach.quorum(t, servers, plain, redlock.WithNodeLimit(limit))
				for _, s := range servers[:3] {
					way.begin(s)
				}
				limited := 0
				for i, op := range []func() error{
					func() error {
						_, err := l.Acquire(t.Context(), contract.Request{Key: "key", Token: contract.NewToken(), TTL: lease})
						return err
					},
					func() error { _, err := l.Extend(t.Context(), held, lease); return err },
					func() error { return l.Release(t.Context(), held) },
				} {
					name, began := operations[i], time.Now()
					err := op()
					if took := time.Since(began); took > limit+patience/6 { // a client without timeouts would wait for ever
						t.Errorf("%s took %v", name, took)
					}
					var q *redlock.QuorumError
					if !errors.As(err, &q) || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) {
						t.Errorf("%s = %v; want an outage", name, err)
						continue
					}
					for i, v := range q.Votes {
						if i < 3 && v.Outcome != redlock.Failed || i >= 3 && v.Outcome == redlock.Held || v.Outcome == redlock.Lost {
							t.Errorf("%s: node %d: %+v", name, i+1, v)
						}
					}
					if strings.Contains(err.Error(), "no answer within 300ms") || errors.Is(err, context.DeadlineExceeded) && client == "redigo" {
						limited++
					}
					t.Log(err)
				}
				if how == "stopped" && limited == 0 { // one call may have been slower than its client allows
					t.Error("no call ended at the node limit")
				}
				await(t, "the living are free of it", func() bool { return on(t, servers[3:], "key") == 0 })
				for _, s := range servers[:3] {
					way.end(s)
				}
				await(t, "all are free of it", func() bool { return on(t, servers, "key") == 0 })
			})
		}
	}
}

// on counts the servers that have key.
func on(t *testing.T, servers []*redistest.Server, key string) (count int64) {
	t.Helper()
	for _, s := range servers {
		n, err := s.Do("EXISTS", key)
		if err != nil {
			t.Fatal(err)
		}
		count += n.(int64)
	}
	return count
}
