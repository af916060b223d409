package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// fence is the last number that was given for a key.
type fence struct {
	last    uint64
	expires time.Time // zero: never
}

const fenceLimit = 1 << 53

func (f fence) expired(now time.Time) bool { return !f.expires.IsZero() && !now.Before(f.expires) }

// SetNXFenced implements [backends.FencedStore]. The store's time is the wall clock.
func (s *Store) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration, n backends.Numbering) (backends.Result, error) {
	if err := s.check(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	if n != backends.Count && n != backends.Clock {
		return backends.Result{}, refusal{fmt.Errorf("no such numbering: %d", n)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	res, again, err := s.grant(key, value, ttl, now)
	if err != nil || !res.OK {
		return res, err
	}
	f, _ := s.fences.live(key, now)
	if !again || f.last == 0 { // 0 is no number
		f.last++
		if n == backends.Clock {
			f.last = max(f.last, uint64(now.UnixMicro()))
		}
	}
	if f.last >= fenceLimit {
		delete(s.entries.rows, key)
		return backends.Result{}, refusal{errors.New("the numbers of the key have come to their end at 2^53")}
	}
	f.expires = time.Time{}
	if n == backends.Clock {
		ahead := time.Duration(int64(f.last)-now.UnixMicro()) * time.Microsecond
		f.expires = now.Add(backends.FenceRetention + max(0, ahead))
	}
	s.fences.put(key, f, now)
	res.Fence = f.last
	return res, nil
}

// RaiseFence implements [backends.FencedStore]. It leaves the counter without expiry, since who raises it counts.
func (s *Store) RaiseFence(ctx context.Context, key, value string, to uint64) (landed bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if to >= fenceLimit {
		return false, refusal{fmt.Errorf("number %d is not under 2^53", to)}
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
