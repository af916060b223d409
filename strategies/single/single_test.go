package single_test

import (
	"context"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func TestContractOnMemoryInFakeTime(t *testing.T) {
	lockertest.Run(t, lockertest.Harness{New: overMemory, Bubble: true})
}

func TestContractOnMemory(t *testing.T) {
	lockertest.Run(t, lockertest.Harness{New: overMemory})
}

func TestContractOnEmbeddedInFakeTime(t *testing.T) {
	lockertest.Run(t, lockertest.Harness{Bubble: true, New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		server := embedded.New()
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", Dialer: server.Dial, PoolSize: 1000, // see Dial
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() {
			client.Close()
			server.Close()
		})
		return over(goredis.New(client), keys{t, client})
	}})
}

func TestContractOnRedis(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), PoolSize: 100})
	t.Cleanup(func() { client.Close() })
	lockertest.Run(t, lockertest.Harness{New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		return over(goredis.New(client), keys{t, client})
	}})
}

func overMemory(*testing.T) (locker.Locker, lockertest.Disturber) {
	store := memory.New()
	return over(store, mapped{store})
}

// over puts faults before a store.
func over(store backends.Store, outside outside) (locker.Locker, lockertest.Disturber) {
	faults := backendtest.Faulty(store)
	return single.New(faults), disturber{outside, faults}
}

type disturber struct {
	outside
	faults *backendtest.FaultStore
}

// outside is what a Disturber does past the store.
type outside interface {
	Holds(key string) bool
	Delete(key string)
	Expire(key string)
	SetForeign(key string)
	SetOther(key string)
}

func (d disturber) Fault(op lockertest.Op, f lockertest.Fault) { d.faults.Set(ops[op], f.Apply) }

func (d disturber) FaultOnce(op lockertest.Op, faults ...lockertest.Fault) {
	for _, f := range faults {
		d.faults.Once(ops[op], f.Apply)
	}
}

var ops = map[lockertest.Op]backendtest.Op{
	lockertest.Acquire: backendtest.SetNX,
	lockertest.Extend:  backendtest.ExpireIf,
	lockertest.Release: backendtest.DeleteIf,
	lockertest.Watch:   backendtest.Watch,
	lockertest.All:     backendtest.All,
}

// mapped is the outside of a store in memory.
type mapped struct{ *memory.Store }

func (m mapped) Holds(key string) bool {
	_, _, ok := m.Get(key)
	return ok
}

func (m mapped) Expire(key string)     { m.Set(key, "", -1) }
func (m mapped) SetForeign(key string) { m.Set(key, "foreign", 0) }

// keys is the outside of a Redis server.
type keys struct {
	t      *testing.T
	client *redis.Client
}

func (k keys) Holds(key string) bool {
	n, err := k.client.Exists(context.Background(), key).Result()
	if err != nil {
		k.t.Error(err)
	}
	return n == 1
}

func (k keys) Delete(key string) { k.do("DEL", key) }
func (k keys) Expire(key string) { k.do("PEXPIRE", key, 0) }

func (k keys) SetForeign(key string) { k.do("SET", key, "foreign") }

func (k keys) SetOther(key string) {
	_, err := k.client.TxPipelined(context.Background(), func(p redis.Pipeliner) error { // a waiter may be quick
		p.Del(context.Background(), key)
		p.RPush(context.Background(), key, "element")
		return nil
	})
	if err != nil {
		k.t.Error(err)
	}
}

func (k keys) do(args ...any) {
	if err := k.client.Do(context.Background(), args...).Err(); err != nil {
		k.t.Error(err)
	}
}
