package backendtest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// GuardedStore is what [RunGuard] tests: a store, and transactions of an application that depend on
// its locks.
type GuardedStore interface {
	backends.TransferStore
	backends.SharedTransferStore
	backends.Inspector
	backends.Evictor

	// Isolations are the names of the isolation levels that transactions may have.
	Isolations() []string

	// Begin begins a transaction. It reads something, so that a level with a snapshot has it from
	// then. commit ends the transaction as an application does: with the guard of a lock, or of a
	// shared hold, as its last statement before the commit. If the guard passes, commit calls between
	// before it commits. The error is nil if it was committed.
	Begin(ctx context.Context, isolation string) (commit func(key, token string, shared bool, between func()) error, err error)
}

// GuardHarness says how to test the guard of a store.
type GuardHarness = HarnessFor[GuardedStore, SharedOutside]

// RunGuard is [Run] for the guard of a store: it is asked for by each kind of lease, at each
// isolation level, in a transaction that began before the lease was lost, and in one that began after.
func RunGuard(t *testing.T, h GuardHarness) {
	t.Helper()
	ofGuard.run(t, h)
}

var ofGuard = suite[GuardedStore, SharedOutside]{
	sentences: func(GuardHarness) []sentence { return guardSentences },
	give: func(x *fixture, store GuardedStore, outside SharedOutside) {
		x.guarded, x.store, x.shared, x.setShared = store, store, store, outside.SetShared
		x.transfers, x.holdTransfers, x.inspector, x.evictor = store, store, store, store
	},
}

var guardSentences = []sentence{
	{"a transaction commits with the guard of a lease that is its holder's", func(x *fixture) {
		x.guards(func(string, string, bool) {}, true)
	}},
	{"a transaction never commits with the guard of a lease that was evicted", func(x *fixture) {
		for _, e := range []backends.Eviction{{By: "ann"}, {Now: true}} {
			x.guards(func(key, token string, _ bool) { x.evict(key, backends.PrintOf(token), e, true) }, false)
		}
	}},
	{"a transaction never commits with the guard of a lease that was transferred", func(x *fixture) {
		for _, numbered := range []bool{false, true} {
			x.guards(func(key, token string, shared bool) {
				res, err := backends.Result{}, error(nil)
				if shared {
					res, err = x.holdTransfers.TransferHold(x.Context(), key, token, labelled(""), x.long, "", numbered)
				} else {
					res, err = x.transfers.Transfer(x.Context(), key, token, labelled(""), x.long, numbered)
				}
				if err != nil || !res.OK {
					x.Fatalf("Transfer = %+v, %v; want it granted", res, err)
				}
			}, false)
		}
	}},
	{"a transaction never commits with the guard of a lease that was released, also if another has it now", func(x *fixture) {
		for _, taken := range []bool{false, true} {
			x.guards(func(key, token string, shared bool) {
				switch {
				case !shared:
					x.remove(key, token)
				default:
					x.leave(key, token)
				}
				switch {
				case !taken:
				case shared:
					x.admit(key, labelled(""), x.long, backends.Admission{Limit: 2}, 0, 0)
				default:
					x.grant(key, labelled(""), x.long)
				}
			}, false)
		}
	}},
	{"a transaction never commits with the guard of a lease that has ended by itself", func(x *fixture) {
		for _, isolation := range x.guarded.Isolations() {
			x.guardEnded(isolation)
		}
	}},
	{"a transaction never commits after the eviction of its lease was answered, also if the guard passed before", func(x *fixture) {
		for _, e := range []backends.Eviction{{By: "ann"}, {Now: true}} {
			for _, isolation := range x.guarded.Isolations() {
				for _, kind := range leases {
					passed := false
					for again := 0; !passed && again < 100; again++ {
						passed = x.evictBetween(e, isolation, kind)
					}
					if !passed {
						x.Errorf("%s, isolation %q: the guard never passes", kind, isolation)
					}
				}
			}
		}
	}},
}

// evictBetween evicts a lease between the guard of a transaction and its commit. The eviction waits for
// the end of the transaction, or is refused until then, or the commit fails. It returns false if the guard
// did not pass, by a conflict with other transactions of the server.
func (x *fixture) evictBetween(e backends.Eviction, isolation, kind string) bool {
	x.Helper()
	type answer struct {
		ok  bool
		err error
	}
	key, token, shared := x.lease(kind)
	ctx, cancel := x.unhurried()
	defer cancel()
	evict := func() (a answer) {
		a.ok, a.err = x.evictor.Evict(ctx, key, backends.PrintOf(token), e)
		return a
	}
	commit, err := x.guarded.Begin(ctx, isolation)
	if err != nil {
		x.Fatalf("Begin: %v", err)
	}
	var early bool
	var answers chan answer
	err = commit(key, token, shared, func() {
		answers = make(chan answer, 1)
		go func() { answers <- evict() }()
		select {
		case a := <-answers:
			early = true
			answers <- a
		case <-time.After(overtaking):
		}
	})
	if answers == nil {
		return false
	}
	a := <-answers
	if early && a.ok && err == nil {
		x.Errorf("%s, isolation %q: the commit succeeds after %+v was answered", kind, isolation, e)
	}
	for again := 0; backends.Unsent(a.err) && again < 100; again++ {
		a = evict()
	}
	if !a.ok || a.err != nil {
		x.Errorf("%s, isolation %q: Evict = %v, %v after the transaction has ended; want true", kind, isolation, a.ok, a.err)
	}
	return true
}

// overtaking is how long an eviction has to overtake a commit, which it must not.
const overtaking = 100 * time.Millisecond

// leases are the kinds that a guard knows.
var leases = []string{"a lock", "a hold that is alone", "one of two holds"}

// lease takes one of them.
func (x *fixture) lease(kind string) (key, token string, shared bool) {
	x.Helper()
	key, token, shared, _ = x.leaseFor(kind, x.long)
	return key, token, shared
}

func (x *fixture) leaseFor(kind string, ttl time.Duration) (key, token string, shared bool, l life) {
	x.Helper()
	key, token, shared = x.key(rand.Text()), labelled(""), kind != "a lock"
	if kind == "one of two holds" {
		x.admit(key, labelled(""), x.long, backends.Admission{Limit: 2}, 1, 1)
	}
	if shared {
		return key, token, shared, x.admit(key, token, ttl, backends.Admission{Limit: 2}, 0, 0)
	}
	return key, token, shared, x.grant(key, token, ttl)
}

// guardEnded has transactions end with the guard of a lease of each kind that has ended by itself.
func (x *fixture) guardEnded(isolation string) {
	x.Helper()
	type transaction struct {
		says, key, token string
		shared           bool
		commit           func(key, token string, shared bool, between func()) error
	}
	var all []*transaction
	gone := map[string]int{} // how many holds each key has when its lease has ended
	var last life
	for i, kind := range leases {
		for _, began := range []string{"before", "after"} {
			t := &transaction{says: kind + ", the transaction began " + began + " its end"}
			t.key, t.token, t.shared, last = x.leaseFor(kind, 50*time.Millisecond)
			gone[t.key] = i / 2
			all = append(all, t)
		}
	}
	begin := func(from int) {
		for i := from; i < len(all); i += 2 {
			var err error
			if all[i].commit, err = x.guarded.Begin(x.Context(), isolation); err != nil {
				x.Fatalf("Begin: %v", err)
			}
		}
	}
	begin(0)
	for key, holds := range gone {
		x.eventually("the lease has ended", last, func() bool { return x.inspect(key).Holding == holds })
	}
	begin(1)
	for _, t := range all {
		if err := t.commit(t.key, t.token, t.shared, func() {}); err == nil {
			x.Errorf("%s, isolation %q: it commits", t.says, isolation)
		}
	}
}

// guards has transactions end with the guard of a lease after something happened to it. One that
// ends by a conflict with other transactions of the server says nothing of its guard: there is
// another one then.
func (x *fixture) guards(happens func(key, token string, shared bool), commits bool) {
	x.Helper()
	for _, isolation := range x.guarded.Isolations() {
		for _, kind := range leases {
			for _, began := range []string{"before", "after"} {
				err := x.guard(happens, isolation, kind, began)
				for again := 0; commits && backends.Unsent(err) && again < 100; again++ {
					err = x.guard(happens, isolation, kind, began)
				}
				if (err == nil) != commits {
					x.Errorf("%s, isolation %q, the transaction began %s it happened: the commit gives %v; want it to succeed: %v",
						kind, isolation, began, err, commits)
				}
			}
		}
	}
}

// guard returns the error of a commit with a guard.
func (x *fixture) guard(happens func(key, token string, shared bool), isolation, kind, began string) error {
	x.Helper()
	key, token, shared := x.lease(kind)
	if began == "after" {
		happens(key, token, shared)
	}
	commit, err := x.guarded.Begin(x.Context(), isolation)
	if err != nil {
		x.Fatalf("Begin: %v", err)
	}
	if began == "before" {
		happens(key, token, shared)
	}
	return commit(key, token, shared, func() {})
}
