package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/quarantinetest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// A server that was declared to forget nothing grants again when it is back, and keeps what it has granted.
func TestAServerThatForgetsNothingGrantsAgainAtOnce(t *testing.T) {
	for name, end := range quarantinetest.Restarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quarantinetest.CutShort(t, func(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store {
				store, c := goredis.Open(&client.Options{Addr: addr}, opts...)
				t.Cleanup(func() { c.Close() })
				return store
			}, end)
		})
	}
}

const quick = time.Second

func mustTake(t *testing.T, s *redisstore.Store) {
	t.Helper()
	if r, err := s.SetNX(t.Context(), "key", "mine", quick); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
}

// What speaks against it is in the error, and quarantine lasts as long as without the declaration.
func TestWhatSpeaksAgainstAServerThatForgetsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		opts      []redistest.Option
		meanwhile func(t *testing.T, s *redistest.Server) // while it is down
		then      func(t *testing.T, s *redistest.Server) // when it is back
		want      string
	}{
		"another appendfsync now": {then: set("appendfsync", "everysec"), want: `appendfsync is "everysec" and not always`},
		"no append-only file now": {then: set("appendonly", "no"), want: `appendonly is "no" and not yes`},
		"no sync while it is rewritten": {
			then: set("no-appendfsync-on-rewrite", "yes"), want: `no-appendfsync-on-rewrite is "yes" and not no`,
		},
		"a clock that has gone ahead": {
			opts:      []redistest.Option{redistest.WithMovableClock()},
			meanwhile: func(_ *testing.T, s *redistest.Server) { s.MoveClock(time.Second) },
			want:      "its clock has gone ahead by 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, append(c.opts, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))...)
			locks := declared(t, server)
			l, err := locks.Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			if c.meanwhile != nil {
				c.meanwhile(t, server)
			}
			server.Restart()
			if c.then != nil {
				c.then(t, server)
			}
			for range 2 {
				_, err := locks.TryLock(t.Context(), "key")
				refused := (*redisstore.QuarantineError)(nil)
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), "that it forgets nothing is not believed, since "+c.want) {
					t.Errorf("TryLock = %v; want quarantine, since %s", err, c.want)
				} else if left := time.Until(refused.Until); left < 20*time.Second {
					t.Errorf("quarantine ends in %v", left)
				}
			}
		})
	}
}

// The name of the server leads to another one now, which has what the first one kept, or has not.
func TestAServerInThePlaceOfAnotherIsNotBelieved(t *testing.T) {
	safe := redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always")
	for name, c := range map[string]struct {
		sameAddress bool // as behind a load balancer
		replace     func(t *testing.T, first *redistest.Server) (next *redistest.Server)
		want        string
	}{
		"a new one, at another address": {
			replace: func(t *testing.T, first *redistest.Server) *redistest.Server {
				first.Kill()
				return redistest.Start(t, safe)
			},
			want: "it may answer at another address",
		},
		"a replica that was promoted, at the same address": {
			sameAddress: true,
			replace: func(t *testing.T, first *redistest.Server) *redistest.Server {
				host, port, err := net.SplitHostPort(first.Addr())
				if err != nil {
					t.Fatal(err)
				}
				replica := redistest.Start(t, safe, redistest.WithArgs("--replicaof", host, port, "--repl-diskless-sync-delay", "0"))
				eventually(t, "the replica has what the first server has", func() bool {
					n, err := replica.Do("EXISTS", "key")
					return err == nil && fmt.Sprint(n) == "1"
				})
				first.Kill()
				if _, err := replica.Do("REPLICAOF", "NO", "ONE"); err != nil {
					t.Fatal(err)
				}
				return replica
			},
			want: "it was promoted or changed several times, or was up before",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := redistest.Start(t, safe)
			var target atomic.Value
			lead := func(to *redistest.Server) { target.Store(to.Addr()) }
			lead(first)
			store, client := goredis.Open(&client.Options{Addr: "locks.example:6379", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, target.Load().(string))
				if err == nil && c.sameAddress {
					conn = behindOneAddress{conn}
				}
				return conn, err
			}}, redisstore.WithServerThatForgetsNothing())
			t.Cleanup(func() { client.Close() })
			locks := locker.New(single.New(store), locker.WithTTL(20*time.Second))
			if _, err := locks.Lock(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
			lead(c.replace(t, first))
			eventually(t, "the store says why it does not believe the server", func() bool {
				l, err := locks.TryLock(t.Context(), "another key")
				if err == nil {
					t.Fatalf("TryLock = %v; want quarantine", l.Lease())
				}
				if refused := (*redisstore.QuarantineError)(nil); !errors.As(err, &refused) {
					return false // the connection is one of before
				}
				if !strings.Contains(err.Error(), "that it forgets nothing is not believed, since "+c.want) {
					t.Fatalf("TryLock = %v; want quarantine, since %s", err, c.want)
				}
				return true
			})
		})
	}
}

// behindOneAddress is a connection through a load balancer.
type behindOneAddress struct{ net.Conn }

func (behindOneAddress) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6379}
}

// Another store on the client may not know of the declaration.
func TestAServerForgetsNothingForAllStoresOfAClient(t *testing.T) {
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	options := &client.Options{Addr: server.Addr()}
	quarantine := goredis.Quarantine(options)
	shared := client.NewClient(options)
	t.Cleanup(func() { shared.Close() })
	told := goredis.New(shared, quarantine, redisstore.WithServerThatForgetsNothing())
	_ = goredis.New(shared, quarantine)
	mustTake(t, told)
	server.Kill()
	server.Restart()
	if _, err := told.SetNX(t.Context(), "other", "mine", quick); err == nil || !strings.Contains(err.Error(), "another store on this client was not told so") {
		t.Errorf("SetNX = %v; want quarantine", err)
	}
}

func TestTheDeclarationNeedsAQuarantine(t *testing.T) {
	for _, opts := range [][]redisstore.Option{
		{redisstore.WithServerThatForgetsNothing(), redisstore.WithoutQuarantine()},
		{redisstore.WithServerThatForgetsNothing(), redisstore.WithQuarantine(time.Minute)},
	} {
		store, c := goredis.Open(&client.Options{Addr: "127.0.0.1:1"}, opts...)
		c.Close()
		if _, err := store.SetNX(context.Background(), "key", "mine", time.Second); err == nil || !strings.HasPrefix(err.Error(), "redisstore.WithServerThatForgetsNothing: ") {
			t.Errorf("SetNX = %v; want an error of the option", err)
		}
	}
}

func declared(t *testing.T, server *redistest.Server) *locker.Client {
	t.Helper()
	store, c := goredis.Open(&client.Options{Addr: server.Addr()}, redisstore.WithServerThatForgetsNothing())
	t.Cleanup(func() { c.Close() })
	return locker.New(single.New(store))
}

func set(name, value string) func(t *testing.T, s *redistest.Server) {
	return func(t *testing.T, s *redistest.Server) {
		t.Helper()
		if _, err := s.Do("CONFIG", "SET", name, value); err != nil {
			t.Fatal(err)
		}
	}
}
