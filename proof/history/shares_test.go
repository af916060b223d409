package history

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCrowds(t *testing.T) {
	h := func(who string, start, end int64) Hold { return Hold{"key", who, start, end} }
	for _, c := range []struct {
		says  string
		limit int
		holds []Hold
		want  int
	}{
		{"nobody", 2, nil, 0},
		{"as many as may", 2, []Hold{h("a", 10, 40), h("b", 20, 30)}, 0},
		{"one too many", 2, []Hold{h("a", 10, 40), h("b", 20, 30), h("c", 29, 31)}, 1},
		{"one too many, in any order", 2, []Hold{h("c", 29, 31), h("b", 20, 30), h("a", 10, 40)}, 1},
		{"one more when one ends", 2, []Hold{h("a", 10, 40), h("b", 20, 30), h("c", 30, 31)}, 0},
		{"two too many", 2, []Hold{h("a", 10, 40), h("b", 10, 40), h("c", 20, 30), h("d", 25, 35)}, 2},
		{"one after the other beside a long one", 2, []Hold{h("a", 0, 90), h("b", 10, 20), h("c", 20, 30), h("d", 30, 40)}, 0},
		{"a limit of one is a lock", 1, []Hold{h("a", 10, 21), h("b", 20, 30)}, 1},
		{"different keys", 1, []Hold{h("a", 10, 40), {"other", "b", 20, 30}}, 0},
		{"the same twice", 1, []Hold{h("a", 10, 40), h("a", 10, 40)}, 1},
	} {
		if got := Crowds(c.holds, c.limit); len(got) != c.want {
			t.Errorf("%s: %d crowds %v, want %d", c.says, len(got), got, c.want)
		}
	}
}

// TestCrowdsAgreesWithCountingAtEachInstant counts the holds at each instant, the slow way.
func TestCrowdsAgreesWithCountingAtEachInstant(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		limit := 1 + r.IntN(4)
		holds := drawn(r, 12)
		violated := false
		for _, key := range []string{"a", "b"} {
			for at := range int64(50) {
				n := 0
				for _, h := range holds {
					if h.Key == key && h.Start <= at && at < h.End {
						n++
					}
				}
				violated = violated || n > limit
			}
		}
		if got := Crowds(slices.Clone(holds), limit); (len(got) > 0) != violated {
			t.Fatalf("%v: found %v, more than %d at an instant: %v", holds, got, limit, violated)
		}
	}
}

func TestMixtures(t *testing.T) {
	h := func(who string, start, end int64) Hold { return Hold{"key", who, start, end} }
	for _, c := range []struct {
		says             string
		readers, writers []Hold
		want             int
	}{
		{"nobody", nil, nil, 0},
		{"readers together", []Hold{h("a", 10, 40), h("b", 20, 30)}, nil, 0},
		{"a writer between readers", []Hold{h("a", 10, 20), h("b", 30, 40)}, []Hold{h("w", 20, 30)}, 0},
		{"a writer beside a reader", []Hold{h("a", 10, 21)}, []Hold{h("w", 20, 30)}, 1},
		{"a reader beside a writer", []Hold{h("a", 29, 40)}, []Hold{h("w", 20, 30)}, 1},
		{"a writer beside the longest of some readers", []Hold{h("a", 10, 40), h("b", 20, 25)}, []Hold{h("w", 30, 35)}, 1},
		{"two readers beside a writer", []Hold{h("a", 21, 22), h("b", 23, 24)}, []Hold{h("w", 20, 30)}, 2},
		{"two writers", nil, []Hold{h("v", 10, 21), h("w", 20, 30)}, 1},
		{"a reader beside the longer of two writers", []Hold{h("a", 35, 36)}, []Hold{h("v", 10, 40), h("w", 20, 30)}, 2},
		{"different keys", []Hold{{"a", "r", 10, 40}}, []Hold{{"b", "w", 20, 30}, {"c", "w", 20, 30}}, 0},
	} {
		if got := Mixtures(c.readers, c.writers); len(got) != c.want {
			t.Errorf("%s: %d mixtures %v, want %d", c.says, len(got), got, c.want)
		}
	}
}

// TestMixturesAgreesWithComparingAllPairs looks at each pair with a writer.
func TestMixturesAgreesWithComparingAllPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 5000 {
		readers, writers := drawn(r, 8), drawn(r, 3)
		excludes := func(a, b Hold) bool { return a.Key == b.Key && a.Start < b.End && b.Start < a.End }
		violated := false
		for i, w := range writers {
			violated = violated || slices.ContainsFunc(readers, func(h Hold) bool { return excludes(h, w) }) ||
				slices.ContainsFunc(writers[i+1:], func(h Hold) bool { return excludes(h, w) })
		}
		if got := Mixtures(slices.Clone(readers), slices.Clone(writers)); (len(got) > 0) != violated {
			t.Fatalf("readers %v, writers %v: found %v, a pair overlaps: %v", readers, writers, got, violated)
		}
	}
}

// drawn returns fewer than n holds of two keys.
func drawn(r *rand.Rand, n int) (holds []Hold) {
	for range r.IntN(n) {
		start := int64(r.IntN(40))
		holds = append(holds, Hold{string(rune('a' + r.IntN(2))), "", start, start + 1 + int64(r.IntN(8))})
	}
	return holds
}
