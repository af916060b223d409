package trial

import (
	"fmt"
	"testing"
	"time"
)

// Takes is how often [WhileBusy] runs a body at most.
const Takes = 5

const (
	takeLimit = 10 * time.Minute      // for one take
	nap       = 20 * time.Millisecond // of the goroutine that looks at the machine
	slack     = 10 * time.Millisecond // a nap that is late by less shows nothing
	busyPart  = 10                    // a tenth of a TTL
)

// WhileBusy runs the body of a test of real locks, whose leases live for ttl. A process that a busy machine does not run
// loses its locks, and that is right. So if the body fails, and the machine was busy meanwhile, the body runs again with
// twice the ttl. The machine was busy if a goroutine that takes naps was late by a tenth of a ttl, added up over one ttl.
// A failure counts at once on a machine that was not busy, and in the last take on any machine. To pass, one take
// must pass as a whole.
func WhileBusy(t testing.TB, ttl time.Duration, body func(t testing.TB, ttl time.Duration)) {
	t.Helper()
	whileBusy(t, ttl, watch, body)
}

func whileBusy(t testing.TB, ttl time.Duration, watch func(ttl time.Duration) (stop func() time.Duration), body func(testing.TB, time.Duration)) {
	t.Helper()
	for take := 1; ; take++ {
		began, stop := time.Now(), watch(ttl)
		failures := Failures(t, takeLimit, func(t testing.TB) { body(t, ttl) })
		late := stop()
		if len(failures) == 0 {
			return
		}
		verdict := fmt.Sprintf("take %d, with a TTL of %v, on a machine that was late by %v of it", take, ttl, late.Round(time.Millisecond))
		if late < ttl/busyPart || take == Takes || !hasTime(t, 3*time.Since(began)) {
			for _, f := range failures {
				t.Error(f)
			}
			t.Errorf("this was %s", verdict)
			return
		}
		t.Logf("%s, has failed and is repeated: %d failures, the first: %s", verdict, len(failures), failures[0])
		ttl *= 2
	}
}

// hasTime tells whether the test binary may run for so long.
func hasTime(t testing.TB, d time.Duration) bool {
	limited, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return true
	}
	end, ok := limited.Deadline()
	return !ok || time.Until(end) > d
}

// watch has a goroutine take naps. stop ends that, and returns by how much it was late at most, added up over
// one ttl.
func watch(ttl time.Duration) (stop func() time.Duration) {
	end, most := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		w := window{length: ttl}
		for {
			began := time.Now()
			select {
			case <-end:
				most <- w.most
				return
			case <-time.After(nap):
			}
			now := time.Now()
			if by := now.Sub(began) - nap; by > slack {
				w.add(now, by)
			}
		}
	}()
	return func() time.Duration { close(end); return <-most }
}

// A window adds up what was late within its length.
type window struct {
	length time.Duration
	naps   []late
	sum    time.Duration
	most   time.Duration // of all sums so far
}

type late struct {
	at time.Time
	by time.Duration
}

func (w *window) add(at time.Time, by time.Duration) {
	w.naps, w.sum = append(w.naps, late{at, by}), w.sum+by
	for at.Sub(w.naps[0].at) > w.length {
		w.sum -= w.naps[0].by
		w.naps = w.naps[1:]
	}
	w.most = max(w.most, w.sum)
}
