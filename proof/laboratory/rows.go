package laboratory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/table"
	"github.com/redis/go-redis/v9"
)

// A Row is a strategy of the table, with its servers.
type Row struct {
	table.Promises
	Name    string
	About   string // what it is, unless the name says it
	servers int    // that it locks on
	quorum  int    // how many of them have to grant
	build   func(stores []*redisstore.Store, quorum int) (locker.Locker, error)
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

// rows are those of the table that one owner holds, each on some numbers of servers.
var rows = func() (all []Row) {
	for _, r := range table.Of(table.Laboratory) {
		switch {
		case r.Limited || r.RW:
		case r.Name == "redlock":
			strict := quorum(r, 5, 3)
			strict.Name, strict.strict = strict.Name+"-strict", true
			all = append(all, quorum(r, 3, 2), quorum(r, 5, 3), quorum(r, 5, 4), strict)
		case len(r.Sizes) > 0:
			all = append(all, quorum(r, 5, 3), quorum(r, 5, 4))
		default:
			all = append(all, onOne(r))
		}
	}
	return all
}()

// onOne is a row of the table on one server.
func onOne(r table.Row) Row {
	l := one(r.Name, func(s *redisstore.Store) locker.Locker { return table.Over(r, s, table.Setup{}) })
	l.Promises = r.Promises
	return l
}

func one(name string, build func(*redisstore.Store) locker.Locker) Row {
	return Row{Name: name, servers: 1, quorum: 1, build: func(stores []*redisstore.Store, _ int) (locker.Locker, error) {
		return build(stores[0]), nil
	}}
}

func quorum(r table.Row, servers, quorum int) Row {
	return Row{
		Name: fmt.Sprintf("%s-%d/%d", r.Name, servers, quorum), Promises: r.Promises, servers: servers, quorum: quorum,
		build: func(stores []*redisstore.Store, quorum int) (locker.Locker, error) {
			return table.New(r, stores, table.Setup{Quorum: quorum, NodeLimit: slow})
		},
	}
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
