package etcd_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestEveryStrategyOverEtcd(t *testing.T) {
	t.Parallel()
	_, client := one(t)
	plain := func(acquire backendtest.Op) map[lockertest.Op]backendtest.Op {
		return map[lockertest.Op]backendtest.Op{lockertest.Acquire: acquire, lockertest.Extend: backendtest.ExpireIf, lockertest.Release: backendtest.DeleteIf}
	}
	for name, over := range map[string]func(s *etcd.Store, o keys, faults *backendtest.Faults) (locker.Locker, lockertest.Disturber){
		"single": func(s *etcd.Store, o keys, faults *backendtest.Faults) (locker.Locker, lockertest.Disturber) {
			return single.New(faults.Store(s)), beneath.Disturber{Outside: o, Faults: faults, Ops: plain(backendtest.SetNX)}
		},
		"fenced": func(s *etcd.Store, o keys, faults *backendtest.Faults) (locker.Locker, lockertest.Disturber) {
			return fenced.New(faults.Numbered(s)), beneath.Disturber{Outside: o, Faults: faults, Ops: plain(backendtest.SetNXNumbered)}
		},
		"reentrant": func(s *etcd.Store, o keys, faults *backendtest.Faults) (locker.Locker, lockertest.Disturber) {
			return reentrant.New(faults.Shared(s)), beneath.OfHolds(o, faults)
		},
		"semaphore": func(s *etcd.Store, o keys, faults *backendtest.Faults) (locker.Locker, lockertest.Disturber) {
			return semaphore.New(faults.Shared(s), 1), beneath.OfHolds(o, faults)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var except []string
			if name == "reentrant" {
				except = []string{"a lock is held for its own owner too, if the token is new"}
			}
			lockertest.Run(t, lockertest.Harness{
				MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, Except: except,
				New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
					return over(etcd.New(client, etcd.WithMaxTTL(maxTTL)), keys{outside{t, client}}, new(backendtest.Faults))
				},
			})
		})
	}
}

// keys are what a Disturber does to a key past the store.
type keys struct{ outside }

func (k keys) Holds(key string) bool {
	r, err := k.client.Get(context.Background(), at(key), clientv3.WithRange(at(key)+"0"), clientv3.WithCountOnly())
	if err != nil {
		k.t.Error(err)
		return false
	}
	return r.Count > 0
}

func (k keys) Expire(key string) { k.Delete(key) } // what the end of a lease does

// SetForeign and the others change the key in one step: a waiter may be quick.
func (k keys) SetForeign(key string)      { k.replace(key, at(key), "=foreign") }
func (k keys) SetForeignHolds(key string) { k.replace(key, at(key)+"/foreign", "-") }
func (k keys) SetOther(key string)        { k.replace(key, at(key), "-") }
func (k keys) Evict(key, by string)       { beneath.Evict(k.t, etcd.New(k.client), key, by) }

func (k keys) replace(key, with, value string) {
	k.t.Helper()
	ops := []clientv3.Op{clientv3.OpPut(with, value)}
	if with == at(key) {
		ops = append(ops, clientv3.OpDelete(at(key)+"#", clientv3.WithRange(at(key)+"0")))
	} else {
		ops = append(ops, clientv3.OpDelete(at(key), clientv3.WithRange(at(key)+"/foreign")), clientv3.OpDelete(at(key)+"/foreign\x00", clientv3.WithRange(at(key)+"0")))
	}
	if _, err := k.client.Txn(context.Background()).Then(ops...).Commit(); err != nil {
		k.t.Error(err)
	}
}
