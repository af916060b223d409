package rueidis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/beneath"
	"github.com/lockstep-go/lockstep/internal/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/rueidis"
)

func TestALockerOverRueidis(t *testing.T) {
	c := dial(t, redistest.Start(t).Addr())
	lockertest.Run(t, lockertest.Harness{New: func(t *testing.T) (locker.Locker, lockertest.Disturber) { return over(t, c) }})
}

func TestALockerOverRueidisInFakeTime(t *testing.T) {
	lockertest.Run(t, lockertest.Harness{Bubble: true, New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		return over(t, embed(t))
	}})
}

func over(t *testing.T, c client.Client) (locker.Locker, lockertest.Disturber) {
	faulty := backendtest.Faulty(rueidis.New(c))
	return single.New(faulty), beneath.Disturber{Outside: keys{outside{t, c, ""}}, Faults: faulty.Faults,
		Ops: map[lockertest.Op]backendtest.Op{
			lockertest.Acquire: backendtest.SetNX, lockertest.Extend: backendtest.ExpireIf, lockertest.Release: backendtest.DeleteIf,
		}}
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
