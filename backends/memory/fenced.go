package memory

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// fence is the last number of a key.
type fence struct {
	last    uint64
	expires time.Time // zero: never
}

const fenceLimit = 1 << 53

func (f fence) expired(now time.Time) bool { return !f.expires.IsZero() && !now.Before(f.expires) }

// SetNXNumbered implements [backends.NumberedStore]. The number is the wall clock in µs since 1970,
// or the last number plus one if that is greater. The number is kept for [backends.FenceRetention].
func (s *Store) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return s.setInTurn(ctx, key, value, ttl, t, byClock)
}

// SetNXFenced implements [backends.FencedStore].
func (s *Store) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return s.setInTurn(ctx, key, value, ttl, backends.Turn{}, byCount)
}

// numbering says how to find the next number.
type numbering int

const (
	unnumbered numbering = iota
	byCount              // the last number plus one
	byClock              // the time in µs, or the last number plus one if that is greater
)

var errNumbersEnd = backends.Invalid("the numbers of the key have come to their end at 2^53")

// number returns the number of a grant. again says that the value was there before: it keeps its
// number. The mutex must be held.
func (s *Store) number(key string, again bool, n numbering, now time.Time) (uint64, error) {
	f, _ := s.fences.live(key, now)
	if !again || f.last == 0 { // 0 is no number
		f.last++
		if n == byClock {
			f.last = max(f.last, uint64(now.UnixMicro()))
		}
	}
	if f.last >= fenceLimit {
		return 0, errNumbersEnd
	}
	f.expires = time.Time{}
	if n == byClock {
		ahead := time.Duration(int64(f.last)-now.UnixMicro()) * time.Microsecond
		f.expires = now.Add(backends.FenceRetention + max(0, ahead))
	}
	s.fences.put(key, f, now)
	return f.last, nil
}

// RaiseFence implements [backends.FencedStore]. The counter then has no expiry, since its user
// counts grants.
func (s *Store) RaiseFence(ctx context.Context, key, value string, to uint64) (landed bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if to >= fenceLimit {
		return false, backends.Invalidf("number %d is not under 2^53", to)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found := s.entries.live(key, now)
	f, _ := s.fences.live(key, now)
	switch {
	case found && e.kind != text:
		return false, errWrongType
	case !found || e.value != value || f.last > to:
		return false, nil
	}
	s.fences.put(key, fence{last: to}, now)
	return true, nil
}
