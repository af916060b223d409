package main

import (
	"strconv"
	"testing"
	"time"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

func held(who string, from, until, works int) hold { return hold{who, at(from), at(until), at(works)} }

func TestAVerdictIsWhatTheRecordShows(t *testing.T) {
	alice := held("Alice", 0, 100, 100)
	for _, c := range []struct {
		says   string
		record record
		want   outcome
	}{
		{"nothing happened", record{}, unclear},
		{"nobody asked", record{holds: []hold{alice}}, unclear},
		{"asked and refused meanwhile", record{holds: []hold{alice}, asked: []asked{{"Bob", at(10), at(90)}}}, safe},
		{"refused when it was over", record{holds: []hold{alice}, asked: []asked{{"Bob", at(10), at(110)}}}, unclear},
		{"refused before it began", record{holds: []hold{held("Alice", 20, 100, 100)}, asked: []asked{{"Bob", at(10), at(90)}}}, unclear},
		{"the holder itself was refused", record{holds: []hold{alice}, asked: []asked{{"Alice", at(10), at(90)}}}, unclear},
		{"one after the other", record{holds: []hold{alice, held("Bob", 100, 200, 200)}, next: gotIt}, free},
		{"two leases", record{holds: []hold{alice, held("Bob", 99, 200, 200)}}, twoHold},
		{"two leases, although one was refused as well", record{
			holds: []hold{alice, held("Bob", 50, 60, 60)}, asked: []asked{{"Carol", at(10), at(90)}},
		}, twoHold},
		{"two leases, although it was free then", record{holds: []hold{alice, held("Bob", 50, 60, 60)}, next: gotIt}, twoHold},
		{"works after the lease", record{holds: []hold{held("Alice", 0, 100, 150), held("Bob", 110, 200, 200)}, late: landed}, twoWork},
		{"works after the lease, and is refused", record{
			holds: []hold{held("Alice", 0, 100, 150), held("Bob", 110, 200, 200)}, late: refusedByFence,
		}, fencedOff},
		{"two leases, and the first is refused", record{holds: []hold{alice, held("Bob", 50, 200, 200)}, late: refusedByFence}, fencedOff},
		{"an instant each", record{holds: []hold{held("Alice", 5, 5, 5), held("Bob", 5, 5, 5)}}, unclear},
		{"never got it", record{next: neverGotIt}, forEver},
		{"got it after a repair", record{next: gotItAfterRepair}, repaired},
		{"was not told, whatever else", record{untold: true, next: gotIt}, untold},
	} {
		if got, detail := c.record.verdict(); got != c.want {
			t.Errorf("%s: %s (%s); want %s", c.says, got, detail, c.want)
		}
	}
}

func TestAClockIsAheadInEveryUnitAndMovesNothingElse(t *testing.T) {
	now := time.Now()
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		stamp := now.UnixNano() / int64(unit)
		if got, want := shift(digits(stamp), time.Hour), digits(stamp+int64(time.Hour/unit)); got != want {
			t.Errorf("%d in units of %v becomes %s; want %s", stamp, unit, got, want)
		}
		if got := shift(shift(digits(stamp), time.Hour), -time.Hour); got != digits(stamp) {
			t.Errorf("%d and back is %s", stamp, got)
		}
	}
	for _, text := range []string{"", "0", "30000", "key", "1e9", "99999999999999999999", digits(now.Unix() / 2), digits(2 * now.Unix())} {
		if got := shift(text, time.Hour); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }
