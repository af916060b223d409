package locker

import "time"

// Backoff says how long to wait before the next attempt on a lock that is held: attempt counts from 1, random is drawn
// evenly from [0, 1). It is a pure function, so that one Backoff can serve any number of calls at once. A wake or the
// end of the holder's lease cuts the wait short; a result of zero or less means a millisecond.
type Backoff func(attempt int, random float64) time.Duration

// watchCap is the longest sleep of a waiter: a hint that gets lost costs no more.
const watchCap = 250 * time.Millisecond

// Exponential waits first, then twice as long each time, up to limit; each wait is drawn evenly from its upper half.
func Exponential(first, limit time.Duration) Backoff {
	return func(attempt int, random float64) time.Duration {
		d := first
		for range attempt - 1 {
			if d *= 2; d >= limit || d <= 0 {
				break
			}
		}
		if d > limit || d <= 0 {
			d = limit
		}
		return jitter(d, random)
	}
}

// polling is the default where the store can't wake anybody.
var polling = Exponential(8*time.Millisecond, watchCap)

// watching is the default where the store wakes us: only a safeguard.
func watching(_ int, random float64) time.Duration { return jitter(watchCap, random) }

// jitter draws from the upper half of d.
func jitter(d time.Duration, random float64) time.Duration {
	return d/2 + time.Duration(random*float64(d-d/2))
}
