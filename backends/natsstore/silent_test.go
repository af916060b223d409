package natsstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/silent"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := run(t)
	if err := natsstore.New(dial(t, server.ClientURL())).Install(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	silent.Run(t, server.Addr().String(), func(t *testing.T, addr string) *natsstore.Store {
		return natsstore.New(dial(t, "nats://"+addr, fastPings...))
	}, (*natsstore.Store).Check)
}
