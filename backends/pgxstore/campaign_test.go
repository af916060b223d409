package pgxstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// The campaigns of PostgreSQL: rivals want the same locks while servers, connections and holders
// fail. A part of each runs in every test, and all of it with LOCKSTEP_TORTURE=1.
//
//	go test -run Campaign -v .

// openFor opens a store for a rival. If addr has two addresses, the first is that of a pooler, and
// messages come through the second.
func openFor(ctx context.Context, addr string) (backends.Store, func() error, error) {
	addr, direct, pooled := strings.Cut(addr, " ")
	config, err := pgxpool.ParseConfig(dsnOf(addr))
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = 20
	pgxstore.Configure(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	var opts []pgxstore.Option
	if pooled {
		opts = append(opts, pgxstore.WithListener(dsnOf(direct)))
	}
	return pgxstore.New(pool, opts...), func() error { pool.Close(); return nil }, nil
}

func dsnOf(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=disable", host, port)
}

func campaign(t *testing.T, server *pgtest.Server, faults ...rivals.Fault) rivals.Campaign {
	t.Helper()
	install(t, server.DSN())
	return rivals.Campaign{
		Brief: []rivals.Strategy{rivals.Fair, rivals.Fenced, rivals.ReadersAndWriters},
		Where: "PostgreSQL", Module: "backends/pgxstore", Open: openFor, TTL: time.Second, Faults: faults,
		Addr: func(via func(server string) string) string { return via(server.Addr()) },
	}
}

// violated is a campaign that must find violations.
func violated(t *testing.T, setting string, server *pgtest.Server, faults ...rivals.Fault) rivals.Campaign {
	t.Helper()
	c := campaign(t, server, faults...)
	c.Setting, c.Violated, c.Kept, c.TTL, c.Grants = setting, true, true, 15*time.Second, 1
	c.Strategies = []rivals.Strategy{rivals.Single, rivals.Fenced, rivals.Semaphore, rivals.ReadersAndWriters}
	c.Brief = c.Strategies[:1]
	return c
}

func TestCampaignOfServersAndConnectionsThatFail(t *testing.T) {
	rivals.TwoAtOnce(t)
	server := pgtest.Start(t)
	c := campaign(t, server, rivals.None, rivals.ServersKilled(server), rivals.ServersStopped(server), rivals.HoldersCutOff, rivals.ConnectionsReset)
	c.Brief = nil
	c.Run(t)
}

func TestCampaignOfHoldersThatFail(t *testing.T) {
	rivals.TwoAtOnce(t)
	c := campaign(t, pgtest.Start(t), rivals.HoldersKilled, rivals.HoldersStopped)
	c.Processes = true
	c.Run(t)
}

func TestCampaignBehindAPooler(t *testing.T) {
	rivals.TwoAtOnce(t)
	server := pgtest.Start(t)
	pooler := server.StartPooler(t)
	c := campaign(t, server, rivals.ServersKilled(server), rivals.Fault{Name: "pooler killed", Strike: func(c *rivals.Crew) {
		c.Holder()
		pooler.Kill()
		pooler.Restart()
	}})
	c.Setting = "behind a pooler"
	c.Addr = func(via func(server string) string) string { return via(pooler.Addr()) + " " + via(server.Addr()) }
	c.Run(t)
}

// What a server does not keep, a crash forgets. Here that is all, or what was committed last.
func TestCampaignOfServersThatForget(t *testing.T) {
	t.Parallel()
	t.Run("UNLOGGED", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		server := pgtest.Start(t)
		c := violated(t, "UNLOGGED", server, rivals.ServersKilled(server))
		pool := dial(t, server.DSN())
		for _, table := range []string{"hold", "lock"} {
			outside{t, pool}.exec("ALTER TABLE lockstep." + table + " SET UNLOGGED")
		}
		c.Run(t)
	})
	t.Run("synchronous_commit off", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		server := pgtest.Start(t, "synchronous_commit=off", "wal_writer_delay=10s")
		violated(t, "synchronous_commit off", server, rivals.ServersKilled(server)).Run(t)
	})
}

// A pair is a primary with a standby. A failover kills the primary.
type pair struct {
	t                *testing.T
	primary, standby *pgtest.Server
	synchronous      bool
}

func startPair(t *testing.T, synchronous bool) *pair {
	p := &pair{t: t, primary: pgtest.Start(t), synchronous: synchronous}
	p.follow()
	return p
}

// follow gives the primary a standby.
func (p *pair) follow() {
	p.standby = p.primary.Standby(p.t)
	pool := dial(p.t, p.primary.DSN())
	if p.synchronous {
		p.set("SET synchronous_standby_names = '*'")
	}
	eventually(p.t, "the standby follows", func() bool {
		var follows bool
		err := pool.QueryRow(p.t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND (sync_state = 'sync' OR NOT $1))",
			p.synchronous).Scan(&follows)
		return err == nil && follows
	})
}

// set changes a setting of the primary. This waits for no standby.
func (p *pair) set(what string) {
	pool := outside{p.t, dial(p.t, p.primary.DSN())}
	pool.exec("ALTER SYSTEM " + what)
	pool.exec("SELECT pg_reload_conf()")
}

// failover promotes the standby, leads the rivals to it, and gives it a standby of its own.
func (p *pair) failover(c *rivals.Crew) {
	old := p.primary
	old.Kill()
	p.standby.Promote()
	p.primary = p.standby
	if p.synchronous {
		p.set("RESET synchronous_standby_names") // it was copied with the rest
	}
	c.Lead(old.Addr(), p.primary.Addr())
}

func TestCampaignOfFailovers(t *testing.T) {
	t.Parallel()
	t.Run("synchronous standby", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		p := startPair(t, true)
		c := campaign(t, p.primary, rivals.Fault{Name: "failover", Strike: func(c *rivals.Crew) {
			c.Holder()
			p.failover(c)
			p.follow()
		}})
		c.Setting = "synchronous standby"
		c.Run(t)
	})
	t.Run("asynchronous standby", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		p := startPair(t, false)
		violated(t, "asynchronous standby", p.primary, rivals.Fault{Name: "failover, standby cut off", Strike: func(c *rivals.Crew) {
			p.standby.Stop()
			c.More(1) // which the standby does not have
			p.standby.Restart()
			p.failover(c)
			p.follow()
		}}).Run(t)
	})
}

func TestCampaignOfClocks(t *testing.T) {
	t.Parallel()
	t.Run("ahead", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		server := pgtest.StartWithMovableClock(t)
		violated(t, "", server, rivals.ServerClockAhead(server)).Run(t)
	})
	t.Run("back", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		server := pgtest.StartWithMovableClock(t)
		campaign(t, server, rivals.ServerClockBack(server)).Run(t)
	})
}
