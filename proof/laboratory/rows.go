package laboratory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// A Row is a strategy of the table, with its servers.
type Row struct {
	Name    string
	About   string // what it is, unless the name says it
	servers int    // that it locks on
	quorum  int    // how many of them have to grant
	build   func(stores []*redisstore.Store, quorum int) (locker.Locker, error)
	endless bool // what a dead owner leaves is there for ever, so that there is no lock of one that died to take over
	strict  bool // quarantine holds every server back that was started a short time ago

	// Of the second table:
	most  int                                                                      // holders at once of the side that is not alone; anyNumber: any
	pair  func(s *redisstore.Store, c *redis.Client) (beside, alone locker.Locker) // in place of build
	isJob bool
	job   []locker.Option // of its lock
	run   run             // nil: there is no leader
}

// strictTTL is the longest TTL where quarantine is strict, and so how long a server must have been up.
const strictTTL = 6 * time.Second

// quarantine is off in most rows, to show what a restart does without it. Leave it on in production.
func (r Row) quarantine() redisstore.Option {
	if r.strict {
		return redisstore.WithQuarantine(strictTTL)
	}
	return redisstore.WithoutQuarantine()
}

// long is the TTL of a lease that must not end during a scenario.
func (r Row) long() time.Duration {
	if r.strict {
		return strictTTL
	}
	return long
}

// awake waits until quarantine holds no server back.
func (r Row) awake(ctx context.Context, servers []server) error {
	if !r.strict {
		return nil
	}
	for _, s := range servers {
		client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
		defer client.Close()
		for {
			info, err := client.InfoMap(ctx, "server").Result()
			if _, refused := errors.AsType[redis.Error](err); err != nil && !refused {
				return err
			}
			up, err := strconv.Atoi(info["Server"]["uptime_in_seconds"])
			if err != nil {
				return fmt.Errorf("strict quarantine needs servers that tell their uptime, and embedded ones do not: %w", errNotHere)
			}
			if time.Duration(up)*time.Second > strictTTL {
				break
			}
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// GetSet counts milliseconds here, so that nobody has to wait for its whole seconds.
var rows = []Row{
	one("single", func(s *redisstore.Store) locker.Locker { return single.New(s) }),
	one("fair", func(s *redisstore.Store) locker.Locker { return fair.New(s) }),
	one("fenced", func(s *redisstore.Store) locker.Locker { return fenced.New(s) }),
	one("reentrant", func(s *redisstore.Store) locker.Locker { return reentrant.New(s) }),
	{Name: "redlock-3/2", servers: 3, quorum: 2, build: plain},
	{Name: "redlock-5/3", servers: 5, quorum: 3, build: plain},
	{Name: "redlock-5/4", servers: 5, quorum: 4, build: plain},
	{Name: "redlock-5/3-strict", servers: 5, quorum: 3, build: plain, strict: true},
	{Name: "redlock-fenced-5/3", servers: 5, quorum: 3, build: numbered},
	{Name: "redlock-fenced-5/4", servers: 5, quorum: 4, build: numbered},
	one("legacy-getset", func(s *redisstore.Store) locker.Locker { return legacy.GetSet(s, legacy.InMilliseconds()) }),
	one("legacy-expire", func(s *redisstore.Store) locker.Locker { return legacy.Expire(s) }),
	endless(one("legacy-setbit", func(s *redisstore.Store) locker.Locker { return legacy.SetBit(s) })),
	endless(one("legacy-getbit", func(s *redisstore.Store) locker.Locker { return legacy.GetBit(s) })),
}

func one(name string, build func(*redisstore.Store) locker.Locker) Row {
	return Row{Name: name, servers: 1, quorum: 1, build: func(stores []*redisstore.Store, _ int) (locker.Locker, error) {
		return build(stores[0]), nil
	}}
}

func endless(r Row) Row {
	r.endless = true
	return r
}

func plain(stores []*redisstore.Store, quorum int) (locker.Locker, error) {
	nodes := make([]locker.Locker, len(stores))
	for i, s := range stores {
		nodes[i] = single.New(s)
	}
	return redlock.New(nodes, redlock.WithQuorum(quorum), redlock.WithNodeLimit(slow))
}

func numbered(stores []*redisstore.Store, quorum int) (locker.Locker, error) {
	nodes := make([]backends.FencedStore, len(stores))
	for i, s := range stores {
		nodes[i] = s
	}
	return redlock.NewFenced(nodes, redlock.WithQuorum(quorum), redlock.WithNodeLimit(slow))
}

// RowNames returns the names of all rows.
func RowNames() (names []string) {
	for _, t := range tables {
		for _, r := range *t.rows {
			names = append(names, r.Name)
		}
	}
	return names
}

func rowNamed(name string) (Row, bool) {
	for _, t := range tables {
		for _, r := range *t.rows {
			if r.Name == name {
				return r, true
			}
		}
	}
	return Row{}, false
}
