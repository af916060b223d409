package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

func TestWithoutScriptsNoScriptIsSent(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := goredis.New(dial(t, &client.Options{Addr: proxy.Addr()}), redisstore.WithoutScripts(), hour)
	sent := func(want string, call func() error) {
		t.Helper()
		before := len(proxy.Seen())
		if err := call(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		got := slices.DeleteFunc(proxy.Seen()[before:], func(name string) bool { return name == "HELLO" || name == "CLIENT" })
		if strings.Join(got, " ") != want {
			t.Errorf("sent %v, want %s", got, want)
		}
	}
	set := func(token string, ttl time.Duration) func() error {
		return func() error { _, err := s.SetNX(t.Context(), "a", token, ttl); return err }
	}
	expire := func(token string, ttl time.Duration) func() error {
		return func() error { _, err := s.ExpireIf(t.Context(), "a", token, ttl); return err }
	}
	remove := func(token string) func() error {
		return func() error { _, err := s.DeleteIf(t.Context(), "a", token); return err }
	}
	sent("SET", set("mine", 20*time.Second))
	sent("SET MULTI GET PTTL EXEC", set("theirs", 20*time.Second))
	sent("MULTI EXEC WATCH GET PTTL MULTI PEXPIRE EXEC", expire("mine", 30*time.Minute)) // MULTI is tried once
	// which lives long enough
	sent("WATCH GET PTTL MULTI GET EXEC", expire("mine", 20*time.Second))
	sent("WATCH GET PTTL UNWATCH", expire("theirs", time.Hour))
	sent("SET MULTI GET PTTL EXEC WATCH GET PTTL MULTI PEXPIRE EXEC", set("mine", time.Hour))
	// which lives long enough
	sent("SET MULTI GET PTTL EXEC WATCH GET PTTL MULTI GET EXEC", set("mine", 20*time.Second))
	sent("WATCH GET UNWATCH", remove("theirs"))
	sent("WATCH GET MULTI DEL PUBLISH EXEC", remove("mine"))
}

func TestWithoutScriptsNumbersAndNestsAreRefused(t *testing.T) {
	server := redistest.Start(t)
	s := goredis.New(dial(t, &client.Options{Addr: server.Addr()}), redisstore.WithoutScripts())
	ctx := t.Context()
	for call, do := range map[string]func() error{
		"SetNXFenced": func() error {
			_, err := s.SetNXNumbered(ctx, "a", "token", 20*time.Second, backends.Turn{})
			return err
		},
		"RaiseFence": func() error { _, err := s.RaiseFence(ctx, "a", "token", 7); return err },
		"Enter": func() error {
			_, err := s.Enter(ctx, "a", "token", 20*time.Second, backends.Admission{Group: "me"})
			return err
		},
		"Renew": func() error { _, err := s.Renew(ctx, "a", "token", 20*time.Second); return err },
		"Leave": func() error { _, err := s.Leave(ctx, "a", "token"); return err },
	} {
		err := do()
		if refused := (interface{ Permanent() bool })(nil); !errors.As(err, &refused) || !refused.Permanent() || !strings.Contains(err.Error(), "WithoutScripts") {
			t.Errorf("%s = %v, want a refusal that names WithoutScripts", call, err)
		}
	}
}

// before calls do before the nth pipeline that has command in it, and forgets it then.
type before struct {
	command string
	nth     int
	do      func()
}

func (b *before) DialHook(next client.DialHook) client.DialHook          { return next }
func (b *before) ProcessHook(next client.ProcessHook) client.ProcessHook { return next }
func (b *before) ProcessPipelineHook(next client.ProcessPipelineHook) client.ProcessPipelineHook {
	return func(ctx context.Context, cmds []client.Cmder) error {
		if slices.ContainsFunc(cmds, func(c client.Cmder) bool { return strings.EqualFold(c.Name(), b.command) }) {
			if b.nth--; b.nth == 0 {
				b.do()
			}
		}
		return next(ctx, cmds)
	}
}

// What happens between the look at a key and the transaction that it leads to must count.
func TestWithoutScriptsAChangeInBetweenCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, _ *redisstore.Store, outside *client.Client) {
		ctx := t.Context()
		addr := outside.Options().Addr
		value := func() string { return outside.Get(ctx, "a").Val() }
		steal := func() { outside.Set(ctx, "a", "theirs", 20*time.Second) }
		free := func() { outside.Del(ctx, "a") }
		touch := func() { outside.PExpire(ctx, "a", 2*time.Minute) }
		again := func() { outside.Set(ctx, "a", "mine", 5*time.Second) } // the same value with another life
		for _, c := range []struct {
			name    string
			held    string // before the call
			call    func(s *redisstore.Store) (bool, error)
			command string
			change  func()
			ok      bool
			value   string // after the call
		}{
			{"stolen before PEXPIRE", "mine", expireMine, "PEXPIRE", steal, false, "theirs"},
			{"released before PEXPIRE", "mine", expireMine, "PEXPIRE", free, false, ""},
			{"extended before PEXPIRE", "mine", expireMine, "PEXPIRE", touch, true, "mine"},
			{"stolen before the DEL", "mine", deleteMine, "DEL", steal, false, "theirs"},
			{"released before the DEL", "mine", deleteMine, "DEL", free, false, ""},
			{"extended before the DEL", "mine", deleteMine, "DEL", touch, true, ""},
			{"free when looked at", "theirs", setMine, "PTTL", free, true, "mine"},
			{"ours when looked at", "theirs", setMine, "PTTL", again, true, "mine"},
			{"stolen before it is given its ttl anew", "mine", setMine, "PEXPIRE", steal, false, "theirs"},
			{"released before it is given its ttl anew", "mine", setMine, "PEXPIRE", free, true, "mine"},
			{"stolen before the legacy PEXPIRE", "mine", txExpireMine, "PEXPIRE", steal, false, "theirs"},
			{"extended before the legacy PEXPIRE", "mine", txExpireMine, "PEXPIRE", touch, true, "mine"},
			{"stolen before the legacy DEL", "mine", txDeleteMine, "DEL", steal, false, "theirs"},
			{"extended before the legacy DEL", "mine", txDeleteMine, "DEL", touch, true, ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				outside.Set(ctx, "a", c.held, 10*time.Minute)
				hooked := dial(t, &client.Options{Addr: addr})
				changed := false
				hooked.AddHook(&before{command: c.command, nth: 1, do: func() {
					c.change()
					changed = true
				}})
				ok, err := c.call(goredis.New(hooked, redisstore.WithoutScripts(), hour))
				if err != nil || ok != c.ok || value() != c.value || !changed {
					t.Errorf("%v, %v, and the key holds %q; changed in between: %v", ok, err, value(), changed)
				}
				if left := outside.PTTL(ctx, "a").Val(); c.ok && c.value == "mine" && left < time.Minute {
					t.Errorf("it lives for %v", left)
				}
			})
		}
	})
}

func setMine(s *redisstore.Store) (bool, error) {
	r, err := s.SetNX(context.Background(), "a", "mine", time.Hour)
	return r.OK, err
}

func expireMine(s *redisstore.Store) (bool, error) {
	return s.ExpireIf(context.Background(), "a", "mine", time.Hour)
}

func deleteMine(s *redisstore.Store) (bool, error) {
	return s.DeleteIf(context.Background(), "a", "mine")
}

func txExpireMine(s *redisstore.Store) (bool, error) {
	return s.TxExpireIf(context.Background(), "a", "mine", time.Hour)
}

func txDeleteMine(s *redisstore.Store) (bool, error) {
	return s.TxDeleteIf(context.Background(), "a", "mine")
}

// An extension that has nothing to do must not take the life of one value and the name of another
// for one fact.
func TestWithoutScriptsALongLifeIsThatOfTheTokenItself(t *testing.T) {
	onBoth(t, func(t *testing.T, _ *redisstore.Store, outside *client.Client) {
		ctx := t.Context()
		outside.Set(ctx, "a", "mine", 50*time.Minute)
		hooked := dial(t, outside.Options())
		hooked.AddHook(&before{command: "MULTI", nth: 2, do: func() { outside.Set(ctx, "a", "mine", time.Second) }})
		s := goredis.New(hooked, redisstore.WithoutScripts(), hour)
		if ok, err := s.ExpireIf(ctx, "a", "mine", 40*time.Minute); err != nil || !ok {
			t.Fatalf("ExpireIf = %v, %v", ok, err)
		}
		if left := outside.PTTL(ctx, "a").Val(); left < 30*time.Minute {
			t.Errorf("it lives for %v", left)
		}
	})
}

func TestAKeyThatKeepsChangingIsAnUnknownOutcome(t *testing.T) {
	server := redistest.Start(t)
	outside := dial(t, &client.Options{Addr: server.Addr()})
	c := dial(t, &client.Options{Addr: server.Addr()})
	n := 0
	c.AddHook(always(func() {
		n++
		outside.PExpire(t.Context(), "a", time.Minute+time.Duration(n)*time.Second)
	}))
	s := goredis.New(c, redisstore.WithoutScripts(), hour)
	outside.Set(t.Context(), "a", "mine", 20*time.Second)
	for call, do := range map[string]func(*redisstore.Store) (bool, error){
		"SetNX": setMine, "ExpireIf": expireMine, "DeleteIf": deleteMine, "TxExpireIf": txExpireMine, "TxDeleteIf": txDeleteMine,
	} {
		ok, err := do(s)
		if refused := (interface{ Permanent() bool })(nil); ok || err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "changed") {
			t.Errorf("%s = %v, %v", call, ok, err)
		}
	}
}

// always calls itself before each transaction that changes something.
type always func()

func (a always) DialHook(next client.DialHook) client.DialHook          { return next }
func (a always) ProcessHook(next client.ProcessHook) client.ProcessHook { return next }
func (a always) ProcessPipelineHook(next client.ProcessPipelineHook) client.ProcessPipelineHook {
	return func(ctx context.Context, cmds []client.Cmder) error {
		if slices.ContainsFunc(cmds, func(c client.Cmder) bool { return c.Name() == "pexpire" || c.Name() == "del" }) {
			a()
		}
		return next(ctx, cmds)
	}
}

func TestWithoutScriptsAReleaseThatMayNotPublishFreesTheLock(t *testing.T) {
	for _, less := range []string{"-publish", "resetchannels"} {
		s := guard(t)
		s.grant("locks", "reset", "on", ">secret", "~*", "&*", "+@all", "-@scripting", less)
		store := goredis.New(dial(t, s.as("locks")), redisstore.WithoutScripts(), hour)
		if ok, err := setMine(store); !ok {
			t.Fatal(err)
		}
		if ok, err := store.DeleteIf(t.Context(), "a", "theirs"); ok || err != nil {
			t.Errorf("with %s DeleteIf of what is not ours = %v, %v", less, ok, err)
		}
		if ok, err := deleteMine(store); ok || !isPermanent(err, "NOPERM") || exists(t, s.Server, "a") {
			t.Errorf("with %s DeleteIf = %v, %v", less, ok, err)
		}
		if ok, err := deleteMine(store); ok || err != nil {
			t.Errorf("with %s DeleteIf of a free lock = %v, %v", less, ok, err)
		}
	}
}

// Without MULTI the commands that follow it would be carried out at once, whatever has changed
// since the look.
func TestWithoutMultiOrExecNothingIsDone(t *testing.T) {
	for _, less := range []string{"-multi", "-exec", "-watch"} {
		s := guard(t)
		outside := dial(t, &client.Options{Addr: s.Addr()})
		s.grant("locks", "reset", "on", ">secret", "~*", "&*", "+@all", less)
		for call, do := range map[string]func(*redisstore.Store) (bool, error){
			"ExpireIf": expireMine, "DeleteIf": deleteMine, "TxExpireIf": txExpireMine, "TxDeleteIf": txDeleteMine, "SetNX": setMine,
		} {
			outside.Set(t.Context(), "a", "mine", 20*time.Second)
			c := dial(t, s.as("locks"))
			ok, err := do(goredis.New(c, redisstore.WithoutScripts(), hour))
			if ok || !isPermanent(err, "NOPERM") {
				t.Errorf("with %s %s = %v, %v", less, call, ok, err)
			}
			if left := outside.PTTL(t.Context(), "a").Val(); left > time.Minute || left <= 0 {
				t.Errorf("with %s %s has made it live for %v", less, call, left)
			}
			if err := c.Set(t.Context(), "b", "1", 0).Err(); err != nil {
				t.Errorf("with %s: the connection after %s: %v", less, call, err)
			}
		}
	}
}

// go-redis gives a connection back with what was watched on it by a WATCH of our own.
func TestNothingStaysWatchedOnAConnection(t *testing.T) {
	onBoth(t, func(t *testing.T, _ *redisstore.Store, outside *client.Client) {
		ctx := t.Context()
		outside.Set(ctx, "a", "theirs", 0)
		o := *outside.Options()
		o.PoolSize = 1
		c := dial(t, &o)
		s := goredis.New(c, redisstore.WithoutScripts(), hour)
		for call, do := range map[string]func(*redisstore.Store) (bool, error){
			"ExpireIf": expireMine, "DeleteIf": deleteMine, "TxExpireIf": txExpireMine, "TxDeleteIf": txDeleteMine, "SetNX": setMine,
		} {
			if ok, err := do(s); ok || err != nil {
				t.Fatalf("%s = %v, %v", call, ok, err)
			}
			outside.Set(ctx, "a", fmt.Sprint("after ", call), 0)
			if _, err := c.TxPipelined(ctx, func(p client.Pipeliner) error {
				p.Set(ctx, "b", "1", 0)
				return nil
			}); err != nil {
				t.Errorf("a transaction after %s: %v", call, err)
			}
		}
	})
}

func TestTransactionsAreSentOnce(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := goredis.New(dial(t, &client.Options{Addr: proxy.Addr(), MaxRetries: 5}), redisstore.WithoutScripts(), hour)
	for call, do := range map[string]func(*redisstore.Store) (bool, error){
		"ExpireIf": expireMine, "DeleteIf": deleteMine, "TxExpireIf": txExpireMine, "TxDeleteIf": txDeleteMine,
	} {
		if ok, err := setMine(s); !ok {
			t.Fatal(err)
		}
		for _, fault := range []redistest.Fault{redistest.CutRequest, redistest.CutReply} {
			before := proxy.Count("EXEC")
			cut := proxy.Add(redistest.Rule{Fault: fault, Commands: []string{"PEXPIRE", "PTTL", "DEL"}, Times: -1})
			if ok, err := do(s); ok || err == nil {
				t.Errorf("%s after %v = %v, %v", call, fault, ok, err)
			}
			if n := proxy.Count("EXEC") - before; n > 2 { // one of them tries the permission
				t.Errorf("%s after %v: EXEC was sent %d times", call, fault, n)
			}
			cut.Remove()
		}
		setMine(s)
	}
}
