package trial

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

func TestABodyThatFailsOnABusyMachineRunsAgain(t *testing.T) {
	const ttl = time.Second
	for name, c := range map[string]struct {
		late   time.Duration // of each take
		passes int           // the take that passes; 0: none
		takes  int           // that are wanted
		fails  bool
	}{
		"a body that passes":                   {late: ttl, passes: 1, takes: 1},
		"a machine that was busy":              {late: ttl, passes: 3, takes: 3},
		"a machine that was busy all the time": {late: Takes * ttl << Takes, takes: Takes, fails: true},
		"a machine that was not busy":          {late: ttl/busyPart - 1, passes: 2, takes: 1, fails: true},
		"a machine that is busy no more":       {late: ttl / busyPart, passes: 3, takes: 2, fails: true},
	} {
		takes := 0
		failures := Failures(t, time.Minute, func(t testing.TB) {
			whileBusy(t, ttl, func(time.Duration) func() time.Duration { return func() time.Duration { return c.late } }, func(t testing.TB, given time.Duration) {
				if want := ttl << takes; given != want {
					t.Errorf("take %d has a TTL of %v; want %v", takes, given, want)
				}
				if takes++; takes != c.passes {
					t.Fatal("lost")
				}
			})
		})
		if takes != c.takes || (len(failures) > 0) != c.fails || c.fails && failures[0] != "lost" {
			t.Errorf("%s: %d takes, %q; want %d takes, and failures: %v", name, takes, failures, c.takes, c.fails)
		}
	}
}

// Stores take no longer TTL by default: a body with one would fail for that.
func TestNoTakeHasALongerTTLThanStoresTakeByDefault(t *testing.T) {
	for _, c := range []struct {
		first time.Duration
		want  string
	}{{3 * time.Second, "[3s 6s 12s 24s 30s]"}, {10 * time.Second, "[10s 20s 30s 30s 30s]"}, {time.Minute, "[1m0s 1m0s 1m0s 1m0s 1m0s]"}} {
		var given []time.Duration
		Failures(t, time.Minute, func(t testing.TB) {
			whileBusy(t, c.first, func(ttl time.Duration) func() time.Duration { return func() time.Duration { return ttl } }, func(t testing.TB, ttl time.Duration) {
				given = append(given, ttl)
				t.Fatal("lost")
			})
		})
		if got := fmt.Sprint(given); got != c.want || longest != backends.DefaultMaxTTL {
			t.Errorf("takes have the TTLs %s; want %s, and at most %v", got, c.want, backends.DefaultMaxTTL)
		}
	}
}

// One long pause counts as much as several shorter ones, if they are within one TTL.
func TestAWindowAddsUpWhatWasLateWithinATTL(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	w := window{length: 10 * time.Second}
	for _, late := range []struct {
		at, by int
		want   string
	}{{1, 1, "1s"}, {5, 2, "3s"}, {11, 1, "4s"}, {12, 1, "4s"}, {40, 3, "4s"}, {41, 2, "5s"}} {
		w.add(at(late.at), time.Duration(late.by)*time.Second)
		if got := fmt.Sprint(w.most); got != late.want {
			t.Errorf("at %d s: %s; want %s", late.at, got, late.want)
		}
	}
}

// Naps that are a little late cost no lease, however many there are.
func TestAMachineIsNotBusyIfManyNapsAreALittleLate(t *testing.T) {
	const ttl = 9 * time.Second
	for _, c := range []struct {
		by   time.Duration
		naps int
		busy bool
	}{{12 * time.Millisecond, 1000, false}, {ttl/pausePart - 1, 1000, false}, {ttl / pausePart, 4, false}, {ttl / pausePart, 5, true}, {ttl / busyPart, 1, true}} {
		w, at := window{length: ttl}, time.Unix(0, 0)
		for range c.naps {
			at = at.Add(nap + c.by)
			w.add(at, c.by)
		}
		if busy := w.most >= ttl/busyPart; busy != c.busy {
			t.Errorf("%d naps that are late by %v: busy is %v (%v); want %v", c.naps, c.by, busy, w.most, c.busy)
		}
	}
}

// The body may end at the same moment as the pause: the goroutine that takes naps then sees both at once.
func TestAPauseAtTheEndOfATakeCounts(t *testing.T) {
	end := make(chan struct{})
	close(end)
	times := []time.Time{time.Unix(0, 0), time.Unix(0, 0), time.Unix(0, 0).Add(nap + time.Second)}
	now := func() time.Time { first := times[0]; times = times[1:]; return first }
	if late := takeNaps(9*time.Second, now, func() time.Duration { return 0 }, end); late != time.Second {
		t.Errorf("late by %v; want 1s", late)
	}
}

// All naps end in time, and threads wait for a CPU meanwhile: for a part of each nap, in some of the
// parts of a TTL.
func TestThreadsThatWaitForACPUAreAPause(t *testing.T) {
	const ttl = pausePart * 5 * nap // so five naps are a part that counts
	for _, c := range []struct {
		waits   time.Duration // in each nap
		parts   int
		isBusy  bool
		because string
	}{
		{0, pausePart, false, "nobody waits"},
		{nap * 7 / 10, pausePart, false, "a CPU is free for a third of the time"},
		{nap * 8 / 10, pausePart/busyPart - 1, false, "it is soon over"},
		{nap * 8 / 10, pausePart / busyPart, true, "it lasts"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			waited := func() time.Duration {
				return min(time.Since(began)/nap, time.Duration(5*c.parts)) * c.waits
			}
			end, most := make(chan struct{}), make(chan time.Duration, 1)
			go func() { most <- takeNaps(ttl, time.Now, waited, end) }()
			time.Sleep(ttl)
			close(end)
			if late := <-most; (late >= ttl/busyPart) != c.isBusy {
				t.Errorf("%s: late by %v of %v; want busy to be %v", c.because, late, ttl, c.isBusy)
			}
		})
	}
}

func TestAGoroutineThatTakesNapsIsLittleLateOnAnyMachine(t *testing.T) {
	stop := watch(time.Hour)
	time.Sleep(10 * nap)
	if late := stop(); late < 0 || late > time.Minute {
		t.Errorf("late by %v", late)
	}
}
