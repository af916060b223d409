package single_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// These tests use a real server and a real client library, with the library's own options and
// retries.

// patience is how long a test waits for what must happen on any machine.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

func exists(t *testing.T, s *redistest.Server, key string) bool {
	t.Helper()
	n, err := s.Do("EXISTS", key)
	if err != nil {
		t.Fatal(err)
	}
	return n == int64(1)
}

// behindProxy returns a Client that talks to a real server through a proxy, with the defaults of
// go-redis except for change.
func behindProxy(t *testing.T, change func(*redis.Options), opts ...locker.ClientOption) (*locker.Client, *redistest.Proxy, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	o := &redis.Options{Addr: proxy.Addr()}
	if change != nil {
		change(o)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return locker.New(single.New(goredis.New(client, beneath.Long)), opts...), proxy, server
}

func isRelease(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return strings.HasSuffix(arg, ":wake") })
}

func isScript(args []string) bool { return strings.HasPrefix(strings.ToUpper(args[0]), "EVAL") }

// The server has executed the command, and the connection breaks before its reply. That must not
// count as held or lost, and nothing may stay locked.

func TestALostReplyToAcquireIsNotReportedAsHeld(t *testing.T) {
	locks, proxy, server := behindProxy(t, nil, locker.WithTTL(time.Minute))
	lost := proxy.Add(redistest.Rule{Fault: redistest.CutReply, Commands: []string{"SET"}})
	_, err := locks.Lock(t.Context(), "key")
	if err == nil || errors.Is(err, locker.ErrHeld) {
		t.Errorf("Lock = %v", err)
	}
	wait(t, "the reply is lost", lost.Fired())
	eventually(t, "the key is gone, long before its TTL", func() bool { return !exists(t, server, "key") })
	l, err := locks.Lock(t.Context(), "key")
	if err != nil {
		t.Fatalf("the next Lock = %v", err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASetThatArrivesLateLeavesNoKey(t *testing.T) {
	locks, proxy, server := behindProxy(t, func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond }, locker.WithTTL(time.Minute))
	late := proxy.Add(redistest.Rule{Fault: redistest.DelayRequest, Delay: 1500 * time.Millisecond, Commands: []string{"SET"}})
	_, err := locks.Lock(t.Context(), "key")
	if err == nil || errors.Is(err, locker.ErrHeld) {
		t.Errorf("Lock = %v", err)
	}
	wait(t, "the SET is on its way", late.Fired())
	eventually(t, "the SET has arrived", func() bool { return exists(t, server, "key") })
	stays(t, server, "key")
}

func TestAcquireWhoseRepliesAllGetLostLeavesNoKey(t *testing.T) {
	for _, fault := range []redistest.Fault{redistest.CutReply, redistest.CutRequest} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			locks, proxy, server := behindProxy(t, nil, locker.WithTTL(time.Minute))
			lost := proxy.Add(redistest.Rule{Fault: fault, Times: -1, Match: func(args []string) bool {
				return strings.EqualFold(args[0], "SET") || isScript(args)
			}})
			_, err := locks.Lock(t.Context(), "key")
			if err == nil || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) {
				t.Errorf("Lock = %v: unknown is not held", err)
			}
			wait(t, "a reply is lost", lost.Fired())
			lost.Remove()
			eventually(t, "the key is gone, long before its TTL", func() bool { return !exists(t, server, "key") })
		})
	}
}

func TestALostReplyToExtendLosesNothing(t *testing.T) {
	locks, proxy, server := behindProxy(t, nil, locker.WithTTL(time.Minute))
	l, err := locks.Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	before := l.Lease().Expires
	lost := proxy.Add(redistest.Rule{Fault: redistest.CutReply, Match: func(args []string) bool { return isScript(args) && !isRelease(args) }})
	if err := l.Extend(t.Context(), 2*time.Minute); err != nil {
		t.Errorf("Extend = %v", err)
	}
	wait(t, "the reply is lost", lost.Fired())
	if after := l.Lease().Expires; !after.After(before.Add(30 * time.Second)) {
		t.Errorf("Expires moved from %v to %v", before, after)
	}
	if err := l.Unlock(t.Context()); err != nil || exists(t, server, "key") {
		t.Errorf("Unlock = %v, key still there: %v", err, exists(t, server, "key"))
	}
}

func TestRenewalSurvivesRepliesThatGetLost(t *testing.T) {
	for _, fault := range []redistest.Fault{redistest.CutReply, redistest.LoseReply, redistest.LoseRequest} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			locks, proxy, server := behindProxy(t, nil, locker.WithTTL(3*time.Second))
			l, err := locks.Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			first := l.Lease().Expires
			lost := proxy.Add(redistest.Rule{Fault: fault, Match: func(args []string) bool { return isScript(args) && !isRelease(args) }})
			wait(t, "the reply is lost", lost.Fired())
			eventually(t, "the lease goes on", func() bool { return l.Lease().Expires.After(first) })
			if err := context.Cause(l.Context()); err != nil {
				t.Errorf("the lock is lost: %v", err)
			}
			if err := l.Unlock(t.Context()); err != nil || exists(t, server, "key") {
				t.Errorf("Unlock = %v, key still there: %v", err, exists(t, server, "key"))
			}
		})
	}
}

func TestALostReplyToReleaseIsNoLoss(t *testing.T) {
	for _, fault := range []redistest.Fault{redistest.CutReply, redistest.LoseReply} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			locks, proxy, server := behindProxy(t, nil, locker.WithTTL(time.Minute))
			l, err := locks.Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			lost := proxy.Add(redistest.Rule{Fault: fault, Match: func(args []string) bool {
				return isScript(args) && isRelease(args)
			}, Nth: 2}) // the first reply is NOSCRIPT
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			wait(t, "the reply is lost", lost.Fired())
			if exists(t, server, "key") {
				t.Error("the key is still there")
			}
		})
	}
}

// A stopped server accepts every command and answers none. When it goes on, it executes all of
// them.

func TestLockReturnsWithItsCtxWhileTheServerIsStopped(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*redis.Options)
		stop   time.Duration // how much longer the server is stopped
	}{
		{"go-redis as it comes", nil, 0},
		{"short socket timeouts, stopped for longer", func(o *redis.Options) {
			o.ReadTimeout, o.WriteTimeout, o.DialTimeout, o.MaxRetries = 500*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond, 2
		}, 2 * time.Second},
		{"short socket timeouts, no retries", func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 500*time.Millisecond, -1 }, time.Second},
		{"deadlines honoured", func(o *redis.Options) { o.ContextTimeoutEnabled = true }, 300 * time.Millisecond},
		{"no timeouts at all", func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -1, -1 }, 300 * time.Millisecond},
	} {
		for _, end := range []string{"deadline", "cancel"} {
			t.Run(c.name+", "+end, func(t *testing.T) {
				t.Parallel()
				locks, _, server := behindProxy(t, c.change, locker.WithTTL(time.Minute))
				warm, err := locks.Lock(t.Context(), "warm")
				if err != nil {
					t.Fatal(err)
				}
				if err := warm.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				server.Pause()
				ctx, cancel := context.WithCancel(t.Context())
				want := context.Canceled
				if end == "deadline" {
					ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
					want = context.DeadlineExceeded
				} else {
					time.AfterFunc(30*time.Millisecond, cancel)
				}
				defer cancel()
				if _, err = locks.Lock(ctx, "key"); !errors.Is(err, want) || errors.Is(err, locker.ErrHeld) {
					t.Errorf("Lock = %v, want %v alone", err, want)
				}
				// Lock has returned, and the server is still stopped.
				time.Sleep(c.stop)
				server.Resume()
				stays(t, server, "key")
			})
		}
	}
}

// stays waits until key has been absent for a while: a late SET may still be on its way.
func stays(t *testing.T, server *redistest.Server, key string) {
	t.Helper()
	absent := time.Now()
	eventually(t, key+" stays absent", func() bool {
		if exists(t, server, key) {
			absent = time.Now()
		}
		return time.Since(absent) > 4*time.Second
	})
}

// A waiter also learns at once that it lacks a permission.

func TestAMissingPermissionEndsTheWaitAtOnce(t *testing.T) {
	server := redistest.Start(t)
	for user, rules := range map[string][]string{
		"nowatch":  {"+@all", "-subscribe"},
		"noscript": {"+@all", "-evalsha", "-eval"},
		"noset":    {"+@all", "-set"},
	} {
		if _, err := server.Do(append([]string{"ACL", "SETUSER", user, "on", ">secret", "~*", "&*"}, rules...)...); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "secret"})
		defer client.Close()
		if _, err := server.Do("SET", "key", "someone", "PX", "600000"); err != nil {
			t.Fatal(err)
		}
		_, err := locker.New(single.New(goredis.New(client, beneath.Long))).Lock(t.Context(), "key")
		var typed interface{ ErrorType() string }
		if err == nil || errors.Is(err, locker.ErrHeld) || !errors.As(err, &typed) || typed.ErrorType() != "redis_noperm" {
			t.Errorf("%s: Lock = %v", user, err)
		}
	}
}
