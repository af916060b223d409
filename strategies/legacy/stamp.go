package legacy

import (
	"strconv"
	"strings"
	"time"
)

// A unit is the unit of time of the stamps of GetSet, which count from 1970.
type unit time.Duration

const (
	seconds      = unit(time.Second)
	milliseconds = unit(time.Millisecond)
)

// stamp is the recipe's "current Unix time + lock timeout + 1". The 1 makes up for the part of a
// unit that was cut off from the time. A timeout is rounded up to whole units, so that no holder
// has less time than it asked for.
func (u unit) stamp(now time.Time, ttl time.Duration) int64 {
	d := time.Duration(u)
	return u.count(now) + int64((ttl+d-1)/d) + 1
}

func (u unit) count(t time.Time) int64 {
	if u == seconds {
		return t.Unix()
	}
	return t.UnixMilli()
}

// parse reads what old code writes: decimal digits, and a point if a language's clock has
// fractions. It rejects a number that can't be a time in this unit today. A stamp in the other unit
// is a thousand times too early or too late, and other kinds of locks often contain just a 1.
func (u unit) parse(value string, now time.Time) (stamp float64, ok bool) {
	if strings.Trim(value, "0123456789.") != "" {
		return 0, false
	}
	stamp, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, false
	}
	today := u.exact(now)
	return stamp, stamp > today/100 && stamp < today*100
}

// exact is the time in this unit, with its fraction. It adds the fraction last: a float64 can't
// hold nanoseconds since 1970 exactly.
func (u unit) exact(t time.Time) float64 {
	return float64(u.count(t)) + float64(t.Nanosecond()%int(u))/float64(u)
}

// past reports whether a lock with this stamp may be taken.
func (u unit) past(stamp float64, now time.Time) bool { return stamp <= u.exact(now) }

// left returns how long the holder's lease still lives: without the recipe's 1.
func (u unit) left(stamp float64, now time.Time) time.Duration {
	return max(time.Duration((stamp-1-u.exact(now))*float64(u)), 0)
}

// text returns a stamp as it is stored.
func text(stamp int64) string { return strconv.FormatInt(stamp, 10) }
