package goredis_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// Passwords, tokens, and keys of others.

func TestSecurityOfPasswords(t *testing.T) {
	t.Parallel()
	s := guard(t)
	full := users(t)["single"]
	s.grant("single", full...)
	theirs, _ := locksOf(dial(t, &client.Options{Addr: s.Addr()}))
	held := mustLock(t, theirs, "held")
	defer mustUnlock(t, held)

	wrong := s.as("single")
	wrong.Password = "wrong"
	locks, _ := locksOf(dial(t, wrong))
	for _, key := range []string{"free", "held"} {
		if _, err := locks.Lock(t.Context(), key); !isPermanent(err, "WRONGPASS") {
			t.Errorf("Lock of the %s lock with a wrong password = %v", key, err)
		}
	}

	// one connection is open when the password changes, the one for wakes is not
	locks, _ = locksOf(dial(t, s.as("single")))
	mustUnlock(t, mustLock(t, locks, "free"))
	s.grant("single", "resetpass", ">changed")
	mustUnlock(t, mustLock(t, locks, "free"))
	if err := <-start(t, locks, "held", locker.WithBackoff(hourly)).done; !isPermanent(err, "WRONGPASS") {
		t.Errorf("Lock that has to open its connection for wakes = %v", err)
	}

	for _, end := range []func(){
		func() { s.grant("single", "resetpass", ">changed"); s.do("CLIENT", "KILL", "USER", "single") },
		func() { s.grant("single", "off"); s.do("CLIENT", "KILL", "USER", "single") },
		func() { s.do("ACL", "DELUSER", "single") },
	} {
		s.grant("single", full...)
		locks, begun := locksOf(dial(t, s.as("single")))
		w := start(t, locks, "held")
		await(t, "the wait", begun)
		end()
		// Its next look finds its connection closed, or cannot open a new one.
		if err := <-w.done; err == nil || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Lock that was waiting = %v", err)
		}
		if _, err := locks.Lock(t.Context(), "held"); !isPermanent(err, "WRONGPASS") {
			t.Errorf("the next Lock = %v", err)
		}
	}
}

func TestSecurityOfPasswordsThatChange(t *testing.T) {
	s := guard(t)
	s.grant("single", users(t)["single"]...)
	var current atomic.Pointer[string]
	set := func(password string) { current.Store(&password) }
	set("secret")
	o := &client.Options{Addr: s.Addr(), CredentialsProvider: func() (string, string) { return "single", *current.Load() }}
	locks, _ := locksOf(dial(t, o))
	mustUnlock(t, mustLock(t, locks, "a"))
	s.grant("single", "resetpass", ">second")
	set("second")
	s.do("CLIENT", "KILL", "USER", "single")
	eventually(t, "a new connection", func() bool { // the first call may find the old one closed
		l, err := locks.Lock(t.Context(), "a")
		if err != nil {
			return false
		}
		mustUnlock(t, l)
		return true
	})
}

func TestSecurityOfTokens(t *testing.T) {
	s := guard(t)
	s.do("CONFIG", "SET", "slowlog-log-slower-than", "0")
	s.grant("single", users(t)["single"]...)
	locks, _ := locksOf(dial(t, s.as("single")))
	l := mustLock(t, locks, "a")
	if slow := fmt.Sprint(s.do("SLOWLOG", "GET", "100")); !strings.Contains(slow, l.Lease().Token) {
		t.Errorf("the page says that SLOWLOG keeps tokens: %s", slow)
	}
	stranger := single.New(goredis.New(dial(t, &client.Options{Addr: s.Addr()}), app))
	token := s.do("GET", "app:a").(string)
	if err := stranger.Release(t.Context(), contract.Lease{Key: "a", Token: token}); err != nil {
		t.Errorf("Release by who has read the token = %v", err)
	}
	mustUnlock(t, mustLock(t, locks, "a"))
}

func TestACLKeepsOtherKeysAndCommandsAway(t *testing.T) {
	s := guard(t, redistest.WithArgs("--enable-debug-command", "yes"))
	lines := users(t)
	s.do("SET", "other", "value")
	for user := range variants {
		s.grant(user, lines[user]...)
		c := dial(t, s.as(user))
		for _, prefix := range []string{"", "application:", "other:", "ap"} {
			locks := locker.New(single.New(goredis.New(c, redisstore.WithPrefix(prefix))))
			_, err := locks.Lock(t.Context(), "x")
			wantPermanent(t, fmt.Sprintf("Lock with prefix %q", prefix), err)
		}
		for _, command := range []string{
			"GET other", "SET other 1", "DEL other", "MONITOR", "KEYS *", "SCAN 0", "SLOWLOG GET", "FLUSHALL", "FLUSHDB",
			"CONFIG GET *", "CONFIG SET maxmemory 1", "DEBUG SLEEP 0", "SHUTDOWN", "FAILOVER", "REPLICAOF NO ONE",
			"ACL LIST", "CLIENT LIST", "PSUBSCRIBE *", "SUBSCRIBE other", "PUBLISH other x",
		} {
			var args []any
			for _, word := range strings.Fields(command) {
				args = append(args, word)
			}
			if err := c.Do(t.Context(), args...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
				t.Errorf("%s may %s: %v", user, command, err)
			}
		}
		script := "return redis.call('GET', 'other')" // a key that it does not declare
		want := " access "                            // the key; each version has other words around it
		if !slices.Contains(lines[user], "+eval") || !slices.Contains(lines[user], "+get") {
			want = " run " // the command
		}
		err := c.Eval(t.Context(), script, nil).Err()
		if err == nil || (&redisstore.ReplyError{Text: err.Error()}).Code() != "NOPERM" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s may read any key in a script: %v", user, err)
		}
	}
	if got := s.do("GET", "other"); got != "value" {
		t.Errorf("other = %v", got)
	}
}

func TestSecurityOfALockIsThatOfItsKey(t *testing.T) {
	s := guard(t)
	locks, _ := locksOf(dial(t, &client.Options{Addr: s.Addr()}))
	l := mustLock(t, locks, "a")
	s.do("DEL", "app:a")
	second := mustLock(t, locks, "a")
	if l.Context().Err() != nil {
		t.Error("the first holder knows already")
	}
	if err := l.Extend(t.Context(), long); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Extend = %v", err)
	}
	mustUnlock(t, second)
}

// TestSecurityExamplesVerify keeps switches that turn verification off out of the page and its users.
func TestSecurityExamplesVerify(t *testing.T) {
	lines, err := os.ReadFile(acl)
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?i)InsecureSkipVerify|--insecure|nopass`).FindString(readPage(t) + string(lines)); found != "" {
		t.Errorf("%s is in the page or among its users", found)
	}
}

// A pipeline whose connection is refused has no answers, but one error.
func TestAWrongPasswordIsToldOfAPipelineToo(t *testing.T) {
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "u", "on", ">right", "~*", "&*", "+@all")
	server.Do("SET", "a lock", "value", "PX", "60000")
	store := goredis.New(dial(t, &client.Options{Addr: server.Addr(), Username: "u", Password: "wrong"}))
	if _, err := store.List(trial.Patient(t), "a", "", 10); !isPermanent(err, "WRONGPASS") {
		t.Errorf("List: %v", err)
	}
}
