package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

func TestAJumpOfTheClockMovesTheEndOfWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.WithMaxTTL(time.Minute))
		s.Set("plain", "a", time.Minute)
		if _, err := s.Enter(t.Context(), "shared", "a", time.Minute, backends.Admission{}); err != nil {
			t.Fatal(err)
		}
		left := func(want time.Duration) {
			t.Helper()
			for _, key := range []string{"plain", "shared"} {
				if _, left, found := s.Get(key); found != (want > 0) || left != want {
					t.Errorf("%s: found %v, for %v; want %v", key, found, left, want)
				}
			}
		}
		s.Jump(20 * time.Second)
		left(40 * time.Second)
		s.Jump(-30 * time.Second)
		left(70 * time.Second)
		s.Jump(70 * time.Second)
		left(0)
		s.Jump(-time.Hour) // what has ended stays ended
		left(0)
	})
}

func TestNumbersByTheClockFollowItsJumpsButNeverFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		number := func(key string) uint64 {
			res, err := s.SetNXNumbered(t.Context(), key, "a", time.Second, backends.Turn{})
			if err != nil || !res.OK {
				t.Fatal(res, err)
			}
			s.Delete(key)
			return res.Fence
		}
		first := number("a")
		s.Jump(time.Hour)
		ahead := number("a")
		if want := first + uint64(time.Hour.Microseconds()); ahead != want {
			t.Errorf("%d after the jump; want %d", ahead, want)
		}
		s.Jump(-time.Hour)
		if after := number("a"); after != ahead+1 {
			t.Errorf("%d after the jump back; want %d", after, ahead+1)
		}
		if fresh := number("b"); fresh != first {
			t.Errorf("%d for another key; want %d", fresh, first)
		}
	})
}
