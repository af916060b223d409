package dialects_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Twenty programs start at once and wait for one migration, on a server with 30 connections. The migration
// opens a connection too, as in a service. Each program has a name, by which the operator counts its connections.
//
// It runs beside no other test of this package: an attempt that has no answer for two seconds is followed by one on
// another connection, which is no fault.
func TestTwentyProgramsThatWaitHaveOneConnectionEach(t *testing.T) {
	const programs, slots = 20, 30
	server := mariadbtest.Start(t, "innodb-flush-log-at-trx-commit=2", "performance-schema=ON", fmt.Sprint("max-connections=", slots+1))
	named := func(name string) database {
		db := mariadb.dial(t, server.DSN()+"?interpolateParams=true&connectionAttributes=program_name:"+name)
		db.SetMaxIdleConns(1) // a program that has released keeps one
		return db
	}
	operator := named("operator")
	operator.SetMaxOpenConns(1)
	if err := mariadb.install(t.Context(), operator.DB); err != nil {
		t.Fatal(err)
	}
	first, err := locker.New(single.New(named("holder").store()), locker.WithTTL(patience)).Lock(t.Context(), "migration")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var migrations atomic.Int64
	for i := range programs {
		db := named(fmt.Sprint("program", i))
		locks := locker.New(single.New(db.store()), locker.WithTTL(patience))
		all.Go(func() {
			err := locks.Do(t.Context(), "migration", func(ctx context.Context, _ *locker.Lock) error {
				c, err := sql.Open("mysql", server.DSN())
				if err != nil {
					return err
				}
				defer func() { _ = c.Close() }()
				_, err = c.ExecContext(ctx, "SELECT SLEEP(0.05)")
				return err
			}, locker.WithWait(2*patience))
			if err != nil {
				t.Errorf("%v; the connections are %v", err, connections(t, operator))
				return
			}
			migrations.Add(1)
		})
	}
	eventually(t, "each program has one connection", func() bool { return fmt.Sprint(connections(t, operator)) == fmt.Sprint(one(programs)) })
	if err := first.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	all.Wait()
	if n := migrations.Load(); n != programs {
		t.Errorf("%d of %d migrations succeeded", n, programs)
	}
}

// one is the connections of so many programs.
func one(programs int) map[string]int {
	all := map[string]int{}
	for i := range programs {
		all[fmt.Sprint("program", i)] = 1
	}
	return all
}

// connections counts those of clients by name, but for the operator's and the holder's.
func connections(t *testing.T, operator database) map[string]int {
	t.Helper()
	rows, err := operator.QueryContext(t.Context(), `SELECT COALESCE(attr_value, ''), COUNT(*) FROM information_schema.processlist
		LEFT JOIN performance_schema.session_connect_attrs ON processlist_id = id AND attr_name = 'program_name'
		WHERE command <> 'Daemon' AND user <> 'system user' AND user <> 'event_scheduler' GROUP BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	names := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		names[name] = n
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	delete(names, "operator")
	delete(names, "holder")
	return names
}
