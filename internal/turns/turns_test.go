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

// A note that nobody is in the queue of a key serves one attempt, and is kept while somebody watches
// the key.
func TestAKeyWhoseQueueWasFoundEmptyIsLikelyFreeForOneAttempt(t *testing.T) {
	var ts Turns
	ts.FoundEmpty("key") // nobody watches it
	first, second := &Turn{Key: "key", Waiter: "first"}, &Turn{Key: "key", Waiter: "second"}
	ts.Add(first)
	ts.Add(second)
	ts.Add(&Turn{Key: "other", Waiter: "other"})
	likely := func(what, waiter string, want bool) {
		t.Helper()
		if got := ts.LikelyFree("key", waiter); got != want {
			t.Errorf("%s: likely free is %v; want %v", what, got, want)
		}
	}
	ts.FoundEmpty("nobody watches it")
	if len(ts.empty) > 0 {
		t.Errorf("noted although nobody watches: %v", ts.empty)
	}
	ts.FoundEmpty("other")
	likely("a release before the watch, and one of another key", "first", false)
	for _, c := range []struct {
		what, waiter string
		want         bool
	}{
		{"a waiter without a position", "first", true},
		{"a waiter of another key", "other", false},
		{"an unknown waiter", "unknown", false},
		{"a waiter that may have a position", "second", false},
	} {
		if c.waiter == "second" {
			ts.Ask("key", "second", "member")
		}
		ts.FoundEmpty("key")
		likely(c.what, c.waiter, c.want)
		likely(c.what+", again", "first", false)
	}
	ts.FoundEmpty("key")
	ts.Remove(second)
	likely("one of two watches has ended", "first", true)
	ts.FoundEmpty("key")
	ts.Remove(first)
	if ts.empty["key"] {
		t.Error("a note is kept after the last watch of its key")
	}
}
