package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const patience = 2 * time.Minute // for a busy machine

// bell tells of wake-ups.
type bell chan struct{}

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

func (b bell) await(t *testing.T, what string) {
	t.Helper()
	select {
	case <-b:
	case <-time.After(patience):
		t.Fatalf("not woken within %v: %s", patience, what)
	}
}

func TestAConnectionForWakeUpsThatIsLostIsReplaced(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	store := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	all, queued := make(bell, 1), make(bell, 1)
	for _, key := range []string{"watched", "queued"} {
		if r, err := store.SetNX(t.Context(), key, "token", 10*time.Minute); err != nil || !r.OK {
			t.Fatal(r, err)
		}
	}
	if err := store.Watch(t.Context(), "watched", all.ring); err != nil {
		t.Fatal(err)
	}
	if err := store.WatchQueued(t.Context(), "queued", "waiter", queued.ring); err != nil {
		t.Fatal(err)
	}
	r, err := store.SetNXQueued(t.Context(), "queued", "next", 10*time.Minute, backends.Turn{Waiter: "waiter"})
	if err != nil || r.Position != 1 {
		t.Fatalf("SetNXQueued = %+v, %v; want position 1", r, err)
	}
	for range 3 {
		outside{t, pool}.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lockstep wake-ups'")
		all.await(t, "messages may have been missed")
		queued.await(t, "messages may have been missed")
	}
	for key, woken := range map[string]bell{"watched": all, "queued": queued} {
		if ok, err := store.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
			t.Fatal(ok, err)
		}
		woken.await(t, key+" was released")
	}
}

func TestBehindAPoolerThatGivesEachTransactionAnotherConnection(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	pool, direct := install(t, server.Pooler(t)), dial(t, server.DSN())
	t.Run("with a listener past it", func(t *testing.T) {
		backendtest.RunQueued(t, backendtest.QueuedHarness{MaxTTL: maxTTL, New: func(t *testing.T) (backends.QueuedStore, backendtest.Outside) {
			return pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL), pgxstore.WithListener(server.DSN())), outside{t, direct}
		}})
	})
	t.Run("without a listener past it", func(t *testing.T) {
		store := pgxstore.New(pool)
		if err := store.Watch(t.Context(), "k", func() {}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Watch = %v; want an error that matches errors.ErrUnsupported", err)
		}
		if err := store.WatchQueued(t.Context(), "k", "waiter", func() {}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("WatchQueued = %v; want an error that matches errors.ErrUnsupported", err)
		}
	})
}

// grants takes many keys and returns them.
func grants(t *testing.T, store backends.Store, n int) (keys []string) {
	t.Helper()
	for i := range n {
		key := strconv.Itoa(i)
		if r, err := store.SetNX(t.Context(), key, "token", 20*time.Minute); err != nil || !r.OK {
			t.Fatalf("SetNX = %+v, %v", r, err)
		}
		keys = append(keys, key)
	}
	return keys
}

// heldOf counts the keys that are held. The first call may find that the connections of the pool are gone.
func heldOf(t *testing.T, store backends.Store, keys []string) (held int) {
	t.Helper()
	for _, key := range keys {
		eventually(t, "the store answers", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			ok, err := store.ExpireIf(ctx, key, "token", time.Minute)
			if ok {
				held++
			}
			return err == nil
		})
	}
	return held
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !done(); {
		if time.Now().After(limit) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// A crash forgets the part that the table has: locks, permits or numbers.
func TestACrashForgetsNoGrantUnlessTheTableIsUnlogged(t *testing.T) {
	for table, want := range map[string]string{
		"":       "50 locks, 1 permit, the number 2",
		"lock":   "0 locks, 0 permit, the number 2",
		"hold":   "50 locks, 0 permit, the number 2",
		"number": "50 locks, 1 permit, the number 1",
	} {
		t.Run("UNLOGGED "+table, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			pool := install(t, server.DSN())
			if table != "" {
				outside{t, pool}.exec("ALTER TABLE lockstep." + table + " SET UNLOGGED")
			}
			store := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
			keys := grants(t, store, 50)
			if r, err := store.Enter(t.Context(), "permits", "token", 20*time.Minute, backends.Admission{Limit: 1}); err != nil || !r.OK {
				t.Fatal(r, err)
			}
			if r, err := store.SetNXFenced(t.Context(), "numbered", "token", 20*time.Minute); err != nil || r.Fence != 1 {
				t.Fatal(r, err)
			}
			if ok, err := store.DeleteIf(t.Context(), "numbered", "token"); err != nil || !ok {
				t.Fatal(ok, err)
			}
			server.Kill()
			server.Restart()
			held, permits := heldOf(t, store, keys), 0
			if ok, err := store.Renew(t.Context(), "permits", "token", 20*time.Minute); err != nil {
				t.Error(err)
			} else if ok {
				permits++
			}
			if r, err := store.Enter(t.Context(), "permits", "other", 20*time.Minute, backends.Admission{Limit: 1}); err != nil || r.OK != (permits == 0) {
				t.Errorf("Enter by another holder = %+v, %v", r, err)
			}
			r, err := store.SetNXFenced(t.Context(), "numbered", "token", 20*time.Minute)
			if err != nil {
				t.Error(err)
			}
			if got := fmt.Sprintf("%d locks, %d permit, the number %d", held, permits, r.Fence); got != want {
				t.Errorf("after a crash: %s; want %s", got, want)
			}
		})
	}
}

// The commit does not wait for the disk. A server that writes by itself just then forgets nothing.
func TestACrashForgetsGrantsThatDidNotWaitForTheDisk(t *testing.T) {
	server := pgtest.Start(t, "synchronous_commit=off", "wal_writer_delay=10s")
	pool := install(t, server.DSN())
	for round := range 5 {
		store := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL), pgxstore.WithPrefix(fmt.Sprint(round, "/")))
		outside{t, pool}.exec(fmt.Sprintf("SET LOCAL synchronous_commit = on; CREATE TABLE flushed_%d ()", round)) // what was before is on disk
		keys := grants(t, store, 50)
		server.Kill()
		server.Restart()
		if heldOf(t, store, keys) < len(keys) {
			return
		}
		eventually(t, "all connections are new", func() bool { return pool.Ping(t.Context()) == nil })
	}
	t.Error("five crashes forgot no grant")
}

func TestAFailoverForgetsOnlyGrantsThatDidNotWaitForTheStandby(t *testing.T) {
	t.Run("asynchronous", func(t *testing.T) {
		first := pgtest.Start(t)
		pool := install(t, first.DSN())
		standby := first.Standby(t)
		awaitReplication(t, pool, 1)
		standby.Stop() // what the kernel has received for a paused one is not lost
		keys := grants(t, pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL)), 20)
		first.Kill()
		standby.Restart()
		standby.Promote()
		if held := heldOf(t, pgxstore.New(dial(t, standby.DSN()), pgxstore.WithMaxTTL(maxTTL)), keys); held != 0 {
			t.Errorf("%d of %d keys are held after the failover; want those forgotten that the standby had not received", held, len(keys))
		}
	})
	t.Run("synchronous", func(t *testing.T) {
		first := pgtest.Start(t, "synchronous_standby_names=*", "synchronous_commit=local")
		pool := install(t, first.DSN())
		standby := first.Standby(t)
		awaitReplication(t, pool, 1)
		outside{t, pool}.exec("ALTER SYSTEM SET synchronous_commit = on")
		waiting := dial(t, first.DSN()+" synchronous_commit=on")
		store := pgxstore.New(waiting, pgxstore.WithMaxTTL(maxTTL))
		keys := grants(t, store, 20)

		standby.Pause() // a grant now waits for the standby, and is not told
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if r, err := store.SetNX(ctx, "untold", "token", time.Minute); err == nil {
			t.Errorf("SetNX = %+v while the standby does not answer; want an error", r)
		}
		first.Kill()
		standby.Resume()
		standby.Promote()
		if held := heldOf(t, pgxstore.New(dial(t, standby.DSN()), pgxstore.WithMaxTTL(maxTTL)), keys); held != len(keys) {
			t.Errorf("%d of %d keys are held after the failover", held, len(keys))
		}
	})
}

func awaitReplication(t *testing.T, pool querier, standbys int) {
	t.Helper()
	eventually(t, "the standby follows", func() bool {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn = pg_current_wal_lsn()").Scan(&n)
		return err == nil && n == standbys
	})
}

// Under serializable isolation, attempts that meet fail with a conflict. Nothing was done then.
func TestConflictsAreNoGrantsAndCanBeRepeated(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off", "default_transaction_isolation=serializable").DSN())
	locks := locker.New(single.New(pgxstore.New(pool)), locker.WithTTL(30*time.Second))
	var inside, most, n atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 10 {
				err := locks.Do(t.Context(), "k", func(context.Context, *locker.Lock) error {
					most.Store(max(most.Load(), inside.Add(1)))
					n.Add(1)
					inside.Add(-1)
					return nil
				}, locker.WithWait(patience)) // without it, a conflict may be the end of a wait
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if most.Load() != 1 || n.Load() != 160 {
		t.Errorf("%d at once, %d times; want 1 and 160", most.Load(), n.Load())
	}
}

func TestErrorsTellTheirClass(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	pool := dial(t, server.DSN())
	store := pgxstore.New(pool, pgxstore.WithoutWakes())
	want := func(what string, err error, permanent, unsent bool) {
		t.Helper()
		var p interface{ Permanent() bool }
		var u interface{ Unsent() bool }
		isPermanent, isUnsent := errors.As(err, &p) && p.Permanent(), errors.As(err, &u) && u.Unsent()
		if err == nil || isPermanent != permanent || isUnsent != unsent {
			t.Errorf("%s: %v; permanent %v, not done %v", what, err, isPermanent, isUnsent)
		}
	}
	_, err := store.SetNX(t.Context(), "k", "token", time.Second)
	want("without Install", err, true, false)
	if err := pgxstore.Install(trial.Patient(t), pool); err != nil {
		t.Fatal(err)
	}
	outside{t, pool}.exec("CREATE ROLE guest LOGIN")
	guest := dial(t, "user=guest "+withoutUser(server.DSN()))
	_, err = pgxstore.New(guest).SetNX(t.Context(), "k", "token", time.Second)
	want("without rights", err, true, false)
	for _, statement := range split(sqlstore.PostgreSQLGrants("guest")) {
		outside{t, pool}.exec(statement)
	}
	if r, err := pgxstore.New(guest).SetNX(t.Context(), "k", "token", time.Second); err != nil || !r.OK {
		t.Errorf("with the rights of PostgreSQLGrants: %+v, %v", r, err)
	}
	standby := server.Standby(t)
	_, err = pgxstore.New(dial(t, standby.DSN())).SetNX(t.Context(), "other", "token", time.Second)
	want("on a standby", err, false, true)
	_, err = pgxstore.New(dial(t, "host=127.0.0.1 port=1 user=postgres dbname=postgres sslmode=disable")).SetNX(t.Context(), "k", "token", time.Second)
	want("without a server", err, false, true)
	_, err = pgxstore.New(nil).SetNX(t.Context(), "k", "token", time.Second)
	want("without a pool", err, true, false)
	_, err = pgxstore.New(pool, pgxstore.WithListener("host=127.0.0.1 port=none")).SetNX(t.Context(), "k", "token", time.Second)
	want("with a bad connection string", err, true, false)
	if err := pgxstore.New(pool, pgxstore.WithoutWakes()).Watch(t.Context(), "k", func() {}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Watch without wake-ups = %v", err)
	}
	for _, r := range []time.Duration{0, time.Millisecond - 1, 31 * time.Second} {
		_, err := store.SetNX(t.Context(), "k", "token", r)
		want(fmt.Sprint("a ttl of ", r), err, true, false)
	}
}
