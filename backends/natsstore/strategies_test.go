package natsstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
)

func TestEveryStrategyOverNATS(t *testing.T) {
	conn := install(t)
	other := dial(t, conn.ConnectedUrl())
	h := lockertest.Harness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, NoTransfer: true}
	beneath.ThatFit(t, h, natsstore.New(conn), func(t *testing.T) (any, beneath.Outside) {
		return natsstore.New(conn, natsstore.WithMaxTTL(maxTTL)), keys{newOutside(t, other), natsstore.New(other)}
	})
}

// keys are what a Disturber does to a key past the store.
type keys struct {
	outside
	store *natsstore.Store
}

func (k keys) Holds(key string) bool {
	_, _, ok := k.Get(key)
	return ok
}

func (k keys) Expire(key string)          { k.Delete(key) } // what the end of a lease does
func (k keys) SetForeign(key string)      { k.Set(key, "foreign", 0) }
func (k keys) SetForeignHolds(key string) { k.SetOther(key) }
func (k keys) Evict(key, by string)       { beneath.Evict(k.t, k.store, key, by) }
