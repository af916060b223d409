package differential

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestTheSequencesComeToEveryKindOfAnswer fails if other weights make most answers failures.
func TestTheSequencesComeToEveryKindOfAnswer(t *testing.T) {
	tr := newTrial(t, subjects[0])
	tr.seen = map[string]int{}
	for seed := range uint64(200) {
		if f := tr.run(t, draw(seed+1, sequence)); f != nil {
			t.Fatalf("seed %d:\n%s", seed+1, f)
		}
	}
	want := map[string]int{"SetNX: foreign": 100, "SetNXFenced: foreign": 100, "Enter: foreign": 100, "Enter: one more": 100}
	for _, d := range drawn {
		if d.call == "wait" || strings.HasPrefix(d.call, "outside.") && d.call != "outside.Get" {
			continue // it has no answer
		}
		want[d.call+": yes"] = 30
		if d.call != "Watch" {
			want[d.call+": no"] = 100
		}
		if timed[d.call] || d.call == "RaiseFence" {
			want[d.call+": permanent"] = 5
		}
		switch d.call {
		case "Watch", "SetNXForever", "Left", "Expire", "Delete", "outside.Get": // these accept every type
		default:
			want[d.call+": wrong type"] = 100
		}
		if d.call != "outside.Get" {
			want[d.call+": canceled"] = 1
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(want)) {
		if tr.seen[kind] < want[kind] {
			t.Errorf("%s: %d times; want at least %d", kind, tr.seen[kind], want[kind])
		}
	}
}
