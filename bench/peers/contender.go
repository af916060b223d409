package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// A contender is one way to lock.
type contender struct {
	name    string
	kind    kind
	options string // in the words of its library
	open    func(place) (*locks, error)
}

type kind int

const (
	reference kind = iota // the possible cost of a lock
	peer
	ours
)

// place has the servers of a contender, and the options of its client.
type place struct {
	addrs   []string
	ttl     time.Duration
	waiters int           // callers that want one key at once, for contenders that poll
	permits int           // of each key, for semaphores
	sent    *atomic.Int64 // counts the commands that its connections send; nil: they are not counted

	// Options of go-redis; 0 and false are its defaults.
	poolSize       int
	contextTimeout bool
}

// locks is an open client with its own connections, as one process has it.
type locks struct {
	// lock waits until key is free. A reference that does not wait returns an error if it is held.
	lock  func(ctx context.Context, key string) (unlock, error)
	write func(ctx context.Context, key string) (unlock, error) // where lock admits readers; nil for most
	pairs func(ctx context.Context, n int) error                // takes and releases n locks at once; nil for most
	fill  func(key string, n int) error                         // takes n permits, if that is quicker than with lock
	elect elect                                                 // for elections; then nothing else is set
	close func()
}

type unlock func(context.Context) error

// The names in the musts.
const (
	plain       = "lockstep"
	overRueidis = "lockstep over rueidis"
	handing     = "lockstep, WithMaxHandovers(64)"
	ofFive      = "lockstep, redlock"

	ofFiveRueidis = "lockstep, redlock over rueidis"
)

// The rows. To add a way to lock with Lockstep, add one line here.
var (
	lockstepOnOne = []contender{
		{plain, ours, "goredis.New(redis.NewClient(Addr), WithMaxTTL), single.New, locker.WithTTL", lockstepGoredis()},
		{overRueidis, ours,
			"rueidisstore.New(rueidis.NewClient(InitAddress, ForceSingleClient), WithMaxTTL), single.New, locker.WithTTL", lockstepRueidis},
	}
	lockstepOneClient = []contender{ // if the goroutines of one Client want one key
		{handing, ours, "as lockstep, with locker.WithMaxHandovers(64)", lockstepGoredis(locker.WithMaxHandovers(64))},
	}
	lockstepOnFive = []contender{
		{ofFive, ours, "redlock.New of 5 × single.New(goredis.New(redis.NewClient(Addr), WithMaxTTL)), locker.WithTTL", lockstepRedlock},
		{ofFiveRueidis, ours,
			"redlock.New of 5 × single.New(rueidisstore.New(…, WithMaxTTL)), locker.WithTTL", lockstepRedlockRueidis},
	}

	rawGoredis = contender{"raw go-redis", reference,
		"redis.NewClient(Addr): SET NX PX, then GET and DEL by EVALSHA", openRawGoredis}
	rawRueidis = contender{"raw rueidis", reference,
		"rueidis.NewClient(InitAddress, ForceSingleClient): the same", openRawRueidis}
	inProcess = contender{"in-process FIFO over raw go-redis", reference,
		"goroutines stand in line in the process, and each sends the raw commands", openFIFO}
	bareWake = contender{"bare pub/sub wake + SET", reference,
		"raw go-redis whose script publishes; who is refused subscribes once, and sends SET at each message, or after 1 s", openPubSub}
	popWake = contender{"BLPOP wake + SET", reference,
		"raw go-redis whose script pushes one element; who is refused sends BLPOP with a limit of 1 s, then SET", openBLPOP}
	rawQuorum = contender{"raw, done at 3 of 5", reference,
		"5 × redis.NewClient(Addr): the raw commands to all at once, a goroutine each", openRawQuorum}

	// peersOnFree lock keys that no other contender wants. Only the commands that they send matter.
	peersOnFree = []contender{
		{"redislock", peer, "redislock.New(redis.NewClient(Addr))", openRedislock(nil)},
		{"redsync", peer, "goredis.NewPool(redis.NewClient(Addr)), WithExpiry", openRedsync(overGoredis)},
		{"redsync over rueidis", peer,
			"rueidis.NewPool(rueidiscompat.NewAdapter(rueidis.NewClient(InitAddress, ForceSingleClient))), WithExpiry",
			openRedsync(overRueidisPools)},
		rueidislockAsItIs, rueidislockTuned,
	}
	// peersThatWait have their default options, or tuned ones. A call that ends without the lock is
	// repeated.
	peersThatWait = []contender{
		{"redislock", peer, "LinearBackoff(100ms), as in its README", openRedislock(fixed(100 * time.Millisecond))},
		{"redislock, tuned", peer, "LinearBackoff: 1 ms, from 100 waiters on 5 ms", openRedislock(tuned)},
		{"redsync", peer, "WithExpiry; by default 32 tries and pauses of 50 to 250 ms", openRedsync(overGoredis)},
		{"redsync, tuned", peer,
			"WithExpiry, WithTries(1e6), WithRetryDelay: 1 ms, from 100 waiters on 5 ms", openRedsyncTuned},
		rueidislockAsItIs, rueidislockTuned,
	}
	rueidislockAsItIs = contender{"rueidislock", peer,
		"KeyValidity: the TTL; by default KeyMajority 2, TryNextAfter 20 ms", openRueidislock(false)}
	rueidislockTuned = contender{"rueidislock, tuned", peer,
		"KeyValidity, KeyMajority 1, NoLoopTracking, TryNextAfter 1 s", openRueidislock(true)}

	// redsyncInTime has a client that ends a call with its ctx, for the case with a node that
	// hangs.
	redsyncInTime = contender{"redsync, ContextTimeoutEnabled", peer,
		"5 × goredis.NewPool(redis.NewClient(Addr, ContextTimeoutEnabled)), WithExpiry", func(p place) (*locks, error) {
			p.contextTimeout = true
			return openRedsync(overGoredis)(p)
		}}

	peersOnFive = []contender{
		{"redsync", peer, "5 × goredis.NewPool(redis.NewClient(Addr)), WithExpiry", openRedsync(overGoredis)},
		{"redsync, fail-fast", peer, "the same, WithFailFast(true)", openRedsyncFast(overGoredis)},
		{"redsync over rueidis, fail-fast", peer,
			"5 × rueidis.NewPool(…), WithExpiry, WithFailFast(true)", openRedsyncFast(overRueidisPools)},
	}
)

// pause is the sleep between two polls, by the number of waiters.
type pause func(waiters int) time.Duration

func fixed(d time.Duration) pause { return func(int) time.Duration { return d } }

// tuned pauses are the shortest that help. Shorter ones only load the server with attempts that
// fail.
func tuned(waiters int) time.Duration {
	if waiters >= 100 {
		return 5 * time.Millisecond
	}
	return time.Millisecond
}

// Suffixes for the names of variants of a contender.
const (
	perCall = ", ctx per call"
	pool64  = ", PoolSize 64"
)

// eachPerCall returns variants in which each pair of Lock and Unlock has its own ctx. It can be
// cancelled, like the ctx of a request.
func eachPerCall(all ...contender) []contender {
	return variants(all, perCall, "each pair with a ctx from context.WithCancel", func(c contender) func(place) (*locks, error) {
		return func(p place) (*locks, error) {
			l, err := c.open(p)
			if err != nil {
				return nil, err
			}
			lock := l.lock
			l.lock = func(ctx context.Context, key string) (unlock, error) {
				ctx, cancel := context.WithCancel(ctx)
				release, err := lock(ctx, key)
				if err != nil {
					cancel()
					return nil, err
				}
				return func(context.Context) error {
					defer cancel()
					return release(ctx)
				}, nil
			}
			return l, nil
		}
	})
}

// eachPool64 returns variants with one go-redis connection for each goroutine.
func eachPool64(all ...contender) []contender {
	return variants(all, pool64, "PoolSize: 64", func(c contender) func(place) (*locks, error) {
		return func(p place) (*locks, error) {
			p.poolSize = 64
			return c.open(p)
		}
	})
}

func variants(all []contender, suffix, options string, open func(contender) func(place) (*locks, error)) []contender {
	all = slices.Clone(all)
	for i, c := range all {
		all[i].name, all[i].options, all[i].open = c.name+suffix, "as "+c.name+", "+options, open(c)
	}
	return all
}

// named returns the contenders with these names.
func named(all []contender, names ...string) (some []contender) {
	for _, c := range all {
		if slices.Contains(names, c.name) {
			some = append(some, c)
		}
	}
	return some
}

const aa = ", again (A/A)"

// again is the same contender once more. The distance between the two is the noise.
func again(c contender) contender {
	c.name += aa
	c.kind, c.options = reference, "the same code"
	return c
}

// openNamed opens the client of the contender with this name, in a separate process.
func openNamed(name string, p place) (*locks, error) {
	return openOf(slices.Concat(lockstepOnOne, peersThatWait, []contender{bareWake, popWake}), name, p)
}

func openOf(all []contender, name string, p place) (*locks, error) {
	name = strings.TrimSuffix(name, aa)
	for _, c := range all {
		if c.name == name {
			return c.open(p)
		}
	}
	return nil, fmt.Errorf("no contender is named %q", name)
}
