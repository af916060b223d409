package single_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/proof/table"
)

func TestContract(t *testing.T) { beneath.ContractThroughAllClients(t, "single") }

func TestContractThroughRedigoOnEmbeddedInFakeTime(t *testing.T) {
	race.LeaveOut(t)
	beneath.ContractOn(t, "single", table.Queued, beneath.EmbeddedRedigo)
}

// TestContractWithoutQueues uses stores that wake all waiters.
func TestContractWithoutQueues(t *testing.T) {
	for name, start := range map[string]beneath.Start{"memory": beneath.Memory, "embedded": beneath.Embedded} {
		t.Run(name+" in fake time", func(t *testing.T) {
			if name == "embedded" {
				race.LeaveOut(t)
			}
			beneath.ContractOn(t, "single", table.Plain, start)
		})
	}
}
