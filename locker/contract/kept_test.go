package contract_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/lockertest"
)

func TestTheLockerOfTheExampleKeepsTheContract(t *testing.T) {
	lockertest.Run(t, lockertest.Harness{
		Bubble: true, NoWatch: true, NoTransfer: true, NoFaults: true, NoForeign: true, NoEvict: true,
		New: func(*testing.T) (locker.Locker, lockertest.Disturber) {
			table := &table{leases: map[string]contract.Lease{}}
			return table, operator{table}
		},
	})
}

// operator changes the leases past the Locker.
type operator struct{ *table }

func (o operator) Holds(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	lease, found := o.leases[key]
	return found && !lease.Ended()
}

func (o operator) Delete(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.leases, key)
}

func (o operator) Expire(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lease := o.leases[key]
	lease.Expires = time.Now()
	o.leases[key] = lease
}

// The harness says that these are not called.
func (operator) SetForeign(string)                             { panic("unexpected") }
func (operator) SetOther(string)                               { panic("unexpected") }
func (operator) Evict(string, string)                          { panic("unexpected") }
func (operator) Fault(lockertest.Op, backendtest.Fault)        { panic("unexpected") }
func (operator) FaultOnce(lockertest.Op, ...backendtest.Fault) { panic("unexpected") }
