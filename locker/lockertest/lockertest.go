// Package lockertest is the contract of a [locker.Locker] as a table of sentences that run against
// any strategy, and against a [locker.Client] over it:
//
//	func TestContract(t *testing.T) {
//		lockertest.Run(t, lockertest.Harness{
//			New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
//				store := dial(t)
//				return mystrategy.New(store), beneath{t, store}
//			},
//		})
//	}
//
// A strategy matters most while its store fails. So a harness has a [Disturber], which makes the
// store fail.
package lockertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// A Harness says how to test a Locker. Only New is required. The other fields say what the Locker
// does not promise.
type Harness struct {
	// New returns the Locker to test and its Disturber. It is called once for each sentence. The
	// faults are those of one sentence, so Lockers that are used at the same time must not share
	// them. They may share a server, since each sentence uses keys of its own. Close what needs
	// closing with t.Cleanup. A defer in the function that calls Run would be too early, since
	// sentences run in parallel after it.
	New func(t *testing.T) (locker.Locker, Disturber)

	// Bubble runs each sentence in a testing/synctest bubble, where time is fake. This is stricter:
	// "soon" is then the time of the design, instead of some seconds.
	Bubble bool

	// MaxTTL is the longest ttl that is granted, at least 30 seconds; 0: 30 seconds, the limit of a
	// store without options. Leases that must not end during a sentence live for half of it, at
	// most three minutes. What must happen soon has a third of that time. In real time, let New give the
	// store a limit of an hour, so that no machine is too slow.
	MaxTTL time.Duration

	// Cause is matched by the errors of calls that meet backendtest.Fail; nil:
	// backendtest.ErrInjected.
	Cause error

	// NoWatch says that Watch only returns an error that matches errors.ErrUnsupported.
	NoWatch bool

	// NoLeft says that a HeldError does not know how long the lease still lives, and that its Left
	// is 0.
	NoLeft bool

	// Resolution is how coarsely a HeldError knows how long the lease still lives; 0: a few
	// milliseconds.
	Resolution time.Duration

	// Behind says that the Locker answers before all its requests are done, as a quorum does. What
	// an attempt or a release leaves is then gone soon after the answer, instead of with it.
	Behind bool

	// NoTransfer says that Transfer only returns [contract.ErrNoTransfer], or another permanent error
	// that matches errors.ErrUnsupported.
	NoTransfer bool

	// Options are given to every Client of the sentences, before those of the sentence itself.
	Options []locker.ClientOption

	// NoFaults says that the Disturber sets no faults. Its Fault and FaultOnce are never called,
	// and the sentences that need them do not run.
	NoFaults bool

	// NoForeign says that the Disturber stores no foreign values. Its SetForeign and SetOther are
	// never called, and the sentences that need them do not run.
	NoForeign bool

	// NoEvict says that the Disturber evicts no holds, or that the Locker does not tell an eviction
	// from another loss. Evict of the Disturber is never called, and the sentences that need it do not
	// run.
	NoEvict bool

	// Except lists sentences, word for word, that the Locker does not promise. They do not run. A
	// sentence that does not exist is an error, so that the list stays correct.
	Except []string
}

// Run runs every sentence of the contract as a subtest, named by the sentence. One more subtest is
// skipped, and lists the sentences that do not run, with the reason. In real time the sentences run
// in parallel. None of them depends on the speed of the machine: each compares a time with
// timestamps that the test took before and after.
func Run(t *testing.T, h Harness) {
	t.Helper()
	run, skipped, err := h.plan()
	if err != nil {
		t.Fatal(err)
	}
	if len(skipped) > 0 {
		t.Run("sentences that do not run", func(t *testing.T) { t.Skip(strings.Join(skipped, "\n")) })
	}
	for _, s := range run {
		t.Run(s.says, func(t *testing.T) {
			if !h.Bubble {
				t.Parallel()
				s.holds(newFixture(t, t, h, s))
				return
			}
			synctest.Test(t, func(t *testing.T) { s.holds(newFixture(t, t, h, s)) })
		})
	}
}

// A sentence holds or is reported to x.
type sentence struct {
	says  string
	needs []need
	holds func(x *fixture)
}

// A need is what a sentence asks of the Disturber that not every Disturber can do.
type need string

const (
	faults  need = "set faults"
	foreign need = "store foreign values"
	evicts  need = "evict holds"
)

func needs(n ...need) []need { return n }

var sentences = slices.Concat(
	acquireSentences,
	expirySentences,
	extendSentences,
	releaseSentences,
	inputSentences,
	secretSentences,
	contextSentences,
	watchSentences,
	unknownSentences,
	foreignSentences,
	clientSentences,
	silentSentences,
	waitSentences,
	renewSentences,
	evictSentences,
	unlockSentences,
	holdSentences,
	minHoldSentences,
	transferSentences,
)

// plan returns the sentences that run, and a line with the reason for each one that does not.
func (h Harness) plan() (run []sentence, skipped []string, err error) {
	if h.New == nil {
		return nil, nil, errors.New("lockertest: Harness.New is nil")
	}
	for _, says := range h.Except {
		if !slices.ContainsFunc(sentences, func(s sentence) bool { return s.says == says }) {
			return nil, nil, fmt.Errorf("lockertest: Harness.Except names %q, which is no sentence", says)
		}
	}
	for _, s := range sentences {
		var missing []string
		for _, n := range s.needs {
			if n == faults && h.NoFaults || n == foreign && h.NoForeign || n == evicts && h.NoEvict {
				missing = append(missing, string(n))
			}
		}
		switch {
		case slices.Contains(h.Except, s.says):
			skipped = append(skipped, "not promised: "+s.says)
		case len(missing) > 0:
			skipped = append(skipped, fmt.Sprintf("the harness cannot %s: %s", strings.Join(missing, ", "), s.says))
		default:
			run = append(run, s)
		}
	}
	return run, skipped, nil
}
