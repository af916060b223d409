package command

import (
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

func TestTopHasTheLocksWithMostWaitersFirstAndThenTheOldest(t *testing.T) {
	now := time.Now()
	held := func(key, hold string, waiting int, number time.Time) found {
		s := backends.State{Holding: 1, Waiting: waiting, Holds: []backends.Hold{{Print: hold}}}
		if !number.IsZero() { // it is of the store's clock, in microseconds
			s.Fence = uint64(number.UnixMicro())
		}
		return found{KeyState: backends.KeyState{Key: key, State: s}}
	}
	want := []found{
		held("two wait", "1", 2, now.Add(-time.Minute)),
		held("one waits", "2", 1, now.Add(-time.Second)),
		held("numbered an hour ago", "3", 0, now.Add(-time.Hour)),
		held("seen a minute ago", "4", 0, time.Time{}),
		held("numbered a second ago", "5", 0, now.Add(-time.Second)),
		held("a store without a queue", "6", backends.NotKnown, now.Add(-2*time.Hour)),
	}
	top := &top{cli: &cli{}, since: map[string]time.Time{"4": now.Add(-time.Minute), "6": now}}
	got := slices.Clone(want)
	slices.Reverse(got)
	top.sort(got)
	for i, f := range got {
		if f.Key != want[i].Key {
			t.Errorf("at %d: %s; want %s", i+1, f.Key, want[i].Key)
		}
	}
}

func TestOneThingIsNotCountedAsMany(t *testing.T) {
	for n, want := range map[int]string{0: "0 locks", 1: "1 lock", 2: "2 locks"} {
		if got := count(n, "lock"); got != want {
			t.Errorf("count(%d) = %q; want %q", n, got, want)
		}
	}
}
