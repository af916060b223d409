package cleanup

import (
	"context"
	"errors"
	"net"
	"time"
)

// silence is what the calls have shown about the server.
type silence struct {
	silent bool    // the last call failed
	hung   bool    // it was not answered in time, so it may be in a buffer of the server
	pause  backoff // before the next call while the server is silent
}

// pauses tells that the next call must wait.
func (s *silence) pauses(now time.Time) bool { return s.silent && s.pause.lasts(now) }

// answer is called at every answer of the server.
func (s *silence) answer() { s.silent, s.hung, s.pause.length = false, false, 0 }

// fail is called when a call was not answered.
func (s *silence) fail(now time.Time, err error) {
	switch {
	case timedOut(err):
		s.hung = true
	case refused(err): // a process that has ended has no buffers
		s.hung = false
	}
	s.silent = true
	s.pause.begin(now)
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && !op.Timeout()
}

const baseBackoff = 50 * time.Millisecond // the first pause of a backoff: full jitter

// backoff is a pause between probes. Each is twice as long as the one before, up to maxPause.
type backoff struct {
	length time.Duration // before the jitter
	until  time.Time
}

// begin begins the next pause.
func (b *backoff) begin(now time.Time) {
	b.length = min(max(2*b.length, baseBackoff), maxPause)
	b.until = now.Add(jitter(b.length, now))
}

func (b *backoff) lasts(now time.Time) bool { return now.Before(b.until) }

// jitter returns a random part of d. It depends on the nanoseconds of the clock and not on a random
// number, so that a schedule in fake time can be replayed exactly.
func jitter(d time.Duration, now time.Time) time.Duration {
	x := uint64(now.UnixNano()) * 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return time.Duration((x ^ x>>31) % uint64(d))
}
