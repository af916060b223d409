package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/redis/go-redis/v9"
)

// missed is the sleep of a waiter that is not woken.
const missed = time.Second

// openPubSub wakes all waiters at each release. No way to wake one waiter is quicker.
func openPubSub(p place) (*locks, error) {
	c := p.goredis(0)
	release := redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return redis.call('PUBLISH', KEYS[1] .. ':wake', '')`)
	s := &subscriptions{client: c, wakes: map[string]chan struct{}{}}
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			mine := contract.NewToken()
			for {
				if set, err := c.SetNX(ctx, key, mine, p.ttl).Result(); err != nil {
					return nil, err
				} else if set {
					return func(ctx context.Context) error { return release.Run(ctx, c, []string{key}, mine).Err() }, nil
				}
				wake, fresh, err := s.to(ctx, key+":wake")
				if err != nil {
					return nil, err
				}
				if fresh {
					continue // it may have been released before we listened
				}
				select {
				case <-wake:
				case <-time.After(missed):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		},
		close: s.close,
	}, nil
}

// subscriptions of one client. They stay open.
type subscriptions struct {
	client *redis.Client

	mu    sync.Mutex
	wakes map[string]chan struct{}
	open  []*redis.PubSub
}

func (s *subscriptions) to(ctx context.Context, channel string) (wake <-chan struct{}, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.wakes[channel]; ok {
		return known, false, nil
	}
	sub := s.client.Subscribe(ctx, channel)
	s.open = append(s.open, sub)
	if _, err := sub.Receive(ctx); err != nil {
		return nil, false, err
	}
	heard := make(chan struct{}, 1)
	s.wakes[channel] = heard
	go func() {
		for {
			if _, err := sub.ReceiveMessage(context.Background()); err != nil {
				return
			}
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	}()
	return heard, true, nil
}

func (s *subscriptions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.open {
		_ = sub.Close()
	}
	_ = s.client.Close()
}

// openBLPOP wakes one waiter: the server serves waiters in the order of their requests.
func openBLPOP(p place) (*locks, error) {
	c := p.goredis(0)
	release := redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('RPUSH', KEYS[2], '') end
return 1`)
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			mine, wake := contract.NewToken(), key+":wake"
			for {
				if set, err := c.SetNX(ctx, key, mine, p.ttl).Result(); err != nil {
					return nil, err
				} else if set {
					return func(ctx context.Context) error { return release.Run(ctx, c, []string{key, wake}, mine).Err() }, nil
				}
				if err := c.BLPop(ctx, missed, wake).Err(); err != nil && !errors.Is(err, redis.Nil) {
					return nil, err
				}
			}
		},
		close: func() { _ = c.Close() },
	}, nil
}
