// Package backendtest is the contract of a [backends.Store], and of the other interfaces of package
// backends, as tables of sentences that run against any store:
//
//	func TestStore(t *testing.T) {
//		backendtest.Run(t, backendtest.Harness{
//			New: func(t *testing.T) (backends.Store, backendtest.Outside) {
//				client := dial(t)
//				return mystore.New(client), outside{t, client}
//			},
//		})
//	}
//
// [Faults] makes the calls of a store fail, hang or be late, for the tests of code that uses
// stores.
package backendtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// The harnesses of [Run], [RunQueued], [RunNumbered], [RunFenced], [RunShared], [RunOrdered],
// [RunInspector], [RunTransfer], [RunGuard] and [RunLegacy].
type (
	// Harness says how to test a store.
	Harness = HarnessFor[backends.Store, Outside]
	// QueuedHarness says how to test a store with queues of waiters.
	QueuedHarness = HarnessFor[backends.QueuedStore, Outside]
	// NumberedHarness says how to test a store that numbers its grants.
	NumberedHarness = HarnessFor[backends.NumberedStore, Outside]
	// FencedHarness says how to test a store that counts its grants.
	FencedHarness = HarnessFor[backends.FencedStore, Outside]
	// SharedHarness says how to test a store of shared holds.
	SharedHarness = HarnessFor[backends.SharedStore, SharedOutside]
	// OrderedHarness says how to test a store of shared holds with queues of waiters.
	OrderedHarness = HarnessFor[backends.OrderedStore, SharedOutside]
	// InspectorHarness says how to test a store that tells who holds a key.
	InspectorHarness = HarnessFor[InspectedStore, SharedOutside]
	// TransferHarness says how to test a store that moves a lock from one token to another. If it is a
	// [backends.NumberedStore] or a [backends.SharedTransferStore], the suite tests that as well.
	TransferHarness = HarnessFor[backends.TransferStore, SharedOutside]
	// LegacyHarness says how to test the plain commands.
	LegacyHarness = HarnessFor[backends.LegacyStore, Outside]
)

// A HarnessFor says how to test a store of type S. An O looks at the data of the store past the
// store. Only New is required.
type HarnessFor[S, O any] struct {
	// New returns the store to test, and an O for the same data. It is called once for each
	// sentence. It may return the same store each time, unless Bubble is set: each sentence uses
	// keys of its own and deletes them. Close what needs closing with t.Cleanup. A defer in the
	// function that calls Run would be too early, since sentences run in parallel after it.
	New func(t *testing.T) (S, O)

	// Bubble runs each sentence in a testing/synctest bubble, where time is fake. This is stricter:
	// a value must be gone within twice the Resolution of its end, instead of some seconds. It adds
	// sentences that take days.
	Bubble bool

	// MaxTTL is the store's limit of a ttl, at least 30 seconds; 0: [backends.DefaultMaxTTL].
	// Values that must not end during a sentence live for a third of it. In real time, let New give
	// the store a limit of an hour, so that no machine is too slow.
	MaxTTL time.Duration

	// Resolution is how coarsely the store keeps time and Outside reports it; 0: a millisecond. A
	// value may live longer than its ttl by about as much, never shorter.
	Resolution time.Duration

	// NoWatch says that Watch only returns an error that matches errors.ErrUnsupported.
	NoWatch bool

	// NoLeft says that a SetNX or Enter of a held key does not know how long the value still lives,
	// and that Left is 0.
	NoLeft bool

	// NoQueue says that a [backends.NumberedStore] is no [backends.QueuedStore].
	NoQueue bool

	// NoLast says that Inspect does not know the last number of a key that nobody holds.
	NoLast bool

	// Clock says that SetNXNumbered gives the store's time in µs since 1970, or the last number of
	// SetNXFenced plus one, and so do the other calls that number a grant. [RunFenced] then expects a
	// [backends.NumberedStore].
	Clock bool

	// Beside returns the keys that the store writes beside key, such as its counter; nil: none. If
	// such a key is valid as the key of a lock, it must work as one.
	Beside func(key string) []string
}

// Outside reads and changes the data of the store past the code under test, as an operator or other
// software does. If it fails, it fails the test: an implementation keeps the t given to New.
type Outside interface {
	// Get returns the value under key and how long it still lives, 0 if it has no expiry. A value
	// of another type reads as the empty string. ok is false if there is no value or if it has
	// expired.
	Get(key string) (value string, left time.Duration, ok bool)
	// Set stores value under key, whatever was there, for ttl, or without expiry if ttl is 0.
	Set(key, value string, ttl time.Duration)
	// SetOther stores a value of another type, such as a list, under key, without expiry.
	SetOther(key string)
	// Delete removes the value under key, if any.
	Delete(key string)
}

// SharedOutside is the Outside of [RunShared].
type SharedOutside interface {
	Outside
	// SetShared stores under key, without expiry, a value that has the type of a value with holds,
	// but has no holds.
	SetShared(key string)
}

// Run runs every sentence of the contract as a subtest, named by the sentence. In real time the
// sentences run in parallel. None of them depends on the speed of the machine: each compares a time
// with timestamps that the test took before and after. With -short, one sentence compares fewer pairs of
// odd values.
func Run(t *testing.T, h Harness) {
	t.Helper()
	ofStore.run(t, h)
}

// RunQueued is [Run] for a store with queues of waiters. It also runs the sentences of Run with
// SetNXQueued instead of SetNX: with and without a waiter, with and without InOrder, and with -short only
// with both and with neither.
func RunQueued(t *testing.T, h QueuedHarness) {
	t.Helper()
	ofQueued.run(t, h)
	for _, a := range askings {
		if testing.Short() && a.waits != a.inOrder {
			continue
		}
		t.Run("SetNXQueued "+a.says+" instead of SetNX", func(t *testing.T) { a.suite().run(t, queued(h, a)) })
	}
}

// RunNumbered is [Run] for a store that numbers its grants. It also runs the sentences of Run with
// SetNXNumbered instead of SetNX, and those of RunQueued with SetNXNumbered instead of SetNXQueued,
// unless there is no queue.
func RunNumbered(t *testing.T, h NumberedHarness) {
	t.Helper()
	ofNumbered.run(t, h)
	t.Run("SetNXNumbered instead of SetNX", func(t *testing.T) { ofStore.run(t, numbered(h, byClock)) })
	if !h.NoQueue {
		t.Run("SetNXNumbered instead of SetNXQueued", func(t *testing.T) { ofQueued.run(t, queuedByNumber(h)) })
	}
}

// RunFenced is [Run] for a store that counts its grants. It also runs the sentences of Run with
// SetNXFenced instead of SetNX, since SetNXFenced is SetNX with a number.
func RunFenced(t *testing.T, h FencedHarness) {
	t.Helper()
	ofFenced.run(t, h)
	t.Run("SetNXFenced instead of SetNX", func(t *testing.T) { ofStore.run(t, numbered(h, byCount)) })
}

// RunShared is [Run] for a store of shared holds.
func RunShared(t *testing.T, h SharedHarness) {
	t.Helper()
	ofShared.run(t, h)
}

// RunOrdered is [RunShared] for a store with queues of waiters.
func RunOrdered(t *testing.T, h OrderedHarness) {
	t.Helper()
	ofOrdered.run(t, h)
	t.Run("Enter without a waiter", func(t *testing.T) {
		ofShared.run(t, SharedHarness{
			New:    func(t *testing.T) (backends.SharedStore, SharedOutside) { return h.New(t) },
			Bubble: h.Bubble, MaxTTL: h.MaxTTL, Resolution: h.Resolution, NoWatch: h.NoWatch, NoLeft: h.NoLeft, Beside: h.Beside,
		})
	})
}

// RunInspector is [Run] for a store that tells who holds a key.
func RunInspector(t *testing.T, h InspectorHarness) {
	t.Helper()
	ofInspected.run(t, h)
}

// RunTransfer is [Run] for a store that moves a lock from one token to another.
func RunTransfer(t *testing.T, h TransferHarness) {
	t.Helper()
	ofTransfer.run(t, h)
}

// RunLegacy is [Run] for the plain commands.
func RunLegacy(t *testing.T, h LegacyHarness) {
	t.Helper()
	ofLegacy.run(t, h)
}

// A suite is the contract of stores of type S.
type suite[S any, O Outside] struct {
	sentences func(h HarnessFor[S, O]) []sentence
	give      func(x *fixture, store S, outside O) // makes x work with store
}

// A sentence holds or is reported to x.
type sentence struct {
	says  string
	holds func(x *fixture)
}

func (c suite[S, O]) run(t *testing.T, h HarnessFor[S, O]) {
	t.Helper()
	for _, s := range c.sentences(h) {
		t.Run(s.says, func(t *testing.T) {
			if !h.Bubble {
				t.Parallel()
				s.holds(c.fixture(t, t, h))
				return
			}
			synctest.Test(t, func(t *testing.T) { s.holds(c.fixture(t, t, h)) })
		})
	}
}
