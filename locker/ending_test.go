package locker

import (
	"strings"
	"testing"
	"time"
)

// Each row of the table says when a Release is sent in some of the cases. For each case there is one row.
func TestWhenAReleaseIsSent(t *testing.T) {
	const either, no, yes = 0, 1, 2
	const never, atOnce, endOfMinHold, endOfBoth = "never", "at once", "at the end of the minimum hold", "at the end of lease and minimum hold"
	is := func(b bool, want int) bool { return want == either || b == (want == yes) }
	rows := []struct {
		name     string
		lost     string // reasons; "-": Unlock
		stopped  int    // the ctx given to Lock had ended
		unlocked int    // after the loss
		moved    int
		failed   int // the work
		lasts    int // the lease
		kept     int // the minimum hold is not over
		want     string
	}{
		{"a lock that was given away", "-", either, either, yes, either, either, either, never},
		{"Unlock", "-", either, either, no, either, either, no, atOnce},
		{"Unlock within the minimum hold", "-", either, either, no, no, either, yes, endOfMinHold},
		{"Unlock after work that failed", "-", either, either, no, yes, either, yes, atOnce},

		{"the maximum hold", "max_hold", either, no, either, either, yes, either, endOfBoth},
		{"the end of the ctx given to Lock", "expired stolen unavailable quorum evicted abandoned", yes, no, either, either, yes, either, endOfBoth},

		{"stolen, evicted", "stolen evicted", no, either, either, either, either, either, atOnce},
		{"stolen, evicted; the work has stopped", "stolen evicted", yes, yes, either, either, either, either, atOnce},
		{"stolen, evicted; the lease has ended", "stolen evicted", yes, no, either, either, no, either, atOnce},

		{"other losses", "expired unavailable quorum abandoned", no, either, either, either, either, no, atOnce},
		{"other losses of work that failed", "expired unavailable quorum abandoned", no, either, either, yes, either, yes, atOnce},
		{"other losses within the minimum hold", "expired unavailable quorum abandoned", no, either, either, no, either, yes, endOfMinHold},

		{"the work has stopped", "max_hold", either, yes, either, either, either, no, atOnce},
		{"the work has failed and stopped", "max_hold", either, yes, either, yes, either, yes, atOnce},
		{"the work has stopped within the minimum hold", "max_hold", either, yes, either, no, either, yes, endOfMinHold},
		{"the lease has ended", "max_hold", either, no, either, either, no, no, atOnce},
		{"the lease has ended, the work has failed", "max_hold", either, no, either, yes, no, yes, atOnce},
		{"the lease has ended within the minimum hold", "max_hold", either, no, either, no, no, yes, endOfMinHold},

		{"the ctx given to Lock, and the work has stopped", "expired unavailable quorum abandoned", yes, yes, either, either, either, no, atOnce},
		{"the ctx given to Lock, and the work has failed", "expired unavailable quorum abandoned", yes, yes, either, yes, either, yes, atOnce},
		{"the ctx given to Lock, and the work has stopped within the minimum hold", "expired unavailable quorum abandoned", yes, yes, either, no, either, yes, endOfMinHold},
		{"the ctx given to Lock; the lease has ended", "expired unavailable quorum abandoned", yes, no, either, either, no, no, atOnce},
		{"the ctx given to Lock, work that failed; the lease has ended", "expired unavailable quorum abandoned", yes, no, either, yes, no, yes, atOnce},
		{"the ctx given to Lock; the lease has ended within the minimum hold", "expired unavailable quorum abandoned", yes, no, either, no, no, yes, endOfMinHold},
	}
	now := time.Now()
	reasons := []LostReason{"", LostExpired, LostStolen, LostUnavailable, LostQuorum, LostMaxHold, LostEvicted, LostAbandoned}
	ends := []time.Time{{}, now.Add(time.Second)}
	leasts := []time.Time{{}, now.Add(-time.Second), now, now.Add(time.Millisecond), now.Add(time.Minute)}
	cases := 0
	for _, lost := range reasons {
		for _, end := range ends {
			for _, least := range leasts {
				for bits := range 16 {
					cases++
					f := facts{
						lost: lost, unlocked: bits&1 > 0, stopped: bits&2 > 0, moved: bits&4 > 0, failed: bits&8 > 0, now: now, ends: end, least: least,
					}
					matched := 0
					for _, r := range rows {
						reason := string(lost)
						if lost == "" {
							reason = "-"
						}
						if !strings.Contains(" "+r.lost+" ", " "+reason+" ") || !is(f.stopped, r.stopped) || !is(f.unlocked, r.unlocked) ||
							!is(f.moved, r.moved) || !is(f.failed, r.failed) || !is(!end.IsZero(), r.lasts) || !is(least.After(now), r.kept) {
							continue
						}
						matched++
						want := map[string]time.Time{never: {}, atOnce: now, endOfMinHold: least, endOfBoth: end}[r.want]
						if r.want == endOfBoth && least.After(end) {
							want = least
						}
						if got := f.releaseAt(); !got.Equal(want) {
							t.Errorf("%s: %+v: a Release at %v; want %s, %v", r.name, f, got, r.want, want)
						}
					}
					if matched != 1 {
						t.Errorf("%d rows for %+v", matched, f)
					}
				}
			}
		}
	}
	if cases != 8*2*5*16 {
		t.Errorf("%d cases", cases)
	}
}
