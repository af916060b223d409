package turns

import (
	"slices"
	"testing"
)

// Waiters of a key leave in any order.
func TestALostQueueWakesTheWaitersOfItsKeyThatAreLeft(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for first := range names {
		for second := range names {
			var ts Turns
			var woken []string
			all := map[string]*Turn{}
			for _, name := range append([]string{"other"}, names...) {
				all[name] = &Turn{Key: "key", Waiter: name, Wake: func() { woken = append(woken, name) }}
				if name == "other" {
					all[name].Key = name
				}
				ts.Add(all[name])
			}
			left := slices.Clone(names)
			for _, i := range []int{first, second} {
				if slices.Contains(left, names[i]) {
					ts.Remove(all[names[i]])
					left = slices.DeleteFunc(left, func(name string) bool { return name == names[i] })
				}
			}
			ts.Lost("key", "nobody")
			slices.Sort(woken)
			if !slices.Equal(woken, left) {
				t.Errorf("without %s and %s, woken: %v; want %v", names[first], names[second], woken, left)
			}
			for _, name := range left {
				ts.Remove(all[name])
			}
			if ts.Lost("key", ""); len(ts.byKey) != 1 {
				t.Errorf("%d keys have waiters; want 1", len(ts.byKey))
			}
		}
	}
}
