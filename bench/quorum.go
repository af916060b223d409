package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	lockgoredis "github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// Three of five nodes are a quorum.
const (
	nodes = 5
	three = 3
)

// names gives each pair its own lock: the release may still be under way on some nodes when the
// next pair begins.
type names struct {
	prefix string
	n      atomic.Int64
}

func (n *names) next() string { return n.prefix + strconv.FormatInt(n.n.Add(1), 10) }

// rawQuorum asks all five nodes at once, with a goroutine for each, and goes on when three have
// answered: the lowest cost of a quorum with these clients.
func rawQuorum(clients []*redis.Client, key *names) func(context.Context) error {
	release := redis.NewScript(
		`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	ask := func(question func(*redis.Client) error) error {
		answers := make(chan error, nodes)
		for _, c := range clients {
			go func() { answers <- question(c) }()
		}
		for range three {
			if err := <-answers; err != nil {
				return err
			}
		}
		return nil
	}
	return func(ctx context.Context) error {
		key := key.next()
		err := ask(func(c *redis.Client) error {
			set, err := c.SetNX(ctx, key, "token", ttl).Result()
			if err == nil && !set {
				err = errNotHeld
			}
			return err
		})
		if err != nil {
			return err
		}
		return ask(func(c *redis.Client) error { return release.Run(ctx, c, []string{key}, "token").Err() })
	}
}

func lockstepQuorum(clients []*redis.Client, key *names) (func(context.Context) error, error) {
	all := make([]locker.Locker, len(clients))
	for i, c := range clients {
		all[i] = single.New(lockgoredis.New(c))
	}
	quorum, err := redlock.New(all)
	if err != nil {
		return nil, err
	}
	locks := locker.New(quorum, locker.WithTTL(ttl))
	return func(ctx context.Context) error {
		l, err := locks.Lock(ctx, key.next())
		if err != nil {
			return err
		}
		return l.Unlock(ctx)
	}, nil
}

func redsyncQuorum(clients []*redis.Client, key *names) func(context.Context) error {
	pools := make([]redsyncredis.Pool, len(clients))
	for i, c := range clients {
		pools[i] = goredis.NewPool(c)
	}
	locks := redsync.New(pools...)
	return func(ctx context.Context) error {
		m := locks.NewMutex(key.next(), redsync.WithExpiry(ttl))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		_, err := m.UnlockContext(ctx)
		return err
	}
}

// quorums prints the time of one lock and unlock on three of five servers.
func quorums(rounds int, pinned bool) error {
	var clients []*redis.Client
	for range nodes {
		server, err := lab.StartServer(pinned)
		if err != nil {
			return err
		}
		defer server.Kill()
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer client.Close()
		clients = append(clients, client)
	}
	plain, err := lockstepQuorum(clients, &names{prefix: "bench:lockstep:"})
	if err != nil {
		return err
	}
	canEnd, cancel := context.WithCancel(context.Background())
	defer cancel()
	never := context.Background()
	fmt.Printf("\nThe same on %d of %d servers, %d pairs each\n\n", three, nodes, rounds)
	return measure(rounds, []contender{
		{"raw, all at once, done at three", rawQuorum(clients, &names{prefix: "bench:raw:"}), never},
		{"raw again (A/A)", rawQuorum(clients, &names{prefix: "bench:again:"}), never},
		{"lockstep, ctx that can't end", plain, never},
		{"lockstep, cancellable ctx", plain, canEnd},
		{"redsync, ctx that can't end", redsyncQuorum(clients, &names{prefix: "bench:redsync:"}), never},
	})
}
