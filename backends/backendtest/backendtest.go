// Package backendtest is the contract of a [backends.Store] as a table of sentences that run against any store:
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
// [Faulty] wraps a store to lose requests and replies on purpose, for the tests of what is built on stores.
package backendtest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A Harness says how to test a store. Only New is required.
type Harness struct {
	// New returns the store to test and a way around it to the same data. It is called once for each sentence and may
	// return the same store each time, unless Bubble is set: each sentence uses keys of its own and deletes them. What
	// needs closing is closed with t.Cleanup; a defer in the function that calls Run would be too early, since
	// sentences run in parallel after it.
	New func(t *testing.T) (backends.Store, Outside)

	// Bubble runs each sentence in a testing/synctest bubble, where time is fake. It is stricter, as it knows what
	// time it is: a value must then be gone within twice the Resolution of its end, rather than some seconds later.
	Bubble bool

	// MaxTTL is the store's limit, at least a minute; 0: [backends.DefaultMaxTTL].
	MaxTTL time.Duration

	// Resolution is how coarsely the store keeps time and Outside reports it; 0: a millisecond. A value may live
	// longer than asked by about as much, never shorter.
	Resolution time.Duration

	// NoWatch says that Watch only ever returns an error that matches errors.ErrUnsupported.
	NoWatch bool

	// NoLeft says that a refused SetNX cannot tell how long the present value still lives, and so that Left is 0.
	NoLeft bool
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

// Run runs every sentence of the contract as a subtest, named by the sentence. In real time they run in parallel, and
// nothing that they assert depends on how fast the machine is: a time is always compared with a bracket of the
// test's own timestamps.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, s := range h.sentences() {
		t.Run(s.says, func(t *testing.T) {
			if !h.Bubble {
				t.Parallel()
				s.holds(newFixture(t, t, h))
				return
			}
			synctest.Test(t, func(t *testing.T) { s.holds(newFixture(t, t, h)) })
		})
	}
}

// A sentence holds or is reported to x.
type sentence struct {
	says  string
	holds func(x *fixture)
}

func (h Harness) sentences() []sentence {
	watching := watchSentences
	if h.NoWatch {
		watching = noWatchSentences
	}
	return slices.Concat(
		setNXSentences,
		expirySentences,
		expireIfSentences,
		deleteIfSentences,
		contextSentences,
		concurrencySentences,
		watching,
		foreignSentences,
		byteSentences,
	)
}
