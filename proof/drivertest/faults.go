package drivertest

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/quarantinetest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/proof/wiretest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

var faulty = []storeSentence{
	{"a server that is down is a fault until it is not", serverDown},
	{"a call on a server that hangs ends with its ctx", hangingCalls},
	{"each error has the address of the server", errorsHaveTheAddress},
	{"a late reply is not taken for the next one", lateReply},
	{"only what may be sent twice is", sentOnce},
	{"a connection that breaks is replaced", brokenConnection},
	{"an Executor without a pipeline is no Pipeliner", noPipeline},
}

// patient are sentences that mostly wait, so they run beside others.
var patient = []storeSentence{
	{"Open gives up a server that hangs", openGivesUp},
	{"a silent connection for wake-ups is replaced", silentConnection},
	{"a lost reply keeps no lock from others", lostReply},
	{"a pool that the application uses up loses no lock", usedUpPool},
	{"idle connections that were forgotten without a reset fail no lock", forgottenConnections},
	{"idle connections with TLS that were closed fail no lock", closedConnections},
	{"an idle connection that ends as the next command comes fails no lock", endingConnection},
	{"TLS carries locks and wake-ups, between those who trust each other", overTLS},
	{"the users of docs/security.md suffice", usersSuffice},
	{"locks outlive a switchover that keeps the connections", func(t *testing.T, h Harness) {
		wiretest.Switchover(t, h.lasting, h.Lags)
	}},
	{"each error reply to each command is of the right class", func(t *testing.T, h Harness) {
		wiretest.ErrorReplies(t, h.lasting)
	}},
	{"errors say which server, what outcome and what to do", func(t *testing.T, h Harness) {
		wiretest.Messages(t, func(t *testing.T, to wiretest.Server, opts ...redisstore.Option) (*redisstore.Store, func()) {
			return h.Open(t, Server{Addr: to.Addr, TLS: to.Encrypt, Timeout: to.Timeout, Password: to.Password, Database: to.Database}, opts...)
		}, h.Greets)
	}},
	{"a server that turns connections away says why", func(t *testing.T, h Harness) {
		wiretest.TurnedAway(t, func(t *testing.T, to wiretest.Server, opts ...redisstore.Option) (*redisstore.Store, func()) {
			return h.Open(t, Server{Addr: to.Addr, Timeout: to.Timeout}, opts...)
		}, h.Greets)
	}},
	{"a server that may have forgotten locks is in quarantine", func(t *testing.T, h Harness) {
		a := quarantinetest.Adapter{
			Open: func(t *testing.T, addr, user, password string, opts ...redisstore.Option) *redisstore.Store {
				store, _ := h.Open(t, Server{Addr: addr, User: user, Password: password}, opts...)
				return store
			},
			New: func(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store {
				return h.store(t, Server{Addr: addr}, opts...)
			},
		}
		if !h.Shares {
			a.Pooled = func(t *testing.T, addr string, connections int, opts ...redisstore.Option) (*redisstore.Store, driver.Executor) {
				c := h.Connect(t, Server{Addr: addr, Pool: connections, Timeout: 2 * blocksFor, Quarantine: true})
				return c.New(opts...), c.Executor
			}
		}
		quarantinetest.Run(t, a)
	}},
}

// lasting is New of the adapter for locks that outlive a slow machine.
func (h Harness) lasting(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store {
	return h.store(t, Server{Addr: addr}, append(opts, redisstore.WithMaxTTL(time.Hour))...)
}

func serverDown(t *testing.T, h Harness) {
	server := redistest.Start(t)
	server.Kill()
	store := h.open(t, Server{Addr: server.Addr()})
	for range 2 {
		_, err := store.SetNX(t.Context(), "a", "token", 20*time.Second)
		if op := (*net.OpError)(nil); !errors.As(err, &op) || !backends.Unsent(err) {
			t.Errorf("SetNX = %v", err)
		}
	}
	if _, err := store.Check(t.Context()); err == nil {
		t.Error("Check = nil")
	}
	server.Restart()
	acquire(t, store, "a")
}

// ending is a way in which a ctx ends soon.
type ending struct {
	name  string
	start func(context.Context) (context.Context, context.CancelFunc)
	want  error
}

func (h Harness) endings() []ending {
	all := []ending{{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 50*time.Millisecond)
	}, context.DeadlineExceeded}}
	if h.OnlyDeadlines {
		return all
	}
	return append(all, ending{"cancellation", func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(50*time.Millisecond, cancel)
		return ctx, cancel
	}, context.Canceled})
}

func hangingCalls(t *testing.T, h Harness) {
	server := redistest.Start(t)
	to := Server{Addr: server.Addr(), Ends: true}
	used := h.store(t, to)
	acquire(t, used, "b")
	stores := map[string]*redisstore.Store{"on a new connection": h.store(t, to), "on a used one": used}
	server.Pause()
	defer server.Resume()
	for connection, store := range stores {
		for _, end := range h.endings() {
			ctx, cancel := end.start(t.Context())
			if _, err := store.SetNX(ctx, "a", "token", 20*time.Second); !errors.Is(err, end.want) {
				t.Errorf("%s, %s: SetNX = %v", connection, end.name, err)
			}
			cancel()
		}
	}
}

// errorsHaveTheAddress is about stores of Open. A client of redigo does not tell where its server is.
func errorsHaveTheAddress(t *testing.T, h Harness) {
	secret, hanging := redistest.Start(t, redistest.WithPassword("right")), redistest.Start(t)
	hanging.Pause()
	defer hanging.Resume()
	for name, c := range map[string]struct {
		to    Server
		limit time.Duration // of the ctx; negative: it has ended before
	}{
		"nobody listens":       {to: Server{Addr: "127.0.0.1:1"}},
		"a wrong password":     {to: Server{Addr: secret.Addr(), Password: "wrong"}},
		"a server that hangs":  {to: Server{Addr: hanging.Addr(), Ends: true}, limit: 500 * time.Millisecond},
		"a ctx that has ended": {to: Server{Addr: secret.Addr(), Password: "right"}, limit: -1},
	} {
		store := h.open(t, c.to)
		for call, do := range map[string]func(ctx context.Context) error{
			"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "a", "token", time.Second); return err },
			"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "a", "token", time.Second); return err },
			"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "a", "token"); return err },
			"Inspect":  func(ctx context.Context) error { _, err := store.Inspect(ctx, "a"); return err },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			if c.limit > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), c.limit)
			}
			if c.limit < 0 {
				cancel()
			}
			err := do(ctx)
			if err == nil || !strings.Contains(err.Error(), c.to.Addr) || c.limit < 0 && (!backends.Unsent(err) || !errors.Is(err, context.Canceled)) {
				t.Errorf("%s: %s = %v; want the address %s", name, call, err, c.to.Addr)
			}
			cancel()
		}
	}
}

func lateReply(t *testing.T, h Harness) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store := h.store(t, Server{Addr: proxy.Addr(), Ends: true})
	acquire(t, store, "held")
	faults := []redistest.Rule{{Fault: redistest.DelayReply, Delay: 500 * time.Millisecond, Commands: []string{"SET"}}}
	if !h.Shares {
		faults = append(faults, redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"SET"}})
	}
	for _, end := range h.endings() {
		for _, fault := range faults {
			key := end.name + fault.Fault.String()
			for take := 1; ; take++ { // on a machine that stands still, the reply comes before the end of the ctx
				proxy.Add(fault)
				ctx, cancel := end.start(t.Context())
				r, err := store.SetNX(ctx, key, "token", 20*time.Second)
				cancel()
				if r.OK && err == nil && take < trial.Takes {
					release(t, store, key)
					continue
				}
				if r.OK || !errors.Is(err, end.want) {
					t.Errorf("%s: SetNX = %v, %v", key, r, err)
				}
				break
			}
			if r, err := store.SetNX(t.Context(), "held", "other", 20*time.Second); r.OK || err != nil {
				t.Errorf("%s: the next SetNX = %v, %v", key, r, err)
			}
			release(t, store, key) // it was stored, and known to nobody
		}
	}
}

// sentOnce loses the request or the reply each time that the command of a call is sent.
func sentOnce(t *testing.T, h Harness) {
	const ttl = 20 * time.Second
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := h.store(t, Server{Addr: proxy.Addr()})
	optimistic := h.store(t, Server{Addr: proxy.Addr()}, redisstore.WithoutScripts())
	ctx := t.Context()
	for _, c := range []struct {
		name, command string
		call          func() error
		again         bool
	}{
		{"SetNX", "SET", func() error { _, err := s.SetNX(ctx, "a", "token", ttl); return err }, false},
		{"ExpireIf", "EVALSHA", func() error { _, err := s.ExpireIf(ctx, "a", "token", ttl); return err }, true},
		{"DeleteIf", "EVALSHA", func() error { _, err := s.DeleteIf(ctx, "a", "token"); return err }, false},
		{"SetNXQueued", "EVALSHA", func() error {
			_, err := s.SetNXQueued(ctx, "a", "token", ttl, backends.Turn{Waiter: "me"})
			return err
		}, false},
		{"SetNXNumbered", "EVALSHA", func() error { _, err := s.SetNXNumbered(ctx, "n", "token", ttl, backends.Turn{}); return err }, false},
		{"Enter", "EVALSHA", func() error {
			_, err := s.Enter(ctx, "h", "token", ttl, backends.Admission{Group: "me"})
			return err
		}, false},
		{"Renew", "EVALSHA", func() error { _, err := s.Renew(ctx, "h", "token", ttl); return err }, true},
		{"Leave", "EVALSHA", func() error { _, err := s.Leave(ctx, "h", "token"); return err }, false},
		{"SetNXForever", "SETNX", func() error { _, err := s.SetNXForever(ctx, "l", "value"); return err }, false},
		{"GetSet", "GETSET", func() error { _, _, err := s.GetSet(ctx, "l", "value"); return err }, false},
		{"Get", "GET", func() error { _, _, err := s.Get(ctx, "l"); return err }, true},
		{"Left", "PTTL", func() error { _, _, err := s.Left(ctx, "l"); return err }, true},
		{"Expire", "PEXPIRE", func() error { _, err := s.Expire(ctx, "l", ttl); return err }, true},
		{"Delete", "DEL", func() error { _, err := s.Delete(ctx, "l"); return err }, false},
		{"SetBit", "SETBIT", func() error { _, err := s.SetBit(ctx, "b", 7, true); return err }, false},
		{"GetBit", "GETBIT", func() error { _, err := s.GetBit(ctx, "b", 7); return err }, true},
		{"the end of a transaction", "EXEC", func() error { _, err := optimistic.SetNX(ctx, "t", "token", ttl); return err }, false},
	} {
		for _, fault := range []redistest.Fault{redistest.CutRequest, redistest.CutReply} {
			for range 2 { // the scripts are known to the server, and there is a connection
				if err := c.call(); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
			}
			before := proxy.Count(c.command)
			cut := proxy.Add(redistest.Rule{Fault: fault, Commands: []string{c.command}, Times: -1})
			err := c.call()
			cut.Remove()
			n := proxy.Count(c.command) - before
			if err == nil || backends.Permanent(err) || (n > 1) != (c.again && h.Repeats) {
				t.Errorf("%v: %s = %v, sent %d times", fault, c.name, err, n)
			}
		}
	}
}

func brokenConnection(t *testing.T, h Harness) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	store := h.store(t, Server{Addr: proxy.Addr()})
	for range 20 {
		acquire(t, store, "a")
		proxy.CutAll()
		eventually(t, "a call that is answered", func() bool { // one may meet the old connection
			ok, err := store.ExpireIf(t.Context(), "a", "token", 20*time.Second)
			return ok && err == nil
		})
	}
}

func openGivesUp(t *testing.T, h Harness) {
	server := redistest.Start(t)
	store := h.open(t, Server{Addr: server.Addr()})
	acquire(t, store, "a")
	server.Pause()
	defer server.Resume()
	for _, where := range []string{"on a connection", "connecting"} {
		_, err := store.SetNX(context.Background(), "b", "token", 20*time.Second) // a ctx that can't end
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SetNX %s = %v", where, err)
		}
	}
}

// silentConnection waits for two pings, some seconds. Open sets a read timeout that is shorter.
func silentConnection(t *testing.T, h Harness) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	store := h.open(t, Server{Addr: proxy.Addr()})
	woken := watch(t.Context(), t, store, "a")
	eventually(t, "a ping", func() bool { return proxy.Count("PING") > 0 })
	if n := proxy.Count("SUBSCRIBE"); n != 1 {
		t.Errorf("subscribed %d times while all was well", n)
	}
	proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"PING"}, Times: 2}) // on another connection too, if there is one
	await(t, "a wake-up on a new connection", woken)
}

// lostReply waits until the connection is given up, some seconds.
func lostReply(t *testing.T, h Harness) {
	for _, command := range []string{"SET", "EVALSHA"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			store := h.open(t, Server{Addr: proxy.Addr()}, redisstore.WithMaxTTL(time.Hour))
			locks := locker.New(single.New(store), locker.WithTTL(10*time.Minute), locker.WithoutRenewal())
			warm, err := locks.Lock(t.Context(), "a") // so that EVALSHA is the release, and no NOSCRIPT
			if err != nil {
				t.Fatal(err)
			}
			if err := warm.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{command}})
			ctx := t.Context()
			if command == "SET" { // the answer to Lock is lost
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
			}
			l, err := locks.Lock(ctx, "a")
			if (err == nil) == (command == "SET") || errors.Is(err, locker.ErrHeld) {
				t.Fatalf("Lock = %v", err)
			}
			if err == nil {
				if err := l.Unlock(t.Context()); err != nil { // it is sent again
					t.Errorf("Unlock = %v", err)
				}
			}
			eventually(t, "the lock is free", func() bool { return do(t, server, "EXISTS", "a") == int64(0) })
			eventually(t, "a lock for the next one", func() bool { // when the connection was given up
				other, err := locks.Lock(t.Context(), "a")
				if err == nil {
					err = other.Unlock(t.Context())
				}
				if errors.Is(err, locker.ErrHeld) {
					t.Errorf("Lock = %v", err)
				}
				return err == nil
			})
		})
	}
}
