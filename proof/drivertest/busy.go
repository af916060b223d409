package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const (
	usedUp    = 4                // connections of the pool
	usedUpFor = 15 * time.Second // longer than each lock lives without a renewal
	blocksFor = time.Minute      // for a command that blocks
	triedFor  = 3 * time.Second  // the limit of an attempt
)

// usedUpPool is about an application whose blocking commands have all connections of the pool that the
// locks use as well. Renewals, releases and what is cleaned up get through. A new lock waits for the pool.
func usedUpPool(t *testing.T, h Harness) {
	const none, one, cluster = "", "and a replica", "of a cluster"
	for name, use := range map[string]struct {
		commands int           // of the application at one time
		each     time.Duration // how long one of them blocks
		servers  string
	}{
		"by commands that block for long":               {usedUp, blocksFor, none},
		"by commands that follow each other":            {4 * usedUp, 100 * time.Millisecond, none},
		"by commands that block, and a replica":         {usedUp, blocksFor, one},
		"by commands that block on a node of a cluster": {usedUp, blocksFor, cluster},
	} {
		if use.servers == one && h.Shares || use.servers == cluster && !h.Clusters {
			continue // there WAIT needs a connection of the pool
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// On a machine that stands still, attempts end by their limit, or the locks by their TTL.
			trial.WhileBusy(t, triedFor, func(t testing.TB, triedFor time.Duration) {
				var opts []redisstore.Option
				to := Server{Pool: usedUp, Timeout: 2 * blocksFor}
				var server *redistest.Server
				switch use.servers {
				case none:
					server = redistest.Start(t)
				case one:
					server = redistest.StartSentinel(t, 1).Master()
					opts = append(opts, redisstore.WithReplicas(1, time.Second))
				case cluster:
					server = redistest.StartCluster(t, 3, 0).Master("{app}")
					to.Cluster = true
				}
				to.Addr = server.Addr()
				c := h.Connect(t, to)
				store := c.New(opts...)
				var held []*locker.Lock
				for i, locks := range []*locker.Client{
					locker.New(single.New(store), locker.WithTTL(8*time.Second)),
					locker.New(single.New(store), locker.WithTTL(12*time.Second)),
					locker.New(fenced.New(store), locker.WithTTL(12*time.Second)),
				} {
					for j := range 2 {
						l, err := locks.Lock(t.Context(), fmt.Sprint("{app}held", i, j))
						if err != nil {
							t.Fatal(err)
						}
						held = append(held, l)
					}
				}
				stop := occupy(t, server, c.Executor, use.commands, use.each)
				others := locker.New(single.New(store), locker.WithTTL(triedFor))
				refused := 0
				for end := time.Now().Add(usedUpFor); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					began := time.Now()
					l, err := others.TryLock(context.Background(), "{app}other")
					switch {
					case err == nil:
						err = l.Unlock(context.Background())
					case isExhausted(err):
						if refused++; !strings.Contains(err.Error(), "make the pool larger (") {
							t.Errorf("%v; want how to make the pool larger", err)
						}
						err = nil
					}
					// The error of the pool comes before the limit. A machine that has stood still lets the limit win.
					if took := time.Since(began); err != nil && took < triedFor {
						t.Errorf("%v after %v; want a lock, or pool_exhausted and that nothing was sent", err, took)
					}
				}
				if (refused == 0) != h.Shares && use.commands == usedUp {
					t.Errorf("%d attempts found the pool used up", refused)
				}
				for _, l := range held {
					if err := l.Context().Err(); err != nil {
						t.Errorf("%s is lost: %v", l.Key(), context.Cause(l.Context()))
					} else if err := l.Unlock(context.Background()); err != nil {
						t.Errorf("Unlock of %s = %v", l.Key(), err)
					}
				}
				stop()
				l, err := others.Lock(t.Context(), "{app}other")
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func isExhausted(err error) bool {
	typed, ok := errors.AsType[interface {
		error
		ErrorType() string
	}](err)
	return ok && typed.ErrorType() == "pool_exhausted" && backends.Unsent(err)
}

// occupy makes the application use all connections of the pool, until stop.
func occupy(t testing.TB, server *redistest.Server, e driver.Executor, commands int, each time.Duration) (stop func()) {
	t.Helper()
	var all sync.WaitGroup
	over, end := context.WithCancel(context.Background())
	for i := range commands {
		all.Go(func() {
			queue := fmt.Sprint("{app}queue", i)
			for over.Err() == nil {
				_ = e.Pinned(context.Background(), queue, func(c driver.Conn) error {
					if over.Err() != nil {
						return nil
					}
					_, err := c.Pipeline(context.Background(), []any{"BLPOP", queue, each.Seconds()})
					return err
				})
			}
		})
	}
	eventually(t, "all connections of the pool are in use", func() bool {
		return strings.Contains(do(t, server, "INFO", "clients").(string), fmt.Sprint("blocked_clients:", usedUp))
	})
	return func() {
		end()
		for i := range commands {
			do(t, server, "LPUSH", fmt.Sprint("{app}queue", i), "end")
		}
		all.Wait()
	}
}
