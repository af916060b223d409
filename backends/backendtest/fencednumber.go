package backendtest

import (
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var numberSentences = []sentence{
	{"a number is at least 1, and greater after a release", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		var last uint64
		for range rounds {
			last = x.next(key, "mine", n, last)
			x.remove(key, "mine")
		}
	})},
	{"a number is greater after an expiry", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		x.next(key, "first", n, x.expired(key, n))
	})},
	{"a number is greater after a deletion from outside", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		last := x.next(key, "mine", n, 0)
		x.outside.Delete(key)
		x.next(key, "mine", n, last) // which is a new ownership, though the value is the same
	})},
	{"a number is greater after grants without number", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		x.grant(key, "other", x.long)
		x.remove(key, "other")
		last := x.next(key, "mine", n, 0)
		x.remove(key, "mine")
		x.grant(key, "other", x.long)
		x.remove(key, "other")
		x.next(key, "mine", n, last)
	})},
	{"a number is greater after refused attempts, which have none", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		last := x.next(key, "mine", n, 0)
		for range rounds {
			res, err := x.draw(key, "theirs", x.long, n)
			if err != nil || res.OK || res.Fence != 0 {
				x.Fatalf("SetNXFenced of a key that is held = %+v, %v; want it refused, without a number", res, err)
			}
		}
		x.remove(key, "mine")
		x.next(key, "theirs", n, last)
	})},
	{"a repeated SetNXFenced has the number that it had", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		x.next(key, "theirs", n, 0)
		x.remove(key, "theirs")
		mine := x.next(key, "mine", n, 0)
		for range rounds {
			time.Sleep(2 * x.Resolution)
			x.numbered(key, "mine", n, mine)
			x.extend(key, "mine", x.long)
		}
		x.remove(key, "mine")
		x.next(key, "next", n, mine)
	})},
	{"SetNXFenced of a value that was stored without a number gives it one", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		x.grant(key, "mine", x.long)
		number := x.next(key, "mine", n, 0)
		x.numbered(key, "mine", n, number)
		x.remove(key, "mine")
		x.next(key, "theirs", n, number)
	})},
}

// countSentences are of a store that counts.
var countSentences = []sentence{
	{"Count is the last number and one more", func(x *fixture) {
		key := x.key("k")
		for i := range uint64(20) {
			x.numbered(key, "mine", byCount, i+1)
			x.remove(key, "mine")
		}
	}},
	{"a key whose numbers have come to 2^53 is not granted any more, and its holder stays", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		const last = 1<<53 - 1
		x.next(key, "mine", n, 0)
		x.raise(key, "mine", last, true)
		x.numbered(key, "mine", n, last)
		x.remove(key, "mine")
		res, err := x.draw(key, "theirs", x.long, n)
		if err == nil || res.OK {
			x.Fatalf("SetNXFenced after the number %d = %+v, %v; want an error", last, res, err)
		}
		x.wantPermanent("SetNXFenced", err)
		x.wantNothing(key)
	})},
}

// clockSentences are of a store that numbers by its clock as well as by counting, with one counter for both.
var clockSentences = []sentence{
	{"Clock is the store's time in µs since 1970", func(x *fixture) {
		key := x.key("k")
		slack := time.Millisecond
		if !x.Bubble {
			slack = patience // for a clock that is being set
		}
		for range 3 {
			began := time.Now()
			number := x.next(key, "mine", byClock, 0)
			if at := time.UnixMicro(int64(number)); at.Before(began.Add(-slack)) || at.After(time.Now().Add(slack)) {
				x.Fatalf("the number is %d, which is %v; it is %v", number, at.UTC(), time.Now().UTC())
			}
			x.remove(key, "mine")
			time.Sleep(5 * time.Millisecond)
		}
	}},
	{"Clock rises within a µs", func(x *fixture) {
		key := x.key("k")
		var last uint64
		for i := range 30 { // no time passes in a bubble
			value := fmt.Sprint("mine", i)
			last = x.next(key, value, byClock, last)
			x.remove(key, value)
		}
	}},
	{"Clock is the last number and one more where that is ahead of the time", func(x *fixture) {
		key := x.key("k")
		ahead := x.ahead(key, 30*24*time.Hour)
		x.numbered(key, "mine", byClock, ahead+1)
		x.remove(key, "mine")
		x.numbered(key, "mine", byClock, ahead+2)
	}},
	{"changing between Clock and Count never lets a number fall", func(x *fixture) {
		key := x.key("k")
		grant := func(n numbering, last uint64) uint64 {
			last = x.next(key, "mine", n, last)
			x.remove(key, "mine")
			return last
		}
		last := grant(byCount, 0)
		for range rounds {
			last = grant(byClock, last)
			if next := grant(byCount, last); next != last+1 {
				x.Fatalf("Count after Clock gave %d; want one more than %d", next, last)
			}
			last = grant(byCount, last+1)
		}
	}},
}

// countDays and clockDays are sentences that take days.
func countDays(bubble bool) []sentence {
	if !bubble {
		return nil
	}
	return []sentence{
		{"Count goes on after years", func(x *fixture) {
			key := x.key("k")
			for i := range uint64(3) {
				x.numbered(key, "mine", byCount, i+1)
				x.remove(key, "mine")
				time.Sleep(2 * 365 * 24 * time.Hour)
			}
		}},
	}
}

func clockDays(bubble bool) []sentence {
	if !bubble {
		return nil
	}
	return []sentence{
		{"Clock outlives its retention by as much as it is ahead", func(x *fixture) {
			key := x.key("k")
			const far = 10 * 24 * time.Hour
			ahead := x.ahead(key, far)
			x.numbered(key, "mine", byClock, ahead+1)
			x.remove(key, "mine")
			time.Sleep(far - time.Minute)
			x.numbered(key, "mine", byClock, ahead+2)
			x.remove(key, "mine")
			time.Sleep(backends.FenceRetention + time.Minute)
			x.next(key, "mine", byClock, ahead+2)
		}},
	}
}
