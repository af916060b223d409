package fair_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/strategies/fair"
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

func TestContractThroughClusterAndSentinel(t *testing.T) {
	beneath.RunReplicated(t, lockertest.Harness{}, over)
}

func over(store beneath.Store, outside beneath.Outside) (locker.Locker, lockertest.Disturber) {
	faults := new(backendtest.Faults)
	return fair.New(faults.Queued(store)), beneath.Disturber{Outside: outside, Faults: faults, Ops: map[lockertest.Op]backendtest.Op{
		lockertest.Acquire: backendtest.SetNX,
		lockertest.Extend:  backendtest.ExpireIf,
		lockertest.Release: backendtest.DeleteIf,
	}}
}
