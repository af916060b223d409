package pgxstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// Waiters are late, leave and die, statement by statement. See backendtest for what a store promises of that.
func TestWaitersThatAreLateKeepTheirPositions(t *testing.T) {
	lateWaitersKeepTheirPositions(t, install(t, pgtest.Start(t, "fsync=off").DSN()))
}

func lateWaitersKeepTheirPositions(t testing.TB, pool *pgxpool.Pool) {
	p, o, k := newOldProgram(t, pool), outside{t, pool}, []byte("k")
	take := func(want, token, waiter string) {
		t.Helper()
		p.says(want, oldTake, k, []byte(token), minuteUS, int64(0), waiter, "old", true, oldReservation)
	}
	release := func(token string) {
		t.Helper()
		p.says("1", oldRelease, k, []byte(token), oldReservation)
	}
	late := func() { // the reservation of now is over
		t.Helper()
		o.exec(`UPDATE lockstep.lock SET expires = clock_timestamp() WHERE kind = 2; UPDATE lockstep.waiter SET reserved = clock_timestamp() WHERE reserved > clock_timestamp()`)
	}
	const us = `\d+`
	take("1 0 0 0 ", "first", "")
	take("0 0 "+us+" 1 ", "one", "one")
	take("0 0 "+us+" 2 ", "two", "two")
	release("first")
	p.hears("rone@6b")
	p.hears("ntwo@6b")
	late()
	take("1 0 0 0 ", "two", "two") // nobody waits for one
	take("0 0 "+us+" 1 ", "three", "three")
	take("0 0 "+us+" 1 ", "one", "one") // it has kept its position
	take("0 0 "+us+" 2 ", "three", "three")

	// a waiter in line has said for a while that it is alive
	o.exec(`UPDATE lockstep.waiter SET seen = clock_timestamp() - interval '2 minutes'`)
	release("two")
	p.hears("rone@6b")
	p.hears("nthree@6b")
	take("1 0 0 0 ", "one", "one")
	take("0 0 "+us+" 1 ", "three", "three")
	p.says("true", `SELECT seen > clock_timestamp() - interval '1 minute' FROM lockstep.waiter WHERE waiter = 'three'`)

	// the head leaves, before and after something is reserved for it
	take("0 0 "+us+" 2 ", "four", "four")
	take("0 0 "+us+" 3 ", "five", "five")
	p.says("true", oldQuit, k, "three", oldReservation)
	p.hears("nfour@6b")
	release("one")
	p.hears("rfour@6b")
	p.hears("nfive@6b")
	p.says("true", oldQuit, k, "four", oldReservation)
	p.hears("rfive@6b")
	late()

	// only late waiters are left: they hear that the key is free, and the dead are removed
	take("1 0 0 0 ", "first", "")
	release("first")
	p.hears("rfive@6b")
	o.exec(`UPDATE lockstep.waiter SET seen = clock_timestamp() - interval '2 minutes'`)
	take("1 0 0 0 ", "first", "")
	p.says("0", "SELECT count(*) FROM lockstep.waiter")

	// a waiter that is far away has more time, but not for ever
	p.says("0 0 "+us+" 1 ", oldTake, k, []byte("far"), minuteUS, int64(0), "far", "old", true, minuteUS)
	release("first")
	p.hears("rfar@6b")
	p.says("true", `SELECT expires < clock_timestamp() + interval '2001 milliseconds' FROM lockstep.lock WHERE key = 'k'`)
}
