package main

import (
	"context"
	"time"

	"github.com/redis/rueidis/rueidislock"
)

func openRueidislock(tuned bool) func(place) (*locks, error) {
	return func(p place) (*locks, error) {
		o := rueidislock.LockerOption{ClientOption: p.rueidisOption(0), KeyValidity: p.ttl}
		if tuned {
			// A waiter whose request is answered later than TryNextAfter sleeps for ever.
			o.KeyMajority, o.NoLoopTracking, o.TryNextAfter = 1, true, time.Second
		}
		l, err := rueidislock.NewLocker(o)
		if err != nil {
			return nil, err
		}
		return &locks{
			lock: func(ctx context.Context, key string) (unlock, error) {
				_, release, err := l.WithContext(ctx, key)
				if err != nil {
					return nil, err
				}
				return func(context.Context) error { release(); return nil }, nil // it returns no error
			},
			close: l.Close,
		}, nil
	}
}
