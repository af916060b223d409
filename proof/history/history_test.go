package history

import (
	"math/rand/v2"
	"testing"
)

func TestOverlaps(t *testing.T) {
	h := func(who string, start, end int64) Hold { return Hold{"key", who, start, end} }
	for _, c := range []struct {
		says  string
		holds []Hold
		want  int
	}{
		{"nobody", nil, 0},
		{"one after the other, in any order", []Hold{h("b", 20, 30), h("a", 10, 20), h("c", 30, 31)}, 0},
		{"two at once", []Hold{h("a", 10, 21), h("b", 20, 30)}, 1},
		{"one within another", []Hold{h("a", 10, 40), h("b", 20, 30)}, 1},
		{"two within another", []Hold{h("a", 10, 40), h("b", 20, 25), h("c", 30, 35)}, 2},
		{"one within another and one at its end", []Hold{h("a", 10, 40), h("b", 20, 25), h("c", 39, 50)}, 2},
		{"different keys", []Hold{h("a", 10, 40), {"other", "b", 20, 30}}, 0},
		{"an instant within another", []Hold{h("a", 10, 40), h("b", 20, 20)}, 1},
		{"the same twice", []Hold{h("a", 10, 40), h("a", 10, 40)}, 1},
	} {
		if got := Overlaps(c.holds); len(got) != c.want {
			t.Errorf("%s: %d overlaps %v, want %d", c.says, len(got), got, c.want)
		}
	}
}

// TestOverlapsAgreesWithComparingAllPairs counts, the slow way, the holds that begin inside an
// earlier one.
func TestOverlapsAgreesWithComparingAllPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var holds []Hold
		for range r.IntN(12) {
			start := int64(r.IntN(40))
			holds = append(holds, Hold{string(rune('a' + r.IntN(2))), "", start, start + 1 + int64(r.IntN(8))})
		}
		violated := false
		for i, a := range holds {
			for _, b := range holds[i+1:] {
				violated = violated || a.Key == b.Key && a.Start < b.End && b.Start < a.End
			}
		}
		if got := Overlaps(append([]Hold(nil), holds...)); (len(got) > 0) != violated {
			t.Fatalf("%v: found %v, pairs overlap: %v", holds, got, violated)
		}
	}
}

func BenchmarkOverlapsOfAMillion(b *testing.B) {
	holds := make([]Hold, 1_000_000)
	for i, p := range rand.Perm(len(holds)) {
		holds[i] = Hold{"key", "", int64(10 * p), int64(10*p + 10)}
	}
	for b.Loop() {
		if Overlaps(append([]Hold(nil), holds...)) != nil {
			b.Fatal("overlap")
		}
	}
}
