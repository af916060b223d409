package legacy

import (
	"math/big"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// FuzzStamp: a stamp is read as it was written. Its lock can be taken when the lease is over, not
// before, and at most two units later.
func FuzzStamp(f *testing.F) {
	f.Add(int64(1_767_225_600), int64(0), int64(10*time.Second), false)
	f.Add(int64(1_767_225_600), int64(999_999_999), int64(1500*time.Millisecond), false)
	f.Add(int64(1_767_225_600), int64(123_456_789), int64(10500*time.Microsecond), true)
	f.Add(int64(4_102_444_800), int64(1), int64(time.Hour), true)
	f.Fuzz(func(t *testing.T, seconds, nanoseconds, ttl int64, inMilliseconds bool) {
		u := unitOf(inMilliseconds)
		now, d := time.Unix(seconds, nanoseconds), time.Duration(ttl)
		if !ours(now) || d < time.Millisecond || d > 24*time.Hour {
			return
		}
		stamp := u.stamp(now, d)
		read, ok := u.parse(text(stamp), now)
		if !ok || read != float64(stamp) {
			t.Fatalf("%q at %v is read as %v, %v", text(stamp), now, read, ok)
		}
		if u.past(read, now.Add(d-precision)) {
			t.Errorf("%q at %v is past %v later", text(stamp), now, d)
		}
		if !u.past(read, now.Add(d+2*time.Duration(u)+precision)) {
			t.Errorf("%q at %v is not past %v and two units later", text(stamp), now, d)
		}
		if left := u.left(read, now); left < d-time.Duration(u)-precision || left > d+time.Duration(u)+precision {
			t.Errorf("%q at %v: %v left of %v", text(stamp), now, left, d)
		}
	})
}

// FuzzForeignValue: decimal digits, with a point or without, are a stamp if they are within a
// hundredth and a hundredfold of the time. Nothing else is. So no lock is taken because its value
// happens to look like a stamp.
func FuzzForeignValue(f *testing.F) {
	for _, value := range []string{
		"", "1", "0", "token", "1767225600", "1767225600.25", "1767225600000", ".5", "5.", ".", "1.2.3", "-1767225600", "+1767225600", " 1767225600",
		"1767225600\n", "1_767_225_600", "0x69559b80", "1.7e9", "Inf", "NaN", "17672256", "176722560000", "99999999999999999999999999", "1767225600000000000000.0",
	} {
		f.Add(value, int64(1_767_225_600), false)
		f.Add(value, int64(1_767_225_600), true)
	}
	f.Fuzz(func(t *testing.T, value string, seconds int64, inMilliseconds bool) {
		u, now := unitOf(inMilliseconds), time.Unix(seconds, 0)
		if !ours(now) {
			return
		}
		stamp, ok := u.parse(value, now)
		number, isNumber := new(big.Float).SetString(value)
		want := isNumber && decimal.MatchString(value)
		if want {
			quotient, _ := new(big.Float).Quo(number, big.NewFloat(u.exact(now))).Float64()
			if near(quotient, 100) || near(quotient, 0.01) {
				return // both results are right
			}
			want = quotient > 0.01 && quotient < 100
		}
		if ok != want {
			t.Errorf("%q at %v is a stamp: %v", value, now, ok)
		}
		if exact, _ := strconv.ParseFloat(value, 64); ok && stamp != exact {
			t.Errorf("%q is read as %v", value, stamp)
		}
		if left := u.left(stamp, now); left < 0 {
			t.Errorf("%q at %v: %v left", value, now, left)
		}
	})
}

var decimal = regexp.MustCompile(`^([0-9]+\.?[0-9]*|\.[0-9]+)$`)

func near(a, b float64) bool { return a > b*0.999999 && a < b*1.000001 }

func unitOf(inMilliseconds bool) unit {
	if inMilliseconds {
		return milliseconds
	}
	return seconds
}

// precision is the precision of a time in milliseconds as a float64. A lease ends milliseconds
// before its stamp is past.
const precision = 2 * time.Microsecond

// ours reports whether now is in this century, in which clocks may be wrong by any amount.
func ours(now time.Time) bool { return now.Year() >= 2000 && now.Year() < 2100 }
