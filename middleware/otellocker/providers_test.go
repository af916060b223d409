package otellocker_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestTheGlobalProvidersAreUsed runs itself in a child process, since a process can set the global
// providers only once.
func TestTheGlobalProvidersAreUsed(t *testing.T) {
	if os.Getenv("LOCKSTEP_SETS_GLOBAL_PROVIDERS") == "" {
		if out, err := child.Command(t, t.Name(), "LOCKSTEP_SETS_GLOBAL_PROVIDERS=1").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	s := newSDK()
	locks := func(opts ...otellocker.Option) *locker.Client {
		return locker.New(single.New(memory.New()), locker.WithMiddleware(otellocker.New(opts...)))
	}
	before := locks()
	otellocker.Terms()
	cycle(t, before, "no provider yet")
	otel.SetTracerProvider(s.tracers)
	otel.SetMeterProvider(s.meters)
	cycle(t, before, "made before")
	cycle(t, locks(), "made after")
	other := newSDK()
	cycle(t, locks(other.options()...), "given others")

	seen := map[string]int{}
	for _, span := range s.spans() {
		for _, a := range span.Attributes {
			if a.Key == "lock.key" {
				seen[a.Value.AsString()]++
			}
		}
	}
	if len(seen) != 2 || seen["made before"] != 2 || seen["made after"] != 2 {
		t.Errorf("spans by key: %v", seen)
	}
	s.wantSound(t)
	if scope := s.collect().Scope; scope.Name != otellocker.ScopeName || scope.Version != otellocker.Version {
		t.Errorf("metrics are of scope %s %s", scope.Name, scope.Version)
	}
	for _, m := range []string{"lock.acquire.duration", "lock.acquire.attempts", "lock.hold.duration"} {
		if n := s.count(m); n != 2 {
			t.Errorf("%s has %d values", m, n)
		}
	}
	if all := strings.Join(points(s.collect()), "\n"); !strings.Contains(all, "lock.leading{} 0") {
		t.Errorf("a hook that was made before does not report:\n%s", all)
	}
	if len(other.spans()) != 2 || other.count("lock.acquire.duration") != 1 {
		t.Error("providers that are given are not used")
	}
}

func cycle(t *testing.T, locks *locker.Client, key string) {
	t.Helper()
	l, err := locks.Lock(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(context.Background()); err != nil {
		t.Error(err)
	}
}
