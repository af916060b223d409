package redigo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// What docs/security.md says of redigo. What each permission is for, package goredis finds out: the
// commands are the same.

func command(t *testing.T, server *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// as makes a pool of connections of user.
func as(t *testing.T, addr, user string, more ...client.DialOption) *client.Pool {
	return dial(t, addr, append([]client.DialOption{client.DialUsername(user), client.DialPassword("secret")}, more...)...)
}

var app = redisstore.WithPrefix("app:")

func TestACLNeedsOfRedigo(t *testing.T) {
	server := redistest.Start(t)
	full := drivertest.Users(t)["single"]
	lock := func(pool *client.Pool) error {
		l, err := locker.New(single.New(redigo.New(pool, app))).TryLock(t.Context(), "a")
		if err == nil {
			err = l.Unlock(t.Context())
		}
		return err
	}
	for permission, option := range map[string]client.DialOption{
		"+select": client.DialDatabase(1), "+client|setname": client.DialClientName("me"),
	} {
		for _, rules := range [][]string{full, append(slices.Clone(full), permission)} {
			command(t, server, append([]string{"ACL", "SETUSER", "single"}, rules...)...)
			err := lock(as(t, server.Addr(), "single", option))
			reply := (*redisstore.ReplyError)(nil)
			refused := errors.As(err, &reply) && reply.Code() == "NOPERM" && reply.Permanent()
			if permitted := slices.Contains(rules, permission); refused == permitted || permitted && err != nil {
				t.Errorf("%s, permitted: %t: %v", permission, permitted, err)
			}
		}
	}

	command(t, server, append([]string{"ACL", "SETUSER", "single"}, full...)...)
	for name, c := range map[string]struct {
		ours    func(context.Context, client.Conn, time.Time) error
		own     func(client.Conn, time.Time) error
		dialled bool // anew for each command
	}{
		"no test":          {},
		"TestOnBorrow":     {ours: redigo.TestOnBorrow()},
		"a test by itself": {own: func(c client.Conn, _ time.Time) error { _, err := c.Do("PING"); return err }, dialled: true},
	} {
		proxy := redistest.NewProxy(t, server.Addr())
		pool := as(t, proxy.Addr(), "single")
		pool.TestOnBorrow, pool.TestOnBorrowContext = c.own, c.ours
		if err := lock(pool); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := proxy.Count("AUTH"); (n > 1) != c.dialled {
			t.Errorf("%s: %d connections", name, n)
		}
		if c.own == nil {
			if seen := fmt.Sprint(proxy.Seen()); !strings.HasPrefix(seen, "[AUTH SET ") || proxy.Count("HELLO")+proxy.Count("CLIENT") > 0 {
				t.Errorf("%s: sent %v: the page says what redigo sends", name, seen)
			}
		}
	}

	nobody := dial(t, server.Addr(), client.DialUsername("single")).Get() // and no password
	defer nobody.Close()
	if who, err := client.String(nobody.Do("ACL", "WHOAMI")); who != "default" || err != nil {
		t.Errorf("a user without a password is %q, %v", who, err)
	}
}

func TestMissingCredentialsAreToldAtOnceAlsoByQuarantine(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("secret"))
	for code, options := range map[string][]client.DialOption{
		"NOAUTH": nil, "WRONGPASS": {client.DialPassword("wrong")},
	} {
		store, pool := redigo.Open(server.Addr(), options)
		defer pool.Close()
		_, err := locker.New(single.New(store)).Lock(t.Context(), "a")
		if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || reply.Code() != code || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Lock = %v, want %s", err, code)
		}
	}
}
