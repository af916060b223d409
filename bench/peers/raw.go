package main

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

var errNotHeld = errors.New("the lock was not held")

const (
	token      = "token"
	releaseLua = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

// openRawGoredis has the lowest cost of a safe lock on one server. It does not wait.
func openRawGoredis(p place) (*locks, error) {
	c := p.goredis(0)
	release := redis.NewScript(releaseLua)
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			set, err := c.SetNX(ctx, key, token, p.ttl).Result()
			if err != nil || !set {
				return nil, errors.Join(err, errNotHeld)
			}
			return func(ctx context.Context) error { return release.Run(ctx, c, []string{key}, token).Err() }, nil
		},
		close: func() { _ = c.Close() },
	}, nil
}

func openRawRueidis(p place) (*locks, error) {
	c, err := rueidis.NewClient(p.rueidisOption(0))
	if err != nil {
		return nil, err
	}
	release := rueidis.NewLuaScript(releaseLua)
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			if err := c.Do(ctx, c.B().Set().Key(key).Value(token).Nx().Px(p.ttl).Build()).Error(); err != nil {
				return nil, errors.Join(err, errNotHeld)
			}
			return func(ctx context.Context) error { return release.Exec(ctx, c, []string{key}, []string{token}).Error() }, nil
		},
		close: c.Close,
	}, nil
}

// openFIFO puts the goroutines of one process in a line, and each takes the lock from the server. A
// client that lets other processes in after every hold can be this fast.
func openFIFO(p place) (*locks, error) {
	raw, err := openRawGoredis(p)
	if err != nil {
		return nil, err
	}
	var line fifo
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			line.enter()
			release, err := raw.lock(ctx, key)
			if err != nil {
				line.leave()
				return nil, err
			}
			return func(ctx context.Context) error {
				defer line.leave()
				return release(ctx)
			}, nil
		},
		close: raw.close,
	}, nil
}

type fifo struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{}
}

func (f *fifo) enter() {
	f.mu.Lock()
	if !f.taken {
		f.taken = true
		f.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	f.waiting = append(f.waiting, turn)
	f.mu.Unlock()
	<-turn
}

func (f *fifo) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) == 0 {
		f.taken = false
		return
	}
	close(f.waiting[0])
	f.waiting = f.waiting[1:]
}

// openRawQuorum asks all nodes at once, with a goroutine for each, and goes on when three have
// answered: the lowest cost of a quorum with these clients.
func openRawQuorum(p place) (*locks, error) {
	clients := p.goredisEach()
	release := redis.NewScript(releaseLua)
	ask := func(question func(*redis.Client) error) error {
		answers := make(chan error, len(clients))
		for _, c := range clients {
			go func() { answers <- question(c) }()
		}
		for range len(clients)/2 + 1 {
			if err := <-answers; err != nil {
				return err
			}
		}
		return nil
	}
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			err := ask(func(c *redis.Client) error {
				set, err := c.SetNX(ctx, key, token, p.ttl).Result()
				if err == nil && !set {
					err = errNotHeld
				}
				return err
			})
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				return ask(func(c *redis.Client) error { return release.Run(ctx, c, []string{key}, token).Err() })
			}, nil
		},
		close: closing(clients),
	}, nil
}
