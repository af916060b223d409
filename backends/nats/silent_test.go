package nats_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/nats"
	"github.com/lockstep-go/lockstep/proof/silent"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := run(t)
	if err := nats.New(dial(t, server.ClientURL())).Install(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	silent.Run(t, server.Addr().String(), func(t *testing.T, addr string) *nats.Store {
		return nats.New(dial(t, "nats://"+addr, fastPings...))
	}, (*nats.Store).Check)
}
