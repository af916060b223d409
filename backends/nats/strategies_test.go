package nats_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/nats"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestEveryStrategyOverNATS(t *testing.T) {
	conn := install(t)
	other := dial(t, conn.ConnectedUrl())
	for name, over := range map[string]func(s *nats.Store, faults *backendtest.Faults) (locker.Locker, backendtest.Op){
		"single": func(s *nats.Store, faults *backendtest.Faults) (locker.Locker, backendtest.Op) {
			return single.New(faults.Store(s)), backendtest.SetNX
		},
		"fenced": func(s *nats.Store, faults *backendtest.Faults) (locker.Locker, backendtest.Op) {
			return fenced.New(faults.Numbered(s)), backendtest.SetNXNumbered
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lockertest.Run(t, lockertest.Harness{
				MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, NoTransfer: true,
				New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
					faults := new(backendtest.Faults)
					l, acquire := over(nats.New(conn, nats.WithMaxTTL(maxTTL)), faults)
					return l, beneath.Disturber{Outside: keys{newOutside(t, other), nats.New(other)}, Faults: faults, Ops: map[lockertest.Op]backendtest.Op{
						lockertest.Acquire: acquire, lockertest.Extend: backendtest.ExpireIf, lockertest.Release: backendtest.DeleteIf,
					}}
				},
			})
		})
	}
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
