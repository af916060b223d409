package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// fill lets the server refuse all that may need memory.
func fill(t *testing.T, s *redistest.Server) {
	t.Helper()
	if _, err := s.Do("CONFIG", "SET", "maxmemory", "1"); err != nil {
		t.Fatal(err)
	}
}

func TestOnAFullServerLocksThatAreHeldGoOnAndNewOnesAreNotDone(t *testing.T) {
	server := redistest.Start(t)
	s := goredis.New(dial(t, &client.Options{Addr: server.Addr()}), redisstore.WithMaxTTL(time.Hour))
	short, long := time.Minute, time.Hour
	setNX := func(key, token string, ttl time.Duration) (bool, error) {
		r, err := s.SetNX(t.Context(), key, token, ttl)
		return r.OK, err
	}
	fenced := func(key, token string) (bool, error) {
		r, err := s.SetNXNumbered(t.Context(), key, token, short, backends.Turn{})
		return r.OK, err
	}
	enter := func(key, owner, token string) (bool, error) {
		r, err := s.Enter(t.Context(), key, token, short, backends.Admission{Group: owner})
		return r.OK, err
	}
	granted := func(what string, ok bool, err error) {
		t.Helper()
		if !ok || err != nil {
			t.Errorf("%s = %v, %v; want that it is done", what, ok, err)
		}
	}
	notDone := func(what string, ok bool, err error) {
		t.Helper()
		if ok || !backends.Unsent(err) || backends.Permanent(err) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s = %v, %v; want OOM, not done", what, ok, err)
		}
	}
	for _, key := range []string{"extended", "released", "waited for"} {
		ok, err := setNX(key, "token", short)
		granted("SetNX", ok, err)
	}
	if err := s.WatchQueued(t.Context(), "waited for", "me", func() {}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.SetNXQueued(t.Context(), "waited for", "mine", 20*time.Second, backends.Turn{Waiter: "me", InOrder: true}); err != nil || r.OK || r.Position != 1 {
		t.Fatalf("SetNXQueued of a waiter = %+v, %v", r, err)
	}
	ok, err := fenced("fenced", "token")
	granted("SetNXFenced", ok, err)
	for _, token := range []string{"renewed", "left"} {
		ok, err := enter("shared", "me", token)
		granted("Enter", ok, err)
	}
	ok, err = enter("shared alone", "me", "renewed")
	granted("Enter", ok, err)

	fill(t, server)
	for _, cached := range []string{"the scripts are known", "the scripts are not known"} {
		if strings.HasSuffix(cached, "not known") {
			server.Do("SCRIPT", "FLUSH")
		}
		ok, err = s.ExpireIf(t.Context(), "extended", "token", long)
		granted("ExpireIf, "+cached, ok, err)
		ok, err = s.ExpireIf(t.Context(), "fenced", "token", long)
		granted("ExpireIf of a numbered lock, "+cached, ok, err)
		for _, key := range []string{"shared", "shared alone"} {
			ok, err = s.Renew(t.Context(), key, "renewed", long)
			granted("Renew of "+key+", "+cached, ok, err)
			if left, err := server.Do("PTTL", key); err != nil || left.(int64) < short.Milliseconds() {
				t.Errorf("%s lives for %v ms, %v", key, left, err)
			}
		}
		ok, err = setNX("new", "token", short)
		notDone("SetNX, "+cached, ok, err)
		ok, err = fenced("new", "token")
		notDone("SetNXFenced, "+cached, ok, err)
		ok, err = enter("new", "me", "token")
		notDone("Enter, "+cached, ok, err)
		ok, err = enter("shared", "me", "one more")
		notDone("Enter once more, "+cached, ok, err)
		ok, err = s.RaiseFence(t.Context(), "fenced", "token", 1<<52)
		notDone("RaiseFence, "+cached, ok, err)
		if n, err := server.Do("EXISTS", "new", "{new}:\x00fence"); n != int64(0) || err != nil {
			t.Errorf("%v keys are left of what was not done, %v", n, err)
		}
	}
	for _, c := range []struct{ key, token string }{{"released", "token"}, {"waited for", "token"}, {"fenced", "token"}} {
		ok, err = s.DeleteIf(t.Context(), c.key, c.token)
		granted("DeleteIf of "+c.key, ok, err)
	}
	if value, err := server.Do("GET", "waited for"); err != nil || !strings.HasPrefix(value.(string), "lockstep:reserved:me@") {
		t.Errorf("the lock that is waited for is %v, %v: it is not reserved for the waiter", value, err)
	}
	for _, token := range []string{"left", "renewed"} {
		ok, err = s.Leave(t.Context(), "shared", token)
		granted("Leave of "+token, ok, err)
	}
}

// There is no other way to compare without a script than MULTI. On a server that is out of memory,
// MULTI of Redis 7.0 takes no command. MULTI of later servers takes the commands that need no memory.
func TestWithoutScriptsAFullServerDoesWhatMULTITakesThere(t *testing.T) {
	server := redistest.Start(t)
	c := dial(t, &client.Options{Addr: server.Addr()})
	s := goredis.New(c, redisstore.WithoutScripts(), redisstore.WithMaxTTL(time.Hour))
	if r, err := s.SetNX(t.Context(), "a", "token", 20*time.Second); !r.OK || err != nil {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
	fill(t, server)
	_, err := c.TxPipelined(t.Context(), func(p client.Pipeliner) error { return p.Del(t.Context(), "b").Err() })
	takes := err == nil
	expect := func(what string, ok bool, err error) {
		t.Helper()
		if takes && (!ok || err != nil) || !takes && (ok || !backends.Unsent(err)) {
			t.Errorf("%s = %v, %v; MULTI takes DEL: %v", what, ok, err, takes)
		}
	}
	ok, err := s.ExpireIf(t.Context(), "a", "token", time.Hour)
	expect("ExpireIf", ok, err)
	ok, err = s.DeleteIf(t.Context(), "a", "token")
	expect("DeleteIf", ok, err)
	if _, err := server.Do("CONFIG", "SET", "maxmemory", "0"); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.DeleteIf(t.Context(), "a", "token"); ok == takes || err != nil {
		t.Errorf("DeleteIf = %v, %v; it was deleted before: %v", ok, err, takes)
	}
}

// A script that has written is let through: a waiter leaves the queue by ZREM before it takes the lock.
func TestOnAFullServerAWaiterIsGrantedALockThatIsRefusedToOthers(t *testing.T) {
	server := redistest.Start(t)
	s := goredis.New(dial(t, &client.Options{Addr: server.Addr()}))
	turn := func(key string) backends.Turn { return backends.Turn{Waiter: "for " + key} }
	for _, key := range []string{"the script is not known", "the script is known", "numbered"} {
		if err := s.WatchQueued(t.Context(), key, turn(key).Waiter, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, server)
	for _, cached := range []string{"the script is not known", "the script is known"} {
		r, err := s.SetNXQueued(t.Context(), cached, "token", 20*time.Second, turn(cached))
		if !r.OK || err != nil {
			t.Errorf("%s: SetNXQueued of a waiter = %+v, %v", cached, r, err)
		}
		if _, err := s.SetNXQueued(t.Context(), cached, "another", 20*time.Second, turn(cached)); !backends.Unsent(err) {
			t.Errorf("%s: to stand in the queue takes memory: %v", cached, err)
		}
	}
	if _, err := s.SetNXQueued(t.Context(), "free", "token", 20*time.Second, backends.Turn{}); !backends.Unsent(err) {
		t.Errorf("SetNXQueued of a caller that does not wait = %v", err)
	}
	if _, err := s.SetNXNumbered(t.Context(), "numbered", "token", 20*time.Second, turn("numbered")); !backends.Unsent(err) {
		t.Errorf("SetNXNumbered of a waiter, which counts first, = %v", err)
	}
}

// A server that evicts keys forgets locks that are held, and grants them again.
func TestAServerThatEvictsKeysForgetsLocks(t *testing.T) {
	t.Parallel()
	for policy, forgets := range map[string]bool{"noeviction": false, "allkeys-lru": true, "volatile-ttl": true} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := goredis.New(dial(t, &client.Options{Addr: server.Addr()}), redisstore.WithMaxTTL(time.Hour))
			if r, err := s.SetNX(t.Context(), "k", "token", time.Hour); err != nil || !r.OK {
				t.Fatal(r, err)
			}
			if _, err := server.Do("CONFIG", "SET", "maxmemory-policy", policy); err != nil {
				t.Fatal(err)
			}
			fill(t, server)
			_, _ = server.Do("SET", "other", "value") // there is no memory for it
			if _, err := server.Do("CONFIG", "SET", "maxmemory", "0"); err != nil {
				t.Fatal(err)
			}
			if r, err := s.SetNX(t.Context(), "k", "another", time.Hour); err != nil || r.OK != forgets {
				t.Errorf("SetNX of a lock that is held = %+v, %v; want it granted: %v", r, err, forgets)
			}
		})
	}
}
