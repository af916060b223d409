package dialects_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// modernc.org/sqlite is C that was translated to Go, and very slow under the race detector. All code of a
// strategy over it, but for the driver, runs under the detector over MariaDB.
func TestEveryStrategy(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		if d.name == sqlite.name {
			race.LeaveOut(t)
		}
		db := d.fresh(t)
		h := lockertest.Harness{MaxTTL: maxTTL, NoWatch: true}
		beneath.ThatFit(t, h, db.store(), func(t *testing.T) (any, beneath.Outside) { return db.store(), outside{t, db} })
	})
}

// With default options, a key is kept for as long as ShedLock's settings keep one, longer than any lease
// may be.
func TestAMinimumHoldOfManyMinutesNeedsNoOption(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		const least = 14 * time.Minute
		db := d.fresh(t)
		c := locker.New(single.New(d.open(db.DB)))
		began := time.Now()
		l, err := c.Lock(t.Context(), "key", locker.WithMinHold(least))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = c.TryLock(t.Context(), "key")
		held, ok := errors.AsType[*locker.HeldError](err)
		if !ok || held.Left < least-time.Since(began)-time.Second || held.Left > least+time.Second {
			t.Errorf("TryLock after Unlock = %v; want it held for the rest of %v", err, least)
		}
	})
}

func TestAQuorumOfFiles(t *testing.T) { quorum(t, sqlite.fresh(t), sqlite.fresh(t), sqlite.fresh(t)) }

func TestAQuorumOfDifferentStores(t *testing.T) {
	quorum(t, sqlite.fresh(t), mariadb.fresh(t), mariadb.fresh(t))
}

// quorum checks that the locks of a quorum exclude, with and without numbers, and go on without one node.
func quorum(t *testing.T, nodes ...database) {
	t.Helper()
	var stores []backends.FencedStore
	var identifiers []backends.Identifier
	var lockers []locker.Locker
	for _, db := range nodes {
		s := db.store()
		stores, identifiers, lockers = append(stores, s), append(identifiers, s), append(lockers, single.New(s))
	}
	if err := backends.CheckNodes(trial.Patient(t), identifiers...); err != nil {
		t.Fatal(err)
	}
	if err := backends.CheckNodes(trial.Patient(t), identifiers[0], identifiers[1], identifiers[0]); err == nil {
		t.Error("one node twice is no quorum, and was not refused")
	}
	numbered, err := redlock.NewFenced(stores)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := redlock.New(lockers)
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	for i, l := range []locker.Locker{numbered, plain, numbered, plain} {
		if i == 2 {
			_ = nodes[2].Close()
		}
		key := []string{"numbered", "plain"}[i%2]
		locks, others := locker.New(l), locker.New(l)
		held, err := locks.Lock(t.Context(), key, locker.WithWait(patience))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := others.TryLock(t.Context(), key); err == nil {
			t.Error("a lock of the quorum that is held was granted again")
		}
		if i%2 == 0 && held.Fence() <= last {
			t.Errorf("number %d after %d", held.Fence(), last)
		}
		last = max(last, held.Fence())
		if err := held.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
}
