package reentrant_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/proof/beneath"
)

func TestContractThroughClusterAndSentinel(t *testing.T) { beneath.ContractReplicated(t, "reentrant") }
