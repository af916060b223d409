package etcd_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
)

func TestEveryStrategyOverEtcd(t *testing.T) {
	t.Parallel()
	_, client := one(t)
	h := lockertest.Harness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true}
	beneath.ThatFit(t, h, etcd.New(client), func(t *testing.T) (any, beneath.Outside) {
		return etcd.New(client, etcd.WithMaxTTL(maxTTL)), keys{outside{t, client}}
	})
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
