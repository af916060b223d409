package single_test

import (
	"context"
	"testing"

	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/internal/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The store is reached through redigo, and what is done past it through go-redis.

func TestContractThroughRedigoOnEmbeddedInFakeTime(t *testing.T) {
	lockertest.Run(t, lockertest.Harness{Bubble: true, New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		server := embedded.New()
		pool := redigoPool("127.0.0.1:1", redigoclient.DialContextFunc(server.Dial))
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", Dialer: server.Dial, PoolSize: 1000, // see Dial
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() {
			pool.Close()
			client.Close()
			server.Close()
		})
		return over(redigo.New(pool), keys{t, client})
	}})
}

func TestContractThroughRedigoOnRedis(t *testing.T) {
	addr := redistest.Start(t).Addr()
	pool := redigoPool(addr)
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 100})
	t.Cleanup(func() {
		pool.Close()
		client.Close()
	})
	lockertest.Run(t, lockertest.Harness{New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		return over(redigo.New(pool), keys{t, client})
	}})
}

func redigoPool(addr string, opts ...redigoclient.DialOption) *redigoclient.Pool {
	return &redigoclient.Pool{MaxIdle: 100, DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
		return redigoclient.DialContext(ctx, "tcp", addr, opts...)
	}}
}
