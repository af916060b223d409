package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// Since Redis 8.0, the search for expired keys removes a key when the ms in which it ends begins: up
// to a ms too early. The server of this test searches so often that one key of ten shows it.
func TestNoKeyEndsEarly(t *testing.T) {
	const rounds, keys, ttl = 10, 50, 40 * time.Millisecond
	rdb := dial(t, &client.Options{Addr: redistest.Start(t, redistest.WithArgs("--hz", "500")).Addr()})
	scripted, scriptless := goredis.New(rdb), goredis.New(rdb, redisstore.WithoutScripts())
	setNX := func(s *redisstore.Store, key string, ttl time.Duration) (bool, error) {
		r, err := s.SetNX(t.Context(), key, "mine", ttl)
		return r.OK, err
	}
	// extended takes a key for a shorter time first. On a busy machine, it may have ended before extend.
	extended := func(s *redisstore.Store, key string, extend func() (bool, error)) (bool, error) {
		if ok, err := setNX(s, key, ttl-10*time.Millisecond); !ok || err != nil {
			return ok, err
		}
		return extend()
	}
	for _, c := range []struct {
		name string
		give func(key string) (bool, error)
	}{
		{"SetNX", func(key string) (bool, error) { return setNX(scripted, key, ttl) }},
		{"ExpireIf", func(key string) (bool, error) {
			return extended(scripted, key, func() (bool, error) { return scripted.ExpireIf(t.Context(), key, "mine", ttl) })
		}},
		{"TxExpireIf", func(key string) (bool, error) {
			return extended(scripted, key, func() (bool, error) { return scripted.TxExpireIf(t.Context(), key, "mine", ttl) })
		}},
		{"Transfer", func(key string) (bool, error) {
			return extended(scripted, key, func() (bool, error) {
				r, err := scripted.Transfer(t.Context(), key, "mine", "next", ttl, false)
				return r.OK, err
			})
		}},
		{"SetNXQueued", func(key string) (bool, error) {
			r, err := scripted.SetNXQueued(t.Context(), key, "mine", ttl, backends.Turn{InOrder: true})
			return r.OK, err
		}},
		{"SetNXNumbered", func(key string) (bool, error) {
			r, err := scripted.SetNXNumbered(t.Context(), key, "mine", ttl, backends.Turn{})
			return r.OK, err
		}},
		{"ExpireIf without scripts", func(key string) (bool, error) {
			return extended(scriptless, key, func() (bool, error) { return scriptless.ExpireIf(t.Context(), key, "mine", ttl) })
		}},
		{"Enter", func(key string) (bool, error) {
			r, err := scripted.Enter(t.Context(), key, "mine", ttl, backends.Admission{})
			return r.OK, err
		}},
		{"Renew", func(key string) (bool, error) {
			if r, err := scripted.Enter(t.Context(), key, "mine", ttl-10*time.Millisecond, backends.Admission{}); !r.OK || err != nil {
				return r.OK, err
			}
			return scripted.Renew(t.Context(), key, "mine", ttl)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			watched, early, worst := 0, 0, time.Duration(0)
			for round := 0; round < rounds || watched < 10 && round < 20*rounds; round++ { // on a busy machine few are seen
				name := func(i int) string { return fmt.Sprintf("%s %d %d", c.name, round, i) }
				var ends [keys]time.Time // not before
				for i := range ends {
					began := time.Now()
					ok, err := c.give(name(i))
					if err != nil {
						t.Fatal(err)
					}
					if ok {
						ends[i] = began.Add(ttl)
					}
					for range 3 { // keys that end together can't be watched one after the other
						rdb.Ping(t.Context())
					}
				}
				for i, end := range ends {
					seen, by := watch(t, rdb, name(i), end)
					if seen {
						watched++
					}
					if by > 0 {
						early, worst = early+1, max(worst, by)
					}
				}
			}
			if early > 0 {
				t.Errorf("%d of %d keys ended too early, by up to %v", early, watched, worst)
			}
			if watched < 10 {
				t.Errorf("only %d keys were seen before their end", watched)
			}
		})
	}
}

// watch looks at key until end, and tells whether it has seen it before, and how much too early it was
// gone. An answer that came later proves nothing.
func watch(t *testing.T, rdb *client.Client, key string, end time.Time) (seen bool, early time.Duration) {
	t.Helper()
	for time.Now().Before(end) {
		n, err := rdb.Exists(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		if !now.Before(end) {
			break
		}
		if seen = true; n == 0 {
			return seen, end.Sub(now)
		}
	}
	return seen, 0
}
