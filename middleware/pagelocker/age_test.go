package pagelocker_test

import (
	"strings"
	"testing"
	"time"
)

// A lock has been stuck for hours when somebody opens the page for the first time.
func TestAHoldThatIsSeenLateIsOldAtMostSinceItsNumber(t *testing.T) {
	play(t, func(s *scene) {
		stuck := s.lock(s.others, "z/stuck")
		began := time.Now()
		time.Sleep(3 * time.Hour)
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		time.Sleep(4 * time.Minute)
		s.report("")
		time.Sleep(2 * time.Second)
		r := s.report("sort=age")
		if h := r.Locks[0].Holds[0]; r.Locks[0].Key != "z/stuck" || !h.Seen || !h.Earliest.Equal(began) || time.Since(h.Since) != 2*time.Second {
			s.Errorf("first by age is %+v; want z/stuck, held since %v at the earliest", r.Locks[0], began)
		}
		for _, target := range []string{"/", "/?key=z/stuck"} {
			if text := mainOf(s.get(target).Body.String()); !strings.Contains(text, "≤ 3 h 4 min") || !strings.Contains(text, "≥ ") {
				s.Errorf("%s shows %q", target, text)
			}
		}
		text := s.get("/metrics").Body.String()
		if !strings.Contains(text, "\nlockstep_oldest_hold_seconds 2\n") || !strings.Contains(text, "\nlockstep_oldest_hold_at_most_seconds 11042\n") {
			s.Errorf("metrics %s", text)
		}
		time.Sleep(time.Second)
		stuck.Unlock(s.Context())
		time.Sleep(time.Second)
		s.report("")
		if text := mainOf(s.get("/?key=z/stuck").Body.String()); !strings.Contains(text, "for ≥ 4.0 s, ≤ 3 h 4 min") {
			s.Errorf("the history is %q", text)
		}
	})
}
