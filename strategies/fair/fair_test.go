package fair_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/proof/table"
)

func TestContract(t *testing.T) { beneath.ContractThroughAllClients(t, "fair") }

func TestContractThroughRedigoOnEmbeddedInFakeTime(t *testing.T) {
	race.LeaveOut(t)
	beneath.ContractOn(t, "fair", table.Queued, beneath.EmbeddedRedigo)
}

func TestContractThroughClusterAndSentinel(t *testing.T) { beneath.ContractReplicated(t, "fair") }
