package dialects_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// The campaigns of SQLite, and of MariaDB or MySQL: rivals want the same locks while servers,
// connections and holders fail. A part of those that must keep what is promised runs in every test,
// and all with LOCKSTEP_TORTURE=1.
//
//	go test -run Campaign -v .

// openFor opens a store for a rival: in a file, or at an address.
func openFor(_ context.Context, addr string) (backends.Store, func() error, error) {
	d, dsn := sqlite, addr
	if !strings.HasPrefix(addr, "file:") {
		d, dsn = mariadb, "root@tcp("+addr+")/test?interpolateParams=true"
	}
	db, err := sql.Open(d.driver, dsn)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(20)
	return d.open(db), db.Close, nil
}

func campaign(t *testing.T, server *mariadbtest.Server, faults ...rivals.Fault) rivals.Campaign {
	t.Helper()
	db := mariadb.dial(t, server.DSN())
	if err := sqlstore.InstallMySQL(trial.Patient(t), db.DB); err != nil {
		t.Fatal(err)
	}
	return rivals.Campaign{
		Brief: []rivals.Strategy{rivals.Fenced, rivals.Semaphore},
		Where: db.kind(t), Module: "backends/sqlstore/dialects", Open: openFor, TTL: time.Second, Faults: faults,
		Addr: func(via func(server string) string) string { return via(server.Addr()) },
	}
}

// violated is a campaign that must find violations. It strikes until it has, up to 20 times, which can take
// ten minutes beside other tests. So make test leaves it out.
func violated(t *testing.T, setting string, server *mariadbtest.Server, faults ...rivals.Fault) rivals.Campaign {
	t.Helper()
	c := campaign(t, server, faults...)
	c.Setting, c.Violated, c.Kept, c.TTL, c.Grants = setting, true, true, 15*time.Second, 1
	c.Strategies = []rivals.Strategy{rivals.Single, rivals.Fenced, rivals.Semaphore}
	c.Brief = c.Strategies[:1]
	return c
}

func TestCampaignOfServersAndConnectionsThatFail(t *testing.T) {
	rivals.TwoAtOnce(t)
	server := mariadbtest.Start(t)
	campaign(t, server, rivals.None, rivals.ServersKilled(server), rivals.ServersStopped(server), rivals.HoldersCutOff, rivals.ConnectionsReset).Run(t)
}

func TestCampaignOfHoldersThatFail(t *testing.T) {
	t.Parallel()
	t.Run("MariaDB", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		c := campaign(t, mariadbtest.Start(t), rivals.HoldersKilled, rivals.HoldersStopped)
		c.Processes = true
		c.Run(t)
	})
	t.Run("SQLite", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		file := sqlite.fresh(t).dsn
		rivals.Campaign{
			Brief: []rivals.Strategy{rivals.Fenced, rivals.Semaphore},
			Where: "SQLite", Module: "backends/sqlstore/dialects", Open: openFor, TTL: time.Second,
			Faults:    []rivals.Fault{rivals.None, rivals.HoldersKilled, rivals.HoldersStopped},
			Addr:      func(func(server string) string) string { return file },
			Processes: true,
		}.Run(t)
	})
}

// With 0 the log is written once a second, so a crash forgets what was granted last.
func TestCampaignOfServersThatForget(t *testing.T) {
	full.Only(t)
	rivals.TwoAtOnce(t)
	server := mariadbtest.Start(t, "innodb-flush-log-at-trx-commit=0")
	violated(t, "innodb_flush_log_at_trx_commit 0", server, rivals.ServersKilled(server)).Run(t)
}

// With 2 the log is synced once a second, so a power cut forgets what was granted last.
func TestCampaignOfPowerCuts(t *testing.T) {
	full.Only(t)
	t.Parallel()
	cut := func(server *mariadbtest.Server) rivals.Fault {
		return rivals.Fault{Name: "power cut", Strike: func(c *rivals.Crew) {
			c.Holder()
			server.CutPower()
			server.Restart()
		}}
	}
	t.Run("1", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		server := mariadbtest.StartWithVolatileDisk(t)
		c := campaign(t, server, cut(server))
		c.Setting = "innodb_flush_log_at_trx_commit 1"
		c.Run(t)
	})
	t.Run("2", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		server := mariadbtest.StartWithVolatileDisk(t, "innodb-flush-log-at-trx-commit=2")
		violated(t, "innodb_flush_log_at_trx_commit 2", server, cut(server)).Run(t)
	})
}

func TestCampaignOfClocks(t *testing.T) {
	t.Parallel()
	t.Run("ahead", func(t *testing.T) {
		full.Only(t)
		rivals.TwoAtOnce(t)
		server := mariadbtest.StartWithMovableClock(t)
		violated(t, "", server, rivals.ServerClockAhead(server)).Run(t)
	})
	t.Run("back", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		server := mariadbtest.StartWithMovableClock(t)
		campaign(t, server, rivals.ServerClockBack(server)).Run(t)
	})
}
