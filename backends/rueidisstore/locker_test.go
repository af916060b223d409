package rueidisstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestEveryStrategyOverRueidis(t *testing.T) {
	c := rueidisstore.Driven(dial(t, redistest.Start(t).Addr()))
	beneath.Strategies(t, false, func(t *testing.T) (beneath.Store, beneath.Outside) {
		return c.New(redisstore.WithMaxTTL(beneath.MaxTTL)), keys{drivertest.Outside{T: t, Exec: c.Executor}, c.New()}
	})
}

func TestEveryStrategyOverRueidisInFakeTime(t *testing.T) {
	race.LeaveOut(t)
	beneath.Strategies(t, true, func(t *testing.T) (beneath.Store, beneath.Outside) {
		c := rueidisstore.Embed(t)
		return c.New(), keys{drivertest.Outside{T: t, Exec: c.Executor}, c.New()}
	})
}

// keys are what a Disturber does to a key past the store, each in one step: a waiter may be quick.
type keys struct {
	drivertest.Outside
	store *redisstore.Store
}

func (k keys) Holds(key string) bool { return k.Do("EXISTS", key) == int64(1) }
func (k keys) Expire(key string)     { k.Do("PEXPIRE", key, "0") }
func (k keys) SetForeign(key string) { k.Set(key, "foreign", 0) }
func (k keys) SetForeignHolds(key string) {
	k.replace(key, `redis.call("zadd", KEYS[1], 1, "foreign")`)
}
func (k keys) SetOther(key string)  { k.replace(key, `redis.call("rpush", KEYS[1], "element")`) }
func (k keys) Evict(key, by string) { beneath.Evict(k.T, k.store, key, by) }
func (k keys) replace(key, create string) {
	k.Do("EVAL", `redis.call("del", KEYS[1]); return `+create, 1, key)
}
