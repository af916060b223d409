// Package backendtest is the contract of a [backends.Store], and of what some stores can do besides, as tables of sentences
// that run against any store:
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
// [Faults] wraps a store to lose requests and replies on purpose, for the tests of what uses stores.
package backendtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// The harnesses of [Run], [RunQueued], [RunNumbered], [RunFenced], [RunNested] and [RunLegacy].
type (
	// Harness says how to test a store.
	Harness = HarnessFor[backends.Store, Outside]
	// QueuedHarness says how to test a store whose waiters stand in queues.
	QueuedHarness = HarnessFor[backends.QueuedStore, Outside]
	// NumberedHarness says how to test a store that numbers its grants.
	NumberedHarness = HarnessFor[backends.NumberedStore, Outside]
	// FencedHarness says how to test a store that counts its grants.
	FencedHarness = HarnessFor[backends.FencedStore, Outside]
	// NestedHarness says how to test a store of nested holds.
	NestedHarness = HarnessFor[backends.NestedStore, NestedOutside]
	// LegacyHarness says how to test the plain commands.
	LegacyHarness = HarnessFor[backends.LegacyStore, Outside]
)

// A HarnessFor says how to test a store of type S, and how to look at it by an O. Only New is required.
type HarnessFor[S, O any] struct {
	// New returns the store to test and a way around it to the same data. It is called once for each sentence and may
	// return the same store each time, unless Bubble is set: each sentence uses keys of its own and deletes them. What
	// needs closing is closed with t.Cleanup; a defer in the function that calls Run would be too early, since
	// sentences run in parallel after it.
	New func(t *testing.T) (S, O)

	// Bubble runs each sentence in a testing/synctest bubble, where time is fake. It is stricter, as it knows what
	// time it is: a value must then be gone within twice the Resolution of its end, rather than some seconds later.
	// And it tries what takes days.
	Bubble bool

	// MaxTTL is the store's limit, at least 30 seconds; 0: [backends.DefaultMaxTTL]. Values that must not end
	// during a sentence live for a third of it. In real time, let New give the store a limit of an hour, so
	// that no machine is too slow.
	MaxTTL time.Duration

	// Resolution is how coarsely the store keeps time and Outside reports it; 0: a millisecond. A value may live
	// longer than asked by about as much, never shorter.
	Resolution time.Duration

	// NoWatch says that Watch only ever returns an error that matches errors.ErrUnsupported.
	NoWatch bool

	// NoLeft says that a refused SetNX, or Enter, cannot tell how long the present value still lives, and so that Left
	// is 0.
	NoLeft bool

	// NoQueue says that a [backends.NumberedStore] is no [backends.QueuedStore].
	NoQueue bool

	// Clock says that SetNXNumbered gives the store's time in µs since 1970, or the last number of
	// SetNXFenced and one more. [RunFenced] then expects a [backends.NumberedStore].
	Clock bool

	// Beside returns the keys that the store writes beside key, such as its counter; nil: none. Those that may be keys
	// of locks themselves must work as such.
	Beside func(key string) []string
}

// Outside looks at the store's data, and changes it, other than through the code under test, as an operator or other
// software would. What fails here fails the test: an implementation keeps the t given to New.
type Outside interface {
	// Get returns what is stored under key and how long it still lives, 0 if it has no expiry. A value of another type
	// reads as the empty string. ok is false if there is nothing or if it has expired.
	Get(key string) (value string, left time.Duration, ok bool)
	// Set stores value under key whatever was there, for ttl, or without expiry if ttl is 0.
	Set(key, value string, ttl time.Duration)
	// SetOther puts a value of another type, such as a list, under key, without expiry.
	SetOther(key string)
	// Delete removes what is stored under key, if anything.
	Delete(key string)
}

// NestedOutside is what [RunNested] needs besides.
type NestedOutside interface {
	Outside
	// SetNested puts a value of the type that holds are kept in, but not of holds, under key, without expiry.
	SetNested(key string)
}

// Run runs every sentence of the contract as a subtest, named by the sentence. In real time they run in parallel, and
// nothing that they assert depends on how fast the machine is: a time is always compared with a bracket of the
// test's own timestamps.
func Run(t *testing.T, h Harness) {
	t.Helper()
	ofStore.run(t, h)
}

// RunQueued is [Run] for a store whose waiters stand in queues. The sentences of Run are there as well, with SetNXQueued in the
// place of SetNX: for nobody and for a waiter, in order and not.
func RunQueued(t *testing.T, h QueuedHarness) {
	t.Helper()
	ofQueued.run(t, h)
	for _, a := range asked {
		t.Run("SetNXQueued for "+a.says+" in the place of SetNX", func(t *testing.T) { a.suite().run(t, queued(h, a)) })
	}
}

// RunNumbered is [Run] for a store that numbers its grants. The sentences of Run are there as well,
// with SetNXNumbered in the place of SetNX; and those of RunQueued with SetNXNumbered in the place
// of SetNXQueued, unless there is no queue.
func RunNumbered(t *testing.T, h NumberedHarness) {
	t.Helper()
	ofNumbered.run(t, h)
	t.Run("SetNXNumbered in the place of SetNX", func(t *testing.T) { ofStore.run(t, numbered(h, byClock)) })
	if !h.NoQueue {
		t.Run("SetNXNumbered in the place of SetNXQueued", func(t *testing.T) { ofQueued.run(t, queuedByNumber(h)) })
	}
}

// RunFenced is [Run] for a store that counts its grants. The sentences of Run are there as well,
// with SetNXFenced in the place of SetNX, since it is a SetNX and a number.
func RunFenced(t *testing.T, h FencedHarness) {
	t.Helper()
	ofFenced.run(t, h)
	t.Run("SetNXFenced in the place of SetNX", func(t *testing.T) { ofStore.run(t, numbered(h, byCount)) })
}

// RunNested is [Run] for a store of nested holds.
func RunNested(t *testing.T, h NestedHarness) {
	t.Helper()
	ofNested.run(t, h)
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
