package natsstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/silent"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/nats-io/nats.go"
)

// By default, the client library finds a connection that is silent after four minutes or more.
func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := run(t)
	if err := natsstore.New(dial(t, server.ClientURL())).Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string][]nats.Option{"default": nil, "fast": fastPings} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent.Run(t, server.Addr().String(), func(t *testing.T, addr string) *natsstore.Store {
				return natsstore.New(dial(t, "nats://"+addr, opts...))
			}, (*natsstore.Store).Check)
		})
	}
}
