package beneath

import (
	"context"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/redis/go-redis/v9"
)

// Outside reaches the data past the store, for a lockertest.Disturber.
type Outside interface {
	Holds(key string) bool
	Delete(key string)
	Expire(key string)
	SetForeign(key string) // a string
	SetForeignHolds(key string)
	SetOther(key string) // a list
	Evict(key, by string)
}

// Evict ends the holds of key that Clients have, in the name of by.
func Evict(t testing.TB, store interface {
	backends.Inspector
	backends.Evictor
}, key, by string,
) {
	t.Helper()
	ctx := context.Background()
	state, err := store.Inspect(ctx, key)
	for _, h := range state.Holds {
		if err == nil && !h.Foreign && !h.Evicted {
			_, err = store.Evict(ctx, key, h.Print, backends.Eviction{By: by})
		}
	}
	if err != nil {
		t.Errorf("Evict: %v", err)
	}
}

// A Disturber changes the data from outside, and disturbs the calls of a strategy.
type Disturber struct {
	Outside
	Faults *backendtest.Faults
	Ops    map[lockertest.Op]backendtest.Op // the call of the strategy for each
}

// Fault implements [lockertest.Disturber].
func (d Disturber) Fault(op lockertest.Op, f backendtest.Fault) { d.Faults.Set(d.op(op), f) }

// FaultOnce implements [lockertest.Disturber].
func (d Disturber) FaultOnce(op lockertest.Op, faults ...backendtest.Fault) {
	d.Faults.Once(d.op(op), faults...)
}

func (d Disturber) op(op lockertest.Op) backendtest.Op {
	switch op {
	case lockertest.Watch:
		return backendtest.Watch
	case lockertest.All:
		return backendtest.All
	}
	return d.Ops[op]
}

// OfHolds is the Disturber of a strategy whose leases are holds.
func OfHolds(outside Outside, faults *backendtest.Faults) lockertest.Disturber {
	return ofHolds{Disturber{outside, faults, map[lockertest.Op]backendtest.Op{
		lockertest.Acquire: backendtest.Enter, lockertest.Extend: backendtest.Renew, lockertest.Release: backendtest.Leave,
	}}}
}

// ofHolds sets a sorted set as the foreign value, and a string as the value of another type.
type ofHolds struct{ Disturber }

func (d ofHolds) SetForeign(key string) { d.SetForeignHolds(key) }
func (d ofHolds) SetOther(key string)   { d.Disturber.SetForeign(key) }

// mapped is the outside of a store in memory.
type mapped struct {
	*memory.Store
	t *testing.T
}

func (m mapped) Holds(key string) bool {
	_, _, ok := m.Get(key)
	return ok
}

func (m mapped) Expire(key string)          { m.Set(key, "", -1) }
func (m mapped) SetForeign(key string)      { m.Set(key, "foreign", 0) }
func (m mapped) SetForeignHolds(key string) { m.SetShared(key) }
func (m mapped) Evict(key, by string)       { Evict(m.t, m.Store, key, by) }

// keys is the outside of a Redis server.
type keys struct {
	t      *testing.T
	client redis.UniversalClient
}

func (k keys) Holds(key string) bool {
	n, err := k.client.Exists(context.Background(), key).Result()
	if err != nil {
		k.t.Error(err)
	}
	return n == 1
}

func (k keys) Delete(key string)          { k.do([]any{"DEL", key}) }
func (k keys) Expire(key string)          { k.do([]any{"PEXPIRE", key, 0}) }
func (k keys) SetForeign(key string)      { k.do([]any{"SET", key, "foreign"}) }
func (k keys) SetForeignHolds(key string) { k.do([]any{"DEL", key}, []any{"ZADD", key, 1, "foreign"}) }
func (k keys) SetOther(key string)        { k.do([]any{"DEL", key}, []any{"RPUSH", key, "element"}) }
func (k keys) Evict(key, by string)       { Evict(k.t, goredis.New(k.client), key, by) }

// do sends commands as one transaction, so that no waiter comes between them.
func (k keys) do(commands ...[]any) {
	_, err := k.client.TxPipelined(context.Background(), func(p redis.Pipeliner) error {
		for _, args := range commands {
			p.Do(context.Background(), args...)
		}
		return nil
	})
	if err != nil {
		k.t.Error(err)
	}
}
