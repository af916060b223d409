package nats_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/nats"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
)

func TestEveryStrategyOverNATS(t *testing.T) {
	conn := install(t)
	other := dial(t, conn.ConnectedUrl())
	h := lockertest.Harness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, NoTransfer: true}
	beneath.ThatFit(t, h, nats.New(conn), func(t *testing.T) (any, beneath.Outside) {
		return nats.New(conn, nats.WithMaxTTL(maxTTL)), keys{newOutside(t, other), nats.New(other)}
	})
}

// keys are what a Disturber does to a key past the store.
type keys struct {
	outside
	store *nats.Store
}

func (k keys) Holds(key string) bool {
	_, _, ok := k.Get(key)
	return ok
}

func (k keys) Expire(key string)          { k.Delete(key) } // what the end of a lease does
func (k keys) SetForeign(key string)      { k.Set(key, "foreign", 0) }
func (k keys) SetForeignHolds(key string) { k.SetOther(key) }
func (k keys) Evict(key, by string)       { beneath.Evict(k.t, k.store, key, by) }
