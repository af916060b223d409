package rueidis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/verify/beneath"
	"github.com/lockstep-go/lockstep/internal/verify/race"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

func TestEveryStrategyOverRueidis(t *testing.T) {
	c := dial(t, redistest.Start(t).Addr())
	beneath.Strategies(t, false, func(t *testing.T) (beneath.Store, beneath.Outside) {
		return rueidis.New(c, redisstore.WithMaxTTL(beneath.MaxTTL)), keys{outside{t, c, ""}}
	})
}

func TestEveryStrategyOverRueidisInFakeTime(t *testing.T) {
	race.LeaveOut(t)
	beneath.Strategies(t, true, func(t *testing.T) (beneath.Store, beneath.Outside) {
		c := embed(t)
		return rueidis.New(c), keys{outside{t, c, ""}}
	})
}

// keys are what a Disturber does to a key past the store, each in one step: a waiter may be quick.
type keys struct{ outside }

func (k keys) Holds(key string) bool {
	n, err := k.do("EXISTS", key).AsInt64()
	k.must(err)
	return n == 1
}

func (k keys) Expire(key string)         { k.must(k.do("PEXPIRE", key, "0").Error()) }
func (k keys) SetForeign(key string)     { k.Set(key, "foreign", 0) }
func (k keys) SetForeignHash(key string) { k.replace(key, `redis.call("hset", KEYS[1], "foreign", 1)`) }
func (k keys) SetOther(key string)       { k.replace(key, `redis.call("rpush", KEYS[1], "element")`) }

func (k keys) replace(key, create string) {
	k.must(k.client.Do(k.t.Context(), k.client.B().Eval().Script(`redis.call("del", KEYS[1]); return `+create).Numkeys(1).Key(key).Build()).Error())
}
