package reentrant_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
)

func TestContract(t *testing.T) {
	beneath.Run(t, harness, over)
}

var harness = lockertest.Harness{
	Except: []string{"a lock is held for its own owner too, if the token is new"}, // reentrant grants it
}

func over(store beneath.Store, outside beneath.Outside) (locker.Locker, lockertest.Disturber) {
	faults := new(backendtest.Faults)
	return reentrant.New(faults.Ordered(store)), beneath.OfHolds(outside, faults)
}
