package history

import (
	"math/rand/v2"
	"testing"
)

func TestInversions(t *testing.T) {
	g := func(asked, answered int64, fence uint64) Grant {
		return Grant{Key: "key", Asked: asked, Answered: answered, Fence: fence}
	}
	shared := func(g Grant) Grant { g.Shared = true; return g }
	other := Grant{Key: "other", Answered: 1, Fence: 9}
	for _, c := range []struct {
		says   string
		grants []Grant
		want   int
	}{
		{"nobody", nil, 0},
		{"one after the other, in any order", []Grant{g(20, 30, 2), g(0, 10, 1), g(40, 50, 7)}, 0},
		{"a later one with a lower number", []Grant{g(0, 10, 2), g(20, 30, 1)}, 1},
		{"a later one with the same number", []Grant{g(0, 10, 2), g(20, 30, 2)}, 1},
		{"two at once in either order", []Grant{g(0, 20, 2), g(10, 30, 1)}, 0},
		{"two at once with the same number", []Grant{g(0, 20, 2), g(10, 30, 2)}, 1},
		{"asked for at the very instant of the answer: nobody knows", []Grant{g(0, 10, 2), g(10, 30, 1)}, 0},
		{"lower than one long before, greater than the last", []Grant{g(0, 10, 5), g(20, 30, 6), g(40, 50, 3), g(60, 70, 4)}, 2},
		{"an earlier one that was answered last is no witness", []Grant{g(0, 100, 5), g(20, 30, 1), g(40, 50, 2)}, 0},
		{"a first number of 0, twice", []Grant{g(0, 10, 0), g(20, 30, 0)}, 1},
		{"different keys", []Grant{other, g(20, 30, 1), g(40, 50, 9)}, 0},
		{"one each of different keys", []Grant{
			{Key: "a", Answered: 1, Fence: 9}, {Key: "a", Asked: 2, Answered: 3, Fence: 8},
			other, {Key: "other", Asked: 2, Answered: 3, Fence: 7}, g(20, 30, 1),
		}, 2},
		{"two readers with one number", []Grant{shared(g(0, 10, 2)), shared(g(20, 30, 2))}, 0},
		{"a writer with the number of a reader", []Grant{shared(g(0, 10, 2)), g(20, 30, 2)}, 1},
		{"a reader with the number of a writer", []Grant{g(0, 10, 2), shared(g(20, 30, 2))}, 1},
		{"a reader with a lower number than a reader before", []Grant{shared(g(0, 10, 2)), shared(g(20, 30, 1))}, 1},
	} {
		if got := Inversions(c.grants); len(got) != c.want {
			t.Errorf("%s: %d inversions %v; want %d", c.says, len(got), got, c.want)
		}
	}
}

// TestInversionsAgreesWithComparingAllPairs counts, the slow way, the grants that come too low and
// those that repeat.
func TestInversionsAgreesWithComparingAllPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		var grants []Grant
		for range r.IntN(10) {
			asked := int64(r.IntN(40))
			grants = append(grants, Grant{
				Key: string(rune('a' + r.IntN(2))), Asked: asked, Answered: asked + 1 + int64(r.IntN(8)), Fence: uint64(r.IntN(12)),
			})
		}
		want := 0
		repeats := map[Grant]int{}
		for _, h := range grants {
			lower := false
			for _, g := range grants {
				lower = lower || g.Key == h.Key && g.Answered < h.Asked && g.Fence > h.Fence
			}
			if lower {
				want++
			}
			repeats[Grant{Key: h.Key, Fence: h.Fence}]++
		}
		for _, n := range repeats {
			want += n - 1
		}
		if got := Inversions(append([]Grant(nil), grants...)); len(got) != want {
			t.Fatalf("%v: found %v, want %d", grants, got, want)
		}
	}
}
