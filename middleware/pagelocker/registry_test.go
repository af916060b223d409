package pagelocker

import (
	"encoding/hex"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
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
