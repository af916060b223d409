package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// guards are transactions with a guard, and calls of the store beside them.
type guards struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *sqlstore.PostgreSQL
}

func newGuards(t testing.TB, settings ...string) guards {
	t.Helper()
	pool := install(t, pgtest.Start(t, append(settings, "fsync=off")...).DSN())
	return guards{t, pool, pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))}
}

// hold takes a lock, or a permit of two.
func (g guards) hold(key, token string, shared bool, ttl time.Duration) {
	g.t.Helper()
	if shared {
		granted(g.t)(g.store.Enter(g.t.Context(), key, token, ttl, backends.Admission{Limit: 2}))
	} else {
		granted(g.t)(g.store.SetNX(g.t.Context(), key, token, ttl))
	}
}

func (g guards) renew(ctx context.Context, key, token string, shared bool) (bool, error) {
	if shared {
		return g.store.Renew(ctx, key, token, time.Minute)
	}
	return g.store.ExpireIf(ctx, key, token, time.Minute)
}

// begin begins a transaction that has its snapshot.
func (g guards) begin(isolation pgx.TxIsoLevel) pgx.Tx {
	g.t.Helper()
	tx, err := g.pool.BeginTx(g.t.Context(), pgx.TxOptions{IsoLevel: isolation})
	if err == nil {
		g.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		_, err = tx.Exec(g.t.Context(), "SELECT count(*) FROM pg_class")
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return tx
}

func (g guards) guard(tx pgx.Tx, key, token string) error {
	return g.store.Guard(g.t.Context(), pgxstore.InTx(tx), contract.Lease{Key: key, Token: token})
}

// waits is true when so many calls of the server wait for a lock.
func (g guards) waits(calls int) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("%d calls wait", calls), func() bool {
		var n int
		err := g.pool.QueryRow(g.t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&n)
		return err == nil && n == calls
	})
}

var isolationLevels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// A renewal, or a number that an operator raises, does not end a lease, and no guard does. So none of them waits
// for another.
func TestARenewalWaitsForNoGuard(t *testing.T) {
	g := newGuards(t)
	for _, isolation := range isolationLevels {
		for _, shared := range []bool{false, true} {
			key := fmt.Sprint(isolation, shared)
			g.hold(key, "token", shared, time.Minute)
			tx := g.begin(isolation)
			if err := g.guard(tx, key, "token"); err != nil {
				t.Fatalf("%s: Guard = %v", key, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if ok, err := g.renew(ctx, key, "token", shared); !ok || err != nil {
				t.Errorf("%s: a renewal beside a transaction with a guard = %v, %v", key, ok, err)
			}
			if !shared {
				if ok, err := g.store.RaiseFence(ctx, key, "token", 7); !ok || err != nil {
					t.Errorf("%s: RaiseFence beside a transaction with a guard = %v, %v", key, ok, err)
				}
			}
			cancel()
			if err := tx.Commit(t.Context()); err != nil {
				t.Errorf("%s: Commit after a renewal = %v", key, err)
			}
		}
	}
}

// A snapshot shows the end of the lease before its renewal. The lease is not lost: Guard passes, or asks for
// a repetition. It still fails if the lease has ended or was released after its renewal.
func TestAGuardKnowsOfARenewalAfterItsSnapshot(t *testing.T) {
	const short = time.Second
	g := newGuards(t)
	for _, isolation := range isolationLevels {
		for _, shared := range []bool{false, true} {
			for _, after := range []string{"renewed", "ended", "released"} {
				key := fmt.Sprint(isolation, shared, after)
				if shared {
					g.hold(key, "another", shared, time.Hour) // so a renewal of the hold changes the end of the hold alone
				}
				g.hold(key, "token", shared, short)
				tx := g.begin(isolation)
				if after != "ended" {
					if ok, err := g.renew(t.Context(), key, "token", shared); !ok || err != nil {
						t.Fatalf("%s: a renewal = %v, %v", key, ok, err)
					}
				}
				if after == "released" {
					end := g.store.DeleteIf
					if shared {
						end = g.store.Leave
					}
					if ok, err := end(t.Context(), key, "token"); !ok || err != nil {
						t.Fatalf("%s: a release = %v, %v", key, ok, err)
					}
				}
				time.Sleep(short)
				err := g.guard(tx, key, "token")
				switch lost := errors.Is(err, locker.ErrLost); {
				case after == "renewed" && err != nil && (lost || !backends.Unsent(err)):
					t.Errorf("%s: Guard = %v; want nil or a conflict", key, err)
				case after == "ended" && !lost:
					t.Errorf("%s: Guard = %v; want ErrLost", key, err)
				case err == nil && after == "released":
					t.Errorf("%s: Guard passes", key)
				}
			}
		}
	}
}

// Guards that overlap without an end would keep a call that waits for the row waiting for ever.
func TestAGuardWaitsBehindACallThatWaits(t *testing.T) {
	for name, of := range map[string]struct {
		shared bool
		call   func(ctx context.Context, s *sqlstore.PostgreSQL, key string) error
		lost   bool
	}{
		"enter": {shared: true, call: func(ctx context.Context, s *sqlstore.PostgreSQL, key string) error {
			_, err := s.Enter(ctx, key, "new", time.Minute, backends.Admission{Limit: 2})
			return err
		}},
		"leave": {shared: true, lost: true, call: func(ctx context.Context, s *sqlstore.PostgreSQL, key string) error {
			_, err := s.Leave(ctx, key, "token")
			return err
		}},
		"a waiter": {call: func(ctx context.Context, s *sqlstore.PostgreSQL, key string) error {
			if err := s.WatchQueued(ctx, key, "new", func() {}); err != nil {
				return err
			}
			_, err := s.SetNXQueued(ctx, key, "new", time.Minute, backends.Turn{Waiter: "new"})
			return err
		}},
		"release": {lost: true, call: func(ctx context.Context, s *sqlstore.PostgreSQL, key string) error {
			_, err := s.DeleteIf(ctx, key, "token")
			return err
		}},
		"transfer": {lost: true, call: func(ctx context.Context, s *sqlstore.PostgreSQL, key string) error {
			_, err := s.Transfer(ctx, key, "token", "new", time.Minute, false)
			return err
		}},
		"transfer of a hold": {shared: true, lost: true, call: func(ctx context.Context, s *sqlstore.PostgreSQL, key string) error {
			_, err := s.TransferHold(ctx, key, "token", "new", time.Minute, "", false)
			return err
		}},
		"evict": {lost: true, call: func(ctx context.Context, s *sqlstore.PostgreSQL, key string) error {
			_, err := s.Evict(ctx, key, backends.PrintOf("token"), backends.Eviction{Now: true, Foreign: true})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuards(t)
			g.hold("k", "token", of.shared, time.Hour)
			first, second := g.begin(pgx.ReadCommitted), g.begin(pgx.ReadCommitted)
			if err := g.guard(first, "k", "token"); err != nil {
				t.Fatal(err)
			}
			called := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				called <- of.call(ctx, g.store, "k")
			}()
			g.waits(1)
			guarded := make(chan error, 1)
			go func() { guarded <- g.guard(second, "k", "token") }()
			passed := false
			eventually(t, "the second guard waits, or passes", func() bool {
				select {
				case err := <-guarded:
					passed = true
					guarded <- err
				default:
				}
				var n int
				err := g.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&n)
				return err == nil && (passed || n == 2)
			})
			if passed {
				t.Fatalf("a guard passes a call that waits: %v", <-guarded)
			}
			if err := first.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-called; err != nil {
				t.Errorf("the call = %v", err)
			}
			if err := <-guarded; errors.Is(err, locker.ErrLost) != of.lost || (err != nil) != of.lost {
				t.Errorf("the second guard = %v; want it lost: %v", err, of.lost)
			}
		})
	}
}

// Two transactions guard two keys in opposite orders, and calls wait for both. The server lets one of the
// guards pass its call.
func TestGuardsOfSeveralKeysEndNoTransaction(t *testing.T) {
	g := newGuards(t, "deadlock_timeout=10ms")
	keys := []string{"a", "b"}
	for _, key := range keys {
		g.hold(key, "token", true, time.Hour)
	}
	inTx := []pgx.Tx{g.begin(pgx.ReadCommitted), g.begin(pgx.ReadCommitted)}
	for i, tx := range inTx {
		if err := g.guard(tx, keys[i], "token"); err != nil {
			t.Fatal(err)
		}
	}
	called := make(chan error, len(keys))
	for _, key := range keys {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := g.store.Enter(ctx, key, "new", time.Minute, backends.Admission{Limit: 2})
			called <- err
		}()
	}
	g.waits(len(keys))
	ended := make(chan error, len(inTx))
	for i, tx := range inTx {
		go func() {
			err := g.guard(tx, keys[1-i], "token")
			ended <- errors.Join(err, tx.Commit(context.Background()))
		}()
	}
	for range keys {
		if err := <-ended; err != nil {
			t.Errorf("a transaction with two guards = %v", err)
		}
	}
	for range keys {
		if err := <-called; err != nil {
			t.Errorf("Enter = %v", err)
		}
	}
}
