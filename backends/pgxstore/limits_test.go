package pgxstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// An index of the server takes no longer keys, and a message none at all.
func TestWhatIsTooLongForTheTablesIsInvalid(t *testing.T) {
	const mostKey, mostValue = 1024, 1536
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	prefix := random(100)
	s := pgxstore.New(pool, pgxstore.WithPrefix(prefix), pgxstore.WithMaxTTL(maxTTL))
	key, value := random(mostKey-len(prefix)), random(mostValue)

	// all that is as long as can be: a release tells a waiter
	granted(t)(s.SetNX(t.Context(), key, value, maxTTL))
	if err := s.WatchQueued(t.Context(), key, value, func() {}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.SetNXQueued(t.Context(), key, "v", maxTTL, backends.Turn{Waiter: value}); r.OK || err != nil {
		t.Errorf("SetNXQueued = %+v, %v", r, err)
	}
	if ok, err := s.DeleteIf(t.Context(), key, value); !ok || err != nil {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	granted(t)(s.Enter(t.Context(), "hold", value, maxTTL, backends.Admission{Group: value}))

	ctx, nothing := t.Context(), func() {}
	for what, call := range map[string]func(key, value string) error{
		"SetNX": func(k, v string) error { _, err := s.SetNX(ctx, k, v, maxTTL); return err },
		"Enter": func(k, v string) error { _, err := s.Enter(ctx, k, v, maxTTL, backends.Admission{}); return err },
		"Enter of a group": func(k, v string) error {
			_, err := s.Enter(ctx, k, "v", maxTTL, backends.Admission{Group: v})
			return err
		},
		"SetNXQueued": func(k, v string) error {
			_, err := s.SetNXQueued(ctx, k, "v", maxTTL, backends.Turn{Waiter: v})
			return err
		},
		"Enter of a waiter": func(k, v string) error {
			_, err := s.Enter(ctx, k, "v", maxTTL, backends.Admission{Turn: backends.Turn{Waiter: v}})
			return err
		},
		"ExpireIf":   func(k, v string) error { _, err := s.ExpireIf(ctx, k, v, maxTTL); return err },
		"DeleteIf":   func(k, v string) error { _, err := s.DeleteIf(ctx, k, v); return err },
		"Renew":      func(k, v string) error { _, err := s.Renew(ctx, k, v, maxTTL); return err },
		"Leave":      func(k, v string) error { _, err := s.Leave(ctx, k, v); return err },
		"RaiseFence": func(k, v string) error { _, err := s.RaiseFence(ctx, k, v, 7); return err },
		"Transfer":   func(k, v string) error { _, err := s.Transfer(ctx, k, "v", v, maxTTL, false); return err },
		"TransferHold": func(k, v string) error {
			_, err := s.TransferHold(ctx, k, "v", v, maxTTL, "", false)
			return err
		},
		"WatchQueued": func(k, v string) error { return s.WatchQueued(ctx, k, v, nothing) },
		"Watch": func(k, v string) error {
			if v != "v" {
				return backends.Invalid("it has no value")
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return s.Watch(ctx, k, nothing)
		},
		"Inspect": func(k, v string) error {
			if v != "v" {
				return backends.Invalid("it has no value")
			}
			_, err := s.Inspect(ctx, k)
			return err
		},
		"Evict": func(k, v string) error {
			if v != "v" {
				return backends.Invalid("it has no value")
			}
			_, err := s.Evict(ctx, k, "print", backends.Eviction{Now: true})
			return err
		},
		"Guard": func(k, v string) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			return s.Guard(ctx, pgxstore.InTx(tx), contract.Lease{Key: k, Token: v})
		},
	} {
		for _, long := range []struct{ part, key, value string }{{"a key", key + "x", "v"}, {"a value", "k", value + "x"}} {
			if err := call(long.key, long.value); !errors.As(err, new(backends.Invalid)) || !backends.Permanent(err) {
				t.Errorf("%s with %s that is too long = %v; want it invalid", what, long.part, err)
			}
		}
	}
}

// random is a text that can't be made shorter, without an @.
func random(n int) string {
	var text strings.Builder
	for text.Len() < n {
		text.WriteString(rand.Text())
	}
	return text.String()[:n]
}
