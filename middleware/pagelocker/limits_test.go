package pagelocker

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Only the number of a hold that is alone limits its age, and only if it is a time.
func TestANumberLimitsTheAgeOfAHoldThatIsAlone(t *testing.T) {
	now := time.Now()
	number := func(ago time.Duration) uint64 { return uint64(now.Add(-ago).UnixMicro()) }
	for _, c := range []struct {
		name    string
		number  uint64
		holding int
		ago     time.Duration // 0: no limit
	}{
		{"a time", number(time.Hour), 1, time.Hour},
		{"no number", 0, 1, 0},
		{"a count", 4711, 1, 0},
		{"a count of decades", number(20 * 365 * 24 * time.Hour), 1, 0},
		{"one of two", number(time.Hour), 2, 0},
		{"a clock that is ahead", number(-time.Minute), 1, 0},
	} {
		s := backends.State{Fence: c.number, Holding: c.holding, Holds: []backends.Hold{{Left: time.Second, Print: "1111"}}}
		l := lockOf("key", s, nil, now)
		h := l.Holds[0]
		if c.ago == 0 && !h.Earliest.IsZero() || c.ago != 0 && h.Earliest.UnixMicro() != now.Add(-c.ago).UnixMicro() {
			t.Errorf("%s: %v; want %v before %v", c.name, h.Earliest, c.ago, now)
		}
		if c.ago != 0 { // another one has joined
			s.Holding = 2
			if again := lockOf("key", s, l, now.Add(time.Second)).Holds[0]; !again.Earliest.Equal(h.Earliest) {
				t.Errorf("%s: then %v; want %v", c.name, again.Earliest, h.Earliest)
			}
		}
	}
}
