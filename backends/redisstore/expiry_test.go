package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/go-redis/v9"
)

// Since Redis 8.0, the search for expired keys removes a key when the ms in which it ends begins: up
// to a ms too early. The server of this test searches so often that some keys of a hundred show it.
func TestNoKeyEndsEarly(t *testing.T) {
	const rounds, keys, ttl = 10, 200, 60 * time.Millisecond
	rdb := dial(t, &client.Options{Addr: redistest.Start(t, redistest.WithArgs("--hz", "500")).Addr()})
	scripted, scriptless := goredis.New(rdb), goredis.New(rdb, redisstore.WithoutScripts())
	setNX := func(s *redisstore.Store, key string, ttl time.Duration) (bool, error) {
		r, err := s.SetNX(t.Context(), key, "mine", ttl)
		return r.OK, err
	}
	for _, c := range []struct {
		name string
		give func(key string) (bool, error)
	}{
		{"SetNX", func(key string) (bool, error) { return setNX(scripted, key, ttl) }},
		{"ExpireIf", func(key string) (bool, error) {
			if ok, err := setNX(scripted, key, ttl-10*time.Millisecond); !ok || err != nil {
				return ok, err
			}
			return scripted.ExpireIf(t.Context(), key, "mine", ttl)
		}},
		{"ExpireIf without scripts", func(key string) (bool, error) {
			if ok, err := setNX(scriptless, key, ttl-10*time.Millisecond); !ok || err != nil {
				return ok, err
			}
			return scriptless.ExpireIf(t.Context(), key, "mine", ttl)
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
			given, early, worst := 0, 0, time.Duration(0)
			for round := range rounds {
				name := func(i int) string { return fmt.Sprintf("%s %d %d", c.name, round, i) }
				var ends [keys]time.Time // not before
				for i := range ends {
					began := time.Now()
					ok, err := c.give(name(i))
					if err != nil {
						t.Fatal(err)
					}
					if ok { // on a busy machine, a key may have ended before it is extended
						ends[i], given = began.Add(ttl), given+1
					}
				}
				for i, end := range ends {
					for there := true; there && time.Now().Before(end); {
						n, err := rdb.Exists(t.Context(), name(i)).Result()
						if err != nil {
							t.Fatal(err)
						}
						if now := time.Now(); n == 0 && now.Before(end) {
							early, worst, there = early+1, max(worst, end.Sub(now)), false
						}
					}
				}
			}
			if given == 0 || early > 0 {
				t.Errorf("%d of %d keys ended too early, by up to %v", early, given, worst)
			}
		})
	}
}
