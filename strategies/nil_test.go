package strategies_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/table"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAStrategyOverANilStoreAnswersEveryCallWithAnError(t *testing.T) {
	var none *memory.Store
	all := map[string]locker.Locker{
		"single": single.New(nil), "fair": fair.New(nil), "fenced": fenced.New(nil), "reentrant": reentrant.New(nil),
		"semaphore": semaphore.New(nil, 1), "readers": rwlock.New(nil).Readers(), "writers": rwlock.New(nil).Writers(),
		"legacy getset": legacy.GetSet(nil), "legacy expire": legacy.Expire(nil),
		"legacy setbit": legacy.SetBit(nil), "legacy getbit": legacy.GetBit(nil),
		"single over a nil pointer": single.New(none), "fair over a nil pointer": fair.New(none),
		"fenced over a nil pointer": fenced.New(none), "reentrant over a nil pointer": reentrant.New(none),
		"semaphore over a nil pointer": semaphore.New(none, 1, semaphore.WithOrder()),
		"readers over a nil pointer":   rwlock.New(none).Readers(), "writers over a nil pointer": rwlock.New(none).Writers(),
	}
	for _, r := range table.All() {
		if len(r.Sizes) == 0 {
			all[r.Name+" of the table"] = table.Over(r, (*memory.LegacyStore)(nil), table.Setup{Permits: 1})
		}
	}
	for name, l := range all {
		req := contract.Request{Key: "key", Token: contract.NewToken(), TTL: time.Second}
		_, acquire := l.Acquire(t.Context(), req)
		_, extend := l.Extend(t.Context(), contract.Lease{Key: "key", Token: req.Token}, time.Second)
		_, lock := locker.New(l).Lock(t.Context(), "key")
		for op, err := range map[string]error{
			"acquire": acquire, "extend": extend,
			"release": l.Release(t.Context(), contract.Lease{Key: "key", Token: req.Token}),
			"watch":   l.Watch(t.Context(), "key", "", func() {}),
			"lock":    lock,
		} {
			if op == "lock" {
				op = "acquire"
			}
			var permanent interface{ Permanent() bool }
			if want := `lockstep: ` + op + ` "key": the store is nil: pass an open store`; err == nil || err.Error() != want {
				t.Errorf("%s: %v; want %s", name, err, want)
			} else if !errors.As(err, &permanent) || !permanent.Permanent() {
				t.Errorf("%s: %v is not permanent", name, err)
			}
		}
	}
}

func TestANilNodeOfAQuorumIsAnError(t *testing.T) {
	var none *memory.Store
	var nobody *nobody
	good := single.New(memory.New())
	_, plain := redlock.New([]locker.Locker{good, nobody, nil})
	_, numbered := redlock.NewFenced([]backends.FencedStore{memory.New(), none, memory.New()})
	for _, err := range []error{plain, numbered} {
		if err == nil || err.Error() != "lockstep: redlock: node 2 is nil" {
			t.Errorf("error %v; want that node 2 is nil", err)
		}
	}
}

// nobody is a Locker of other software.
type nobody struct{ locker.Locker }

func (*nobody) Release(context.Context, contract.Lease) error { return nil }
