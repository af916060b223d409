package fenced_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

func TestContract(t *testing.T) {
	beneath.Run(t, lockertest.Harness{}, over)
}

func over(store beneath.Store, outside beneath.Outside) (locker.Locker, lockertest.Disturber) {
	faults := new(backendtest.Faults)
	return fenced.New(faults.Numbered(store)), beneath.Disturber{Outside: outside, Faults: faults, Ops: ops}
}

var ops = map[lockertest.Op]backendtest.Op{
	lockertest.Acquire: backendtest.SetNXNumbered,
	lockertest.Extend:  backendtest.ExpireIf,
	lockertest.Release: backendtest.DeleteIf,
}
