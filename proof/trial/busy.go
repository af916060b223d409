package trial

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Takes is how often [WhileBusy] runs a body at most.
const Takes = 5

const (
	takeLimit = 10 * time.Minute      // for one take
	nap       = 20 * time.Millisecond // of the goroutine that looks at the machine
	pausePart = 50                    // a nap that is late by less than a fiftieth of a TTL shows nothing
	busyPart  = 10                    // a tenth of a TTL
	starved   = 0.8                   // of such a fiftieth: so long have threads waited for a CPU
	longest   = 30 * time.Second      // backends.DefaultMaxTTL
)

// WhileBusy runs the body of a test of real locks, whose leases live for ttl. A process that a busy
// machine does not run loses its locks, and that is right. So if the body fails, and the machine was
// busy meanwhile, the body runs again with twice the ttl, but with no more than the 30 s that stores
// take by default. A goroutine takes naps meanwhile. A nap that is late by a fiftieth of a ttl or more
// is a pause, and the machine was busy if the pauses within one ttl add up to a tenth of it. A goroutine
// that sleeps most of the time is served soon, while servers that work wait for a CPU. So a fiftieth of
// a ttl in which Linux says that threads waited for a CPU is a pause too.
//
// A failure counts at once on a machine that was not busy, and in the last take on any machine. To
// pass, one take must pass as a whole.
//
// It can hide a defect that fails only some takes: a failure on a busy machine is logged, and a later
// take that passes excuses it. It also hides a lock that is lost only with a short ttl. So use it for
// locks that are lost or late alone. No machine excuses that two hold one lock, or that an update is
// lost. Report these to the t of the test, and not to the t that the body is given: then they count in
// every take.
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
		ttl = max(ttl, min(2*ttl, longest))
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
	go func() { most <- takeNaps(ttl, time.Now, waited, end) }()
	return func() time.Duration { close(end); return <-most }
}

func takeNaps(ttl time.Duration, now func() time.Time, waited func() time.Duration, end <-chan struct{}) (most time.Duration) {
	w := window{length: ttl}
	from, before := now(), waited()
	for ended := false; !ended; {
		began := now()
		select {
		case <-end:
			ended = true // the last nap may be late as well
		case <-time.After(nap):
		}
		woke := now()
		w.add(woke, woke.Sub(began)-nap)
		if part := woke.Sub(from); part >= ttl/pausePart {
			all := waited()
			if all-before >= time.Duration(starved*float64(part)) {
				w.add(woke, part)
			}
			from, before = woke, all
		}
	}
	return w.most
}

// waited adds up the time since the start of the machine in which a thread waited for a CPU, or several
// did. It is the total of the first line of the file, which begins with the word "some". On systems
// without the file it is 0. See https://docs.kernel.org/accounting/psi.html.
func waited() time.Duration {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	_, total, _ := strings.Cut(string(text), "total=")
	total, _, _ = strings.Cut(total, "\n")
	us, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(us) * time.Microsecond
}

// A window adds up the pauses within its length.
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
	if by < w.length/pausePart {
		return
	}
	w.naps, w.sum = append(w.naps, late{at, by}), w.sum+by
	for at.Sub(w.naps[0].at) > w.length {
		w.sum -= w.naps[0].by
		w.naps = w.naps[1:]
	}
	w.most = max(w.most, w.sum)
}
