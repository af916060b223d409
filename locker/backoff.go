package locker

import "time"

// Backoff says how long to wait before the next attempt on a lock that is held, and, under
// [WithWait], after an attempt that failed. The first attempt is 1; random is drawn evenly from
// [0, 1). A Backoff is a pure function, so that many calls can use it at once. A wake-up or the end
// of the holder's lease ends the wait early; a result of zero or less means a millisecond.
type Backoff func(attempt int, random float64) time.Duration

// A waiter that the store wakes also makes attempts by itself, since a wake-up may get lost. It
// sleeps for a quarter of the time that it has waited already, within these limits.
const (
	minLook = 250 * time.Millisecond
	maxLook = 6 * time.Second
)

// In the queue of a store, the first few waiters make an attempt when the holder's lease ends, and those
// behind them one after the other, minLook apart, since all before them may be dead. Otherwise they rely
// on wake-ups. The further back they are, the longer they sleep, so that a long queue costs the store
// little.
const (
	lookouts   = 3
	behindLook = 2 * time.Second // times the position
	lastLook   = 15 * time.Second
)

// Exponential waits first, then twice as long each time, up to limit. Each wait is drawn evenly
// from its upper half.
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
var polling = Exponential(8*time.Millisecond, minLook)

// watching is the default where the store wakes waiters: a safeguard against lost wake-ups.
func watching(waited time.Duration, position int) time.Duration {
	if position > lookouts {
		return min(time.Duration(position)*behindLook, lastLook)
	}
	return min(max(waited/4, minLook), maxLook)
}

// lookAfterEnd is how long after the end of the holder's lease a waiter makes an attempt.
func lookAfterEnd(position int) time.Duration {
	const grace = 2 * time.Millisecond // stores count in milliseconds, and Redis keeps a key for one more
	return grace + time.Duration(max(position-lookouts, 0))*minLook
}

// sharing is the pause of a line of so many waiters for a key that other software locks as well. It is
// as if each polled by itself: 50 ms on average, drawn from 25 to 75 ms, for one.
func sharing(waiters int, random float64) time.Duration {
	const interval = 50 * time.Millisecond
	return (interval/2 + time.Duration(random*float64(interval))) / time.Duration(min(max(waiters, 1), maxSharing))
}

// maxSharing is how many waiters of a line poll by themselves. So a line makes at most 160 attempts a
// second. A Client has one line for a key and owner.
const maxSharing = 8

// failing is the pause after so many failures of the store in a row, of whatever kind. It is drawn
// evenly from 0 to 50 ms; the upper end doubles with each failure, up to 1 s. So waiters that
// failed at one instant come back one after the other.
func failing(failures int, random float64) time.Duration {
	const limit = time.Second
	most := limit
	if failures < 6 {
		most = min(baseFailing<<(max(failures, 1)-1), limit)
	}
	return time.Duration(random * float64(most))
}

const baseFailing = 50 * time.Millisecond

// jitter draws from the upper half of d.
func jitter(d time.Duration, random float64) time.Duration {
	return d/2 + time.Duration(random*float64(d-d/2))
}
