package reentrant_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/redis/go-redis/v9"
)

// An RLock of Redisson is a hash: a field <id of the client>:<thread> with the number of its holds,
// and an expiry of 30 s. Our holds are a sorted set. So each finds a value of another type.
func TestALockOfRedissonIsLeftAlone(t *testing.T) {
	mini, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer mini.Close()
	for name, addr := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return mini.Addr() },
		"redis":    func(t *testing.T) string { return redistest.Start(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: addr(t)})
			defer client.Close()
			c := locker.New(reentrant.New(goredis.New(client, beneath.Long)), locker.WithTTL(long))
			const field, ttl = "285475da-9152-4c83-822a-67ee2f116a79:52", 30 * time.Second
			theirs := map[string]string{field: "2"}

			client.HSet(t.Context(), "key", theirs)
			client.PExpire(t.Context(), "key", ttl)
			for _, owner := range []string{"", "job", field} {
				_, err := c.TryLock(as(t.Context(), owner), "key")
				if !errors.Is(err, locker.ErrForeignKey) || errors.Is(err, locker.ErrHeld) {
					t.Errorf("TryLock as %q = %v; want ErrForeignKey", owner, err)
				}
			}
			if has := client.HGetAll(t.Context(), "key").Val(); !maps.Equal(has, theirs) {
				t.Errorf("the lock of Redisson is now %v", has)
			}
			client.Del(t.Context(), "key")

			l := lock(as(t.Context(), "job"), t, c, 1)
			if err := client.HExists(t.Context(), "key", field).Err(); err == nil || client.PTTL(t.Context(), "key").Val() <= 0 {
				t.Error("Redisson would take the lock")
			}
			unlock(t, l)
		})
	}
}
