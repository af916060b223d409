package pagelocker

import (
	"encoding/hex"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A hold of others whose end is found late stands before one of ours that ended after it.
func TestTheHistoryHasItsHoldsInTheOrderOfTheirEnds(t *testing.T) {
	r := registry{byKey: map[string]*keyed{}}
	now := time.Now()
	k := r.at("order/1")
	k.add(past{label: "ours", here: true, since: now.Add(-time.Second), until: now, cause: "released", times: 1})
	k.alone = now.Add(-time.Second) // when this process got the key
	r.saw("order/1", Hold{Print: hex.EncodeToString(make([]byte, 8)), Holder: "others", Since: now.Add(-3 * time.Second)}, now, "gone", nil)
	if len(k.past) != 2 || k.past[0].label != "others" || k.past[1].label != "ours" {
		t.Errorf("the history is %+v", k.past)
	}
}

// Whoever asks for keys that the page is not for must not hold up the locks of the process: the registry
// has one mutex, and many ends of holds.
func TestAQuestionAboutAKeyThatNobodyHasLooksThroughNoEnds(t *testing.T) {
	p := New(WithStore(memory.New(), "order/"))
	for i := range maxEnds {
		p.registry.ends = append(p.registry.ends, end{time.Now(), printsOf(strconv.Itoa(i))})
	}
	if allocs := testing.AllocsPerRun(10, func() { p.one("other/1") }); allocs > 100 {
		t.Errorf("%v allocations", allocs)
	}
}

// Another hook for the begin of a hold took longer than the lease.
func TestAHoldInTheHistoryDoesNotEndBeforeItBegins(t *testing.T) {
	r := registry{byKey: map[string]*keyed{}, changed: func() {}}
	began := time.Now()
	_, end := r.begin(t.Context(), contract.Lease{Key: "order/1", Granted: began, Expires: began})
	past := &r.byKey["order/1"].past
	end(began.Add(-time.Second), &locker.LostError{Key: "order/1", Reason: locker.LostExpired})
	if len(*past) != 1 {
		t.Fatalf("%d holds in the history; want 1", len(*past))
	}
	if p := (*past)[0]; p.until.Before(p.since) {
		t.Errorf("it was held for %v", p.until.Sub(p.since))
	}
}
