package laboratory

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

func held(who string, from, until, works int) Hold {
	return Hold{Who: who, From: at(from), Until: at(until), Works: at(works)}
}

// of is a hold beside which others may be.
func of(most int, who string, from, until int) Hold {
	h := held(who, from, until, until)
	h.With = most
	return h
}

// Of three that hold two permits, the first one ends first.
func TestTooManyLastsUntilOneHasEnded(t *testing.T) {
	r := Record{Holds: []Hold{of(2, "Alice", 0, 70), of(2, "Bob", 10, 100), of(2, "Carol", 50, 90)}}
	want := []Span{{"Alice", "Carol", at(50), at(70)}}
	if got := r.leases(); !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

func TestAVerdictIsWhatTheRecordShows(t *testing.T) {
	alice := held("Alice", 0, 100, 100)
	for _, c := range []struct {
		says   string
		record Record
		want   Outcome
	}{
		{"nothing happened", Record{}, Undecided},
		{"nobody asked", Record{Holds: []Hold{alice}}, Undecided},
		{"asked and refused meanwhile", Record{Holds: []Hold{alice}, Asked: []Asked{{"Bob", at(10), at(90)}}}, Safe},
		{"refused when it was over", Record{Holds: []Hold{alice}, Asked: []Asked{{"Bob", at(10), at(110)}}}, Undecided},
		{"refused before it began", Record{Holds: []Hold{held("Alice", 20, 100, 100)}, Asked: []Asked{{"Bob", at(10), at(90)}}}, Undecided},
		{"the holder itself was refused", Record{Holds: []Hold{alice}, Asked: []Asked{{"Alice", at(10), at(90)}}}, Undecided},
		{"one after the other", Record{Holds: []Hold{alice, held("Bob", 100, 200, 200)}, next: gotIt}, Free},
		{"two leases", Record{Holds: []Hold{alice, held("Bob", 99, 200, 200)}}, TwoHold},
		{"two leases, although one was refused as well", Record{
			Holds: []Hold{alice, held("Bob", 50, 60, 60)}, Asked: []Asked{{"Carol", at(10), at(90)}},
		}, TwoHold},
		{"two leases, although it was free then", Record{Holds: []Hold{alice, held("Bob", 50, 60, 60)}, next: gotIt}, TwoHold},
		{"works after the lease", Record{Holds: []Hold{held("Alice", 0, 100, 150), held("Bob", 110, 200, 200)}, late: landed}, TwoWork},
		{"works after the lease, and is refused", Record{
			Holds: []Hold{held("Alice", 0, 100, 150), held("Bob", 110, 200, 200)}, late: refusedByFence,
		}, Fenced},
		{"two leases, and the first is refused", Record{Holds: []Hold{alice, held("Bob", 50, 200, 200)}, late: refusedByFence}, Fenced},
		{"an instant each", Record{Holds: []Hold{held("Alice", 5, 5, 5), held("Bob", 5, 5, 5)}}, Undecided},
		{"never got it", Record{next: neverGotIt}, ForEver},
		{"got it after a repair", Record{next: gotItAfterRepair}, Repaired},
		{"two permits of two", Record{Holds: []Hold{of(2, "Alice", 0, 100), of(2, "Bob", 10, 100)}, next: gotIt}, Free},
		{"three of two", Record{Holds: []Hold{of(2, "Alice", 0, 100), of(2, "Bob", 10, 100), of(2, "Carol", 50, 60)}}, TooMany},
		{"three of two, one after another", Record{
			Holds: []Hold{of(2, "Alice", 0, 100), of(2, "Bob", 10, 50), of(2, "Carol", 50, 60)}, next: gotIt,
		}, Free},
		{"three under two limits", Record{Holds: []Hold{of(3, "Alice", 0, 100), of(3, "Bob", 10, 100), of(2, "Carol", 50, 60)}}, TooMany},
		{"readers", Record{Holds: []Hold{of(anyNumber, "Alice", 0, 100), of(anyNumber, "Bob", 0, 100), of(anyNumber, "Carol", 0, 9)}, next: gotIt}, Free},
		{"a writer beside a reader", Record{Holds: []Hold{of(anyNumber, "Alice", 0, 100), held("Bob", 10, 50, 50)}}, TwoHold},
		{"a reader beside a writer", Record{Holds: []Hold{held("Alice", 0, 100, 100), of(anyNumber, "Bob", 10, 50)}}, TwoHold},
		{"a writer after a reader", Record{Holds: []Hold{of(anyNumber, "Alice", 0, 10), held("Bob", 10, 50, 50)}, next: gotIt}, Free},
		{"kept by a dead owner", Record{Holds: []Hold{of(anyNumber, "Alice", 0, 10)}, next: keptByTheDead}, Late},
		{"a job that ran once", Record{Holds: []Hold{alice}, ran: once}, Safe},
		{"a job that ran twice", Record{Holds: []Hold{alice}, ran: twice}, RanTwice},
		{"was not told, whatever else", Record{untold: true, next: gotIt}, NotTold},
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
