package single_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestContract(t *testing.T) {
	beneath.RunThroughAllClients(t, lockertest.Harness{}, over)
}

func TestContractThroughRedigoOnEmbeddedInFakeTime(t *testing.T) {
	race.LeaveOut(t)
	lockertest.Run(t, lockertest.Harness{Bubble: true, New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		return over(beneath.EmbeddedRedigo(t))
	}})
}

// TestContractWithoutQueues uses stores that wake all waiters.
func TestContractWithoutQueues(t *testing.T) {
	for name, start := range map[string]beneath.Start{"memory": beneath.Memory, "embedded": beneath.Embedded} {
		t.Run(name+" in fake time", func(t *testing.T) {
			if name == "embedded" {
				race.LeaveOut(t)
			}
			lockertest.Run(t, lockertest.Harness{Bubble: true, New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
				store, outside := start(t)
				faults := new(backendtest.Faults)
				return single.New(faults.Store(store)), beneath.Disturber{Outside: outside, Faults: faults, Ops: ops}
			}})
		})
	}
}

func over(store beneath.Store, outside beneath.Outside) (locker.Locker, lockertest.Disturber) {
	faults := new(backendtest.Faults)
	return single.New(faults.Queued(store)), beneath.Disturber{Outside: outside, Faults: faults, Ops: ops}
}

var ops = map[lockertest.Op]backendtest.Op{
	lockertest.Acquire: backendtest.SetNX,
	lockertest.Extend:  backendtest.ExpireIf,
	lockertest.Release: backendtest.DeleteIf,
}
