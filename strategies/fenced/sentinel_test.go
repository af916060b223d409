package fenced_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

func TestContractThroughClusterAndSentinel(t *testing.T) {
	beneath.ContractReplicated(t, "fenced")
}

// The replica has neither the grant nor its number, so two hold the lock at once. But the later
// grant has the greater number, so a resource can tell them apart.
func TestNumbersRiseAcrossAFailoverThatLostTheCounter(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	s.Replicas()[0].CutReplication()
	connect := func() *locker.Client {
		return locker.New(fenced.New(goredis.New(beneath.DialSentinel(t, s), beneath.Long)), locker.WithTTL(time.Minute))
	}
	first, err := connect().Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	s.AwaitFailover(s.KillMaster())
	second, err := connect().Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if first.Context().Err() != nil || first.Lease().Ended() {
		t.Error("there are no two holders")
	}
	if second.Fence() <= first.Fence() {
		t.Errorf("number %d after %d", second.Fence(), first.Fence())
	}
}
