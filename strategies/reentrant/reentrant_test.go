package reentrant_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/verify/beneath"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
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
	return reentrant.New(faults.Nested(store)), disturber{beneath.Disturber{Outside: outside, Faults: faults, Ops: ops}}
}

var ops = map[lockertest.Op]backendtest.Op{
	lockertest.Acquire: backendtest.Enter,
	lockertest.Extend:  backendtest.Renew,
	lockertest.Release: backendtest.Leave,
}

// disturber uses a hash as a foreign value, and a string as a value of another type.
type disturber struct{ beneath.Disturber }

func (d disturber) SetForeign(key string) { d.SetForeignHash(key) }
func (d disturber) SetOther(key string)   { d.Disturber.SetForeign(key) }
