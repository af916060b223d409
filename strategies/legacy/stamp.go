package legacy

import (
	"strconv"
	"strings"
	"time"
)

// A unit is what the stamps of GetSet count since 1970.
type unit time.Duration

const (
	seconds      = unit(time.Second)
	milliseconds = unit(time.Millisecond)
)

// stamp is the recipe's "current Unix time + lock timeout + 1". The 1 makes up for the part of a unit that was cut off
// from the time; a timeout that is no whole number of units is rounded up, so that nobody has less than asked for.
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

// parse reads what old code writes: decimal digits, and a point where a language's clock gives a fraction. What could
// not be a time in this unit by now is none: a stamp in the other unit is a thousand times too early or too late, and
// locks of other kinds are often just a 1.
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

// exact is the time in this unit, with its fraction, which is counted apart: nanoseconds since 1970 are too many for a
// float64.
func (u unit) exact(t time.Time) float64 {
	return float64(u.count(t)) + float64(t.Nanosecond()%int(u))/float64(u)
}

// past tells that a lock with this stamp may be taken.
func (u unit) past(stamp float64, now time.Time) bool { return stamp <= u.exact(now) }

// left is how long the holder's lease lives, which leaves the recipe's 1 aside.
func (u unit) left(stamp float64, now time.Time) time.Duration {
	return max(time.Duration((stamp-1-u.exact(now))*float64(u)), 0)
}

// text is a stamp as it is stored.
func text(stamp int64) string { return strconv.FormatInt(stamp, 10) }
