package main

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fixture is a request that holds the lock, and one that waits for it, has it, and loses it.
func fixture() []span {
	at := func(trace, id, parent, service, name string, from, to int, attributes ...string) span {
		ms := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Millisecond) }
		s := span{Trace: trace, ID: id, Parent: parent, Service: service, Name: name, From: ms(from), To: ms(to), Attributes: map[string]string{}}
		for i := 0; i < len(attributes); i += 2 {
			s.Attributes[attributes[i]] = attributes[i+1]
		}
		return s
	}
	spans := []span{
		at("T", "1", "", "driver", "first & only", 0, 60, "http.response.status_code", "200"),
		at("T", "2", "1", "app-1", "POST /", 1, 60, "http.response.status_code", "200"),
		at("T", "7", "2", "app-1", "lock release", 50, 60),
		at("T", "3", "2", "app-1", "lock acquire", 2, 10, "lock.outcome", "acquired", "lock.attempts", "1"),
		at("T", "4", "3", "app-1", "lock acquire", 3, 10, "lock.outcome", "acquired", "lock.attempts", "1"),
		at("T", "5", "2", "app-1", "lock hold", 10, 50),
		at("T", "6", "5", "app-1", "work", 10, 50),

		at("U", "a", "", "driver", "second", 20, 119, "http.response.status_code", "500"),
		at("U", "b", "a", "app-2", "lock acquire", 20, 53, "lock.outcome", "acquired", "lock.attempts", "12"),
		at("U", "c", "a", "app-2", "lock hold", 53, 118, "lock.lost.reason", "unavailable"),
		at("V", "d", "", "app-2", "lock renew", 110, 118, "lock.outcome", "error"),
	}
	spans[10].Link = "b"
	for _, failed := range []int{7, 9, 10} {
		spans[failed].Failed = true
	}
	return spans
}

const drawn = `
                             0 ms  20 ms 40 ms 60 ms 80 ms  100 ms
                             ┊     ┊     ┊     ┊     ┊      ┊
driver first & only          ───────────────────     ┊      ┊        60.0 ms  200
app-1   POST /               ───────────────────     ┊      ┊        59.0 ms  200
app-1    lock acquire        ░░░░  ┊     ┊     ┊     ┊      ┊         8.0 ms  acquired ×1
app-1     attempt            ▒▒▒▒  ┊     ┊     ┊     ┊      ┊         7.0 ms  acquired
app-1    lock hold           ┊  █████████████  ┊     ┊      ┊        40.0 ms
app-1     work               ┊  ▓▓▓▓▓▓▓▓▓▓▓▓▓  ┊     ┊      ┊        40.0 ms
app-1    lock release        ┊     ┊     ┊  ▪▪▪▪     ┊      ┊        10.0 ms
                             ┊     ┊     ┊     ┊     ┊      ┊
driver second                ┊     ───────────────────────────────   99.0 ms  500
app-2   lock acquire         ┊     ░░░░░░░░░░░ ┊     ┊      ┊        33.0 ms  acquired ×12
app-2   lock hold            ┊     ┊     ┊   █████████████████████   65.0 ms  lost: unavailable
app-2   lock renew (linked)  ┊     ┊     ┊     ┊     ┊      ┊  ▪▪▪    8.0 ms  error
                             ┊     ┊     ┊     ┊     ┊      ┊
the lock is held by app-     ...1111111111111222222222222222222222   2 holds
                             0 ms  20 ms 40 ms 60 ms 80 ms  100 ms

  ── request  ░░ waits for the lock  ▒▒ attempt  ██ holds it  ▓▓ works  ▪▪ releases, extends
`

func TestAWaterfallInATerminal(t *testing.T) {
	spans := fixture()
	slices.Reverse(spans) // they come in the order in which they ended, or any
	w := arrange(spans)
	var out bytes.Buffer
	(&screen{Writer: &out}).waterfall(w, 90)
	if got := "\n" + out.String(); got != drawn {
		t.Errorf("it is%s\nwant%s", got, drawn)
	}
	if n := w.overlaps(); n != 0 {
		t.Errorf("%d overlaps", n)
	}
	out.Reset()
	(&screen{Writer: &out, colour: true}).waterfall(w, 90)
	for _, want := range []string{"\x1b[1mfirst & only", "\x1b[32m█████████████\x1b[0m", "\x1b[31mlost: unavailable\x1b[0m"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("with colours, no %q in:\n%q", want, &out)
		}
	}
}

func TestTwoHoldsAtOnceAreSeen(t *testing.T) {
	spans := fixture()
	spans[9].From = spans[2].From.Add(-10 * time.Millisecond) // the second hold begins before the first release
	w := arrange(spans)
	if n := w.overlaps(); n != 1 {
		t.Errorf("%d overlaps, want 1", n)
	}
	if got := (columns{w, 119}).holders(); !strings.Contains(got, "11!!!!!!!!!!22") {
		t.Errorf("held by %s", got)
	}
}

func TestAHoldThatIsShorterThanAColumnIsSeen(t *testing.T) {
	w := waterfall{from: noon, to: noon.Add(time.Second), holds: []hold{{'7', noon.Add(15 * time.Millisecond), noon.Add(16 * time.Millisecond)}}}
	if got := (columns{w, 10}).holders(); got != "7........." {
		t.Errorf("held by %s", got)
	}
}

func TestTicks(t *testing.T) {
	for whole, want := range map[time.Duration]string{
		0: "0s", 3 * time.Millisecond: "0s 1ms 2ms 3ms", 6 * time.Millisecond: "0s 2ms 4ms 6ms",
		400 * time.Millisecond: "0s 100ms 200ms 300ms 400ms", 1100 * time.Millisecond: "0s 200ms 400ms 600ms 800ms 1s",
		2 * time.Second: "0s 500ms 1s 1.5s 2s",
	} {
		var got []string
		for _, at := range (waterfall{from: noon, to: noon.Add(whole)}).ticks(6) {
			got = append(got, at.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v: %v, want %s", whole, got, want)
		}
	}
}

func TestAWaterfallAsAPicture(t *testing.T) {
	var out bytes.Buffer
	if err := arrange(fixture()).svg(&out); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, out.Bytes())
	for _, want := range []string{
		`>first &amp; only</text>`,
		// 0 ms is at 226, and 119 ms at 776: the holds from 10 ms to 60, and from 53 to 118
		`<rect x="272.2" y="136.5" width="184.9" height="12" fill="#2c9a5b"><title>lock hold, 40.0 ms</title></rect>`,
		`<rect x="471" y="229.5" width="300.4" height="12" fill="#2c9a5b"><title>lock hold, 65.0 ms</title></rect>`,
		`<text class="failed" x="858" y="239.5">lost: unavailable</text>`,
		`<text class="inside middle" x="621.2" y="281.5">2</text>`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in:\n%s", want, &out)
		}
	}
	out.Reset()
	if err := arrange(nil).svg(&out); err != nil {
		t.Error(err)
	}
	wellFormed(t, out.Bytes())
}

func TestTheTableAddsUpProcesses(t *testing.T) {
	points := []point{
		{Name: "lock.losses", Attributes: "lock.lost.reason=stolen", Value: 1},
		{Name: "lock.acquire.duration", Unit: "s", Attributes: "a=x", Count: 3, Sum: .06, Bounds: []float64{.01, .1}, Buckets: []uint64{1, 2, 0}},
		{Name: "lock.acquire.attempts", Unit: "{attempt}", Count: 2, Sum: 4, Bounds: []float64{1, 3}, Buckets: []uint64{0, 2, 0}},
		{Name: "lock.acquire.duration", Unit: "s", Attributes: "a=x", Count: 1, Sum: .09, Bounds: []float64{.01, .1}, Buckets: []uint64{0, 0, 1}},
		{Name: "lock.acquire.duration", Unit: "s", Attributes: "a=y", Count: 1, Sum: .001, Bounds: []float64{.01, .1}, Buckets: []uint64{1, 0, 0}},
		{Name: "lock.losses", Attributes: "lock.lost.reason=stolen", Value: 2},
	}
	const want = `
  metric                 attributes               value  count       sum      p50       p99
  lock.acquire.attempts                                      2         4        2      2.98
  lock.acquire.duration  a=x                                 4  150.0 ms  55.0 ms  100.0 ms
  lock.acquire.duration  a=y                                 1    1.0 ms   5.0 ms    9.9 ms
  lock.losses            lock.lost.reason=stolen      3

  p50 and p99 are read off the buckets, as a dashboard does.
`
	for range 2 { // and changes none of them
		var out bytes.Buffer
		(&screen{Writer: &out}).table(points)
		if got := "\n" + out.String(); got != want {
			t.Errorf("it is%s\nwant%s", got, want)
		}
	}
}

func TestQuantile(t *testing.T) {
	p := point{Count: 10, Bounds: []float64{1, 2, 4}, Buckets: []uint64{0, 5, 4, 1}}
	for q, want := range map[float64]float64{.1: 1.2, .5: 2, .7: 3, .9: 4, .99: 4} {
		if got := p.quantile(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

func TestTheSlowestExemplar(t *testing.T) {
	got, ok := slowest([]point{
		{Name: "lock.hold.duration", Exemplars: []exemplar{{9, "other"}}},
		{Name: acquireDuration, Exemplars: []exemplar{{1, "a"}, {3, "b"}}}, {Name: acquireDuration, Exemplars: []exemplar{{2, "c"}}},
	})
	if !ok || got.Trace != "b" {
		t.Errorf("%v, %v", got, ok)
	}
	if _, ok := slowest(nil); ok {
		t.Error("one of none")
	}
}
