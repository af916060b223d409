package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// startReplicated starts a master and n replicas that follow it.
func startReplicated(t *testing.T, n int) (master *redistest.Server, replicas []*redistest.Server) {
	t.Helper()
	master = redistest.Start(t)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replicas = redistest.StartN(t, n, redistest.WithArgs("--replicaof", host, port, "--repl-diskless-sync-delay", "0"))
	eventually(t, "all replicas follow", func() bool {
		reply, _ := master.Do("INFO", "replication")
		info, _ := reply.(string)
		return strings.Count(info, "state=online") == n
	})
	return master, replicas
}

// acknowledging has all the time that a test needs; short is for what will not come.
const (
	acknowledging = 4 * time.Second
	short         = 20 * time.Millisecond
)

// replicatedCalls are those that replicas have to acknowledge. The key b has the token already, and
// its number is 1, or has a hold of it.
var replicatedCalls = map[string]func(ctx context.Context, s *redisstore.Store) (ok bool, err error){
	"SetNX": func(ctx context.Context, s *redisstore.Store) (bool, error) {
		r, err := s.SetNX(ctx, "a", "token", 20*time.Second)
		return r.OK, err
	},
	"SetNXFenced": func(ctx context.Context, s *redisstore.Store) (bool, error) {
		r, err := s.SetNXNumbered(ctx, "a", "token", 20*time.Second, backends.Turn{})
		return r.OK, err
	},
	"Enter": func(ctx context.Context, s *redisstore.Store) (bool, error) {
		r, err := s.Enter(ctx, "a", "token", 20*time.Second, backends.Admission{Group: "me"})
		return r.OK, err
	},
	"ExpireIf": func(ctx context.Context, s *redisstore.Store) (bool, error) {
		return s.ExpireIf(ctx, "b", "token", 30*time.Second)
	},
	"RaiseFence": func(ctx context.Context, s *redisstore.Store) (bool, error) {
		return s.RaiseFence(ctx, "b", "token", 7)
	},
	"Renew": func(ctx context.Context, s *redisstore.Store) (bool, error) {
		return s.Renew(ctx, "b", "token", 30*time.Second)
	},
}

// prepare makes b what a call wants it to be.
func prepare(t *testing.T, s *redisstore.Store, call string) {
	t.Helper()
	var r backends.Result
	var err error
	if call == "Renew" {
		r, err = s.Enter(t.Context(), "b", "token", 20*time.Second, backends.Admission{Group: "me"})
	} else {
		r, err = s.SetNXFenced(t.Context(), "b", "token", 20*time.Second)
	}
	if err != nil || !r.OK {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestAllReplicasAcknowledgeGrantsAndExtensions(t *testing.T) {
	t.Parallel()
	master, replicas := startReplicated(t, 2)
	c := dial(t, &client.Options{Addr: master.Addr()})
	plain := goredis.New(c)
	for call, do := range replicatedCalls {
		t.Run(call, func(t *testing.T) {
			s := goredis.New(c, redisstore.WithReplicas(2, acknowledging))
			prepare(t, plain, call)
			if ok, err := do(t.Context(), s); err != nil || !ok {
				t.Fatalf("%s = %v, %v", call, ok, err)
			}
			key := map[bool]string{true: "a", false: "b"}[exists(t, master, "a")]
			for _, r := range append(replicas, master) {
				if !exists(t, r, key) {
					t.Errorf("%s on %s: it was not there when the call returned", key, r.Addr())
				}
			}
			if _, err := master.Do("FLUSHALL"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAGrantThatAReplicaDoesNotHaveIsTakenBackAndAnExtensionLeft(t *testing.T) {
	t.Parallel()
	master, replicas := startReplicated(t, 2)
	c := dial(t, &client.Options{Addr: master.Addr()})
	replicas[1].CutReplication()
	plain := goredis.New(c)
	for _, n := range []int{2, 3} {
		for call, do := range replicatedCalls {
			t.Run(fmt.Sprintf("%s, %d needed", call, n), func(t *testing.T) {
				s := goredis.New(c, redisstore.WithReplicas(n, short))
				prepare(t, plain, call)
				ok, err := do(t.Context(), s)
				missing, refused := (*redisstore.ReplicasError)(nil), interface{ Permanent() bool }(nil)
				// On a slow machine the one that is left may not be in time either.
				if ok || !errors.As(err, &missing) || missing.Acknowledged > 1 || missing.Needed != n || errors.As(err, &refused) {
					t.Errorf("%s = %v, %v", call, ok, err)
				}
				if exists(t, master, "a") {
					t.Error("the grant is still there")
				}
				if !exists(t, master, "b") {
					t.Error("what was to be extended is gone")
				}
				if _, err := master.Do("FLUSHALL"); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	locks := locker.New(single.New(goredis.New(c, redisstore.WithReplicas(2, short))))
	_, err := locks.TryLock(t.Context(), "a")
	if typed := (*locker.Error)(nil); !errors.As(err, &typed) || typed.ErrorType() != "replicas" || errors.Is(err, locker.ErrHeld) {
		t.Fatalf("TryLock = %v", err)
	}
	replicas[1].MendReplication()
	locks = locker.New(single.New(goredis.New(c, redisstore.WithReplicas(2, acknowledging))))
	l, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatalf("Lock when the replica is back = %v", err)
	}
	mustUnlock(t, l)
}

func TestARepeatedGrantAndOneWithoutScriptsNeedReplicasToo(t *testing.T) {
	t.Parallel()
	master, replicas := startReplicated(t, 1)
	c := dial(t, &client.Options{Addr: master.Addr()})
	for _, mode := range [][]redisstore.Option{nil, {redisstore.WithoutScripts()}} {
		s := goredis.New(c, append(mode, redisstore.WithReplicas(1, acknowledging))...)
		hurried := goredis.New(c, append(mode, redisstore.WithReplicas(1, short))...)
		for range 2 {
			if r, err := s.SetNX(t.Context(), "a", "token", 20*time.Second); err != nil || !r.OK {
				t.Fatalf("SetNX = %+v, %v", r, err)
			}
		}
		if ok, err := s.ExpireIf(t.Context(), "a", "token", 30*time.Second); err != nil || !ok {
			t.Fatalf("ExpireIf = %v, %v", ok, err)
		}
		replicas[0].CutReplication()
		if r, err := hurried.SetNX(t.Context(), "a", "other", 20*time.Second); err != nil || r.OK || r.Left == 0 {
			t.Errorf("SetNX of what is held = %+v, %v", r, err)
		}
		if ok, err := hurried.ExpireIf(t.Context(), "a", "other", 30*time.Second); err != nil || ok {
			t.Errorf("ExpireIf of what is not ours = %v, %v", ok, err)
		}
		missing := (*redisstore.ReplicasError)(nil)
		if ok, err := hurried.ExpireIf(t.Context(), "a", "token", 30*time.Second); ok || !errors.As(err, &missing) || !exists(t, master, "a") {
			t.Errorf("ExpireIf = %v, %v", ok, err)
		}
		if r, err := hurried.SetNX(t.Context(), "a", "token", 20*time.Second); r.OK || !errors.As(err, &missing) || exists(t, master, "a") {
			t.Errorf("SetNX again = %+v, %v", r, err)
		}
		replicas[0].MendReplication()
	}
}

func TestWaitGoesInOnePipelineWithTheCommand(t *testing.T) {
	t.Parallel()
	master, _ := startReplicated(t, 1)
	for _, command := range []string{"SET", "EVALSHA", "EVAL"} {
		proxy := redistest.NewProxy(t, master.Addr())
		s := goredis.New(dial(t, &client.Options{Addr: proxy.Addr()}), redisstore.WithReplicas(1, acknowledging))
		if command == "EVAL" {
			if _, err := master.Do("SCRIPT", "FLUSH"); err != nil {
				t.Fatal(err)
			}
		}
		proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{command}})
		answer := make(chan error)
		go func() {
			var err error
			if command == "SET" {
				_, err = s.SetNX(t.Context(), "a", "token", 20*time.Second)
			} else {
				_, err = s.SetNXNumbered(t.Context(), "a", "token", 20*time.Second, backends.Turn{})
			}
			answer <- err
		}()
		eventually(t, "WAIT is sent before the reply to "+command, func() bool {
			seen := proxy.Seen()
			i := slices.Index(seen, command)
			return i >= 0 && i+1 < len(seen) && seen[i+1] == "WAIT"
		})
		proxy.CutAll()
		if err := <-answer; err == nil {
			t.Errorf("%s: no error", command)
		}
	}
}

func TestWithoutThePermissionForWaitAGrantIsTakenBack(t *testing.T) {
	t.Parallel()
	s := guard(t)
	s.grant("locks", "reset", "on", ">secret", "~*", "&*", "+@all", "-wait")
	store := goredis.New(dial(t, s.as("locks")), redisstore.WithReplicas(1, short))
	plain := goredis.New(dial(t, s.as("locks")))
	for call, do := range replicatedCalls {
		prepare(t, plain, call)
		ok, err := do(t.Context(), store)
		if ok || !isPermanent(err, "NOPERM") {
			t.Errorf("%s = %v, %v", call, ok, err)
		}
		if exists(t, s.Server, "a") || !exists(t, s.Server, "b") {
			t.Errorf("%s: the grant is there: %v; what was extended: %v", call, exists(t, s.Server, "a"), exists(t, s.Server, "b"))
		}
		s.do("DEL", "b")
	}
	// If that fails, someone has to clean up: the error is no refusal.
	s.grant("locks", "-evalsha", "-eval")
	_, err := store.SetNX(t.Context(), "a", "token", 20*time.Second)
	if !exists(t, s.Server, "a") || err == nil {
		t.Errorf("SetNX = %v", err)
	}
	proxy := redistest.NewProxy(t, s.Addr())
	s.grant("locks", "+evalsha", "+eval")
	o := s.as("locks")
	o.Addr = proxy.Addr()
	proxy.Add(redistest.Rule{Fault: redistest.CutRequest, Commands: []string{"EVALSHA"}, Times: -1})
	_, err = goredis.New(dial(t, o), redisstore.WithReplicas(1, short)).SetNX(t.Context(), "c", "token", 20*time.Second)
	if refused := (interface{ Permanent() bool })(nil); err == nil || errors.As(err, &refused) && refused.Permanent() {
		t.Errorf("SetNX that could not be taken back = %v: it must not say that there is nothing to clean up", err)
	}
}

func TestReplicasThatCanNotBeAreRefusedAtEveryCall(t *testing.T) {
	s, err := redistest.Start(t), error(nil)
	c := dial(t, &client.Options{Addr: s.Addr()})
	for want, option := range map[string]redisstore.Option{
		"WithMaxTTL: -1ns is under 1ms":                       redisstore.WithMaxTTL(-1),
		"WithMaxTTL: 87600h0m0.000000001s is over 87600h0m0s": redisstore.WithMaxTTL(10*365*24*time.Hour + 1),
		"number of replicas 0 is under 1":                     redisstore.WithReplicas(0, time.Second),
		"number of replicas -1 is under 1":                    redisstore.WithReplicas(-1, time.Second),
		"timeout 0s is under 1ms":                             redisstore.WithReplicas(1, 0),
		"timeout 999µs is under 1ms":                          redisstore.WithReplicas(1, 999*time.Microsecond),
	} {
		store := goredis.New(c, option)
		calls := map[string]func() error{
			"DeleteIf":     func() error { _, err = store.DeleteIf(t.Context(), "a", "token"); return err },
			"Leave":        func() error { _, err = store.Leave(t.Context(), "a", "token"); return err },
			"Watch":        func() error { return store.Watch(t.Context(), "a", func() {}) },
			"SetNXForever": func() error { _, err = store.SetNXForever(t.Context(), "a", "value"); return err },
			"TxDeleteIf":   func() error { _, err = store.TxDeleteIf(t.Context(), "a", "value"); return err },
		}
		for name, call := range replicatedCalls {
			calls[name] = func() error { _, err := call(t.Context(), store); return err }
		}
		for name, call := range calls {
			err := call()
			if refused := (interface{ Permanent() bool })(nil); !errors.As(err, &refused) || !refused.Permanent() || !strings.Contains(err.Error(), want) {
				t.Errorf("%s = %v, want a refusal: %s", name, err, want)
			}
		}
	}
	if n, err := s.Do("DBSIZE"); n != int64(0) || err != nil {
		t.Errorf("%v keys, %v", n, err)
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
