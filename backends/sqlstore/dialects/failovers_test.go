package dialects_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// follow makes a server with an empty database follow another one, from its first change on.
func follow(t *testing.T, replica database, source *mariadbtest.Server) {
	t.Helper()
	host, port, _ := strings.Cut(source.Addr(), ":")
	change := "CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_USE_GTID=slave_pos"
	if isMySQL(t, replica) {
		change = "CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='root', GET_SOURCE_PUBLIC_KEY=1"
	}
	outside{t, replica}.exec(fmt.Sprintf(change, host, port))
	outside{t, replica}.exec("START REPLICA")
}

// A pair is a primary with a replica. A failover kills the primary.
type pair struct {
	t                *testing.T
	primary, replica *mariadbtest.Server
	made             int
	patience         time.Duration // how long a commit waits for the replica; 0: it does not
}

// startPair starts a pair in which a commit waits so long for the replica.
func startPair(t *testing.T, patience time.Duration) *pair {
	t.Helper()
	p := &pair{t: t, patience: patience}
	p.primary = p.server()
	p.follow()
	p.wait()
	return p
}

// server starts a server that can take either part.
func (p *pair) server() *mariadbtest.Server {
	p.t.Helper()
	p.made++
	s := mariadbtest.Start(p.t, "log-bin", "sync-binlog=1", "loose-log-slave-updates", fmt.Sprint("server-id=", p.made))
	if p.patience > 0 {
		db := p.dial(s)
		if db.mysql {
			db.exec("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
			db.exec("INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'")
		}
		db.set("replica_enabled", 1)
	}
	return s
}

// follow gives the primary a replica, and returns when that has all changes until now.
func (p *pair) follow() {
	p.t.Helper()
	p.replica = p.server()
	follow(p.t, p.dial(p.replica).db, p.primary)
	p.keepsUp()
}

// keepsUp returns when the replica has what the primary has.
func (p *pair) keepsUp() {
	p.t.Helper()
	primary, replica := p.dial(p.primary), p.dial(p.replica)
	eventually(p.t, "the replica keeps up", func() bool {
		of, is := primary.status("BINARY LOG", "MASTER"), replica.status("REPLICA", "REPLICA")
		file, position := is.first("Master_Log_File", "Source_Log_File"), is.first("Exec_Master_Log_Pos", "Exec_Source_Log_Pos")
		return of["File"] != "" && file == of["File"] && position == of["Position"]
	})
}

// wait makes commits of the primary wait for the replica.
func (p *pair) wait() {
	p.t.Helper()
	if p.patience > 0 {
		db := p.dial(p.primary)
		db.set("source_timeout", int(p.patience.Milliseconds()))
		db.set("source_enabled", 1)
	}
}

// failover lets the replica apply all that it was sent, makes it the primary, and leads the rivals to it.
func (p *pair) failover(c *rivals.Crew) {
	old := p.primary
	old.Kill()
	db := p.dial(p.replica)
	db.exec("STOP REPLICA IO_THREAD")
	eventually(p.t, "the replica has applied what it was sent", func() bool {
		is := db.status("REPLICA", "REPLICA")
		return is["Relay_Log_File"] != "" && is.first("Read_Master_Log_Pos", "Read_Source_Log_Pos") == is.first("Exec_Master_Log_Pos", "Exec_Source_Log_Pos")
	})
	db.exec("STOP REPLICA")
	db.exec("RESET REPLICA ALL")
	p.primary = p.replica
	p.wait()
	c.Lead(old.Addr(), p.primary.Addr())
	p.follow()
}

// admin is a server as its operator sees it.
type admin struct {
	outside
	mysql bool
}

func (p *pair) dial(s *mariadbtest.Server) admin {
	p.t.Helper()
	db := mariadb.dial(p.t, s.DSN())
	return admin{outside{p.t, db}, isMySQL(p.t, db)}
}

// set sets a variable of semi-synchronous replication.
func (a admin) set(name string, to int) {
	a.t.Helper()
	a.exec(fmt.Sprint("SET GLOBAL ", a.variable(name), " = ", to))
}

// variable is a variable of semi-synchronous replication, by its name in MySQL.
func (a admin) variable(name string) string {
	if !a.mysql {
		name = strings.NewReplacer("source", "master", "replica", "slave").Replace(name)
	}
	return "rpl_semi_sync_" + name
}

// status is what SHOW ... STATUS says, by its name in MySQL or that in MariaDB.
func (a admin) status(inMySQL, inMariaDB string) row {
	a.t.Helper()
	name := inMariaDB
	if a.mysql {
		name = inMySQL
	}
	rows, err := a.db.QueryContext(context.Background(), "SHOW "+name+" STATUS")
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		a.t.Fatal(err)
	}
	values, into := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	found := row{}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			a.t.Fatal(err)
		}
		for i, name := range names {
			found[name] = values[i].String
		}
	}
	if err := rows.Err(); err != nil {
		a.t.Fatal(err)
	}
	return found
}

type row map[string]string

func (r row) first(names ...string) string {
	for _, name := range names {
		if value, ok := r[name]; ok {
			return value
		}
	}
	return ""
}

func TestCampaignOfFailovers(t *testing.T) {
	full.Only(t)
	t.Parallel()
	// cutOff lets the rivals go on without the replica before a failover.
	cutOff := func(p *pair, goOn func(c *rivals.Crew)) rivals.Fault {
		return rivals.Fault{Name: "failover, replica cut off", Strike: func(c *rivals.Crew) {
			c.Holder()
			p.dial(p.replica).exec("STOP REPLICA IO_THREAD")
			goOn(c)
			p.failover(c)
		}}
	}
	oneMore := func(c *rivals.Crew) { c.More(1) } // which the replica does not have
	t.Run("semi-synchronous replica", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		p := startPair(t, time.Hour)
		c := campaign(t, p.primary, cutOff(p, func(c *rivals.Crew) { time.Sleep(c.TTL) }))
		c.Setting = "semi-synchronous replica"
		c.Run(t)
	})
	t.Run("semi-synchronous replica, given up after 1 s", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		p := startPair(t, time.Second)
		violated(t, "semi-synchronous replica, given up after 1 s", p.primary, cutOff(p, oneMore)).Run(t)
	})
	t.Run("asynchronous replica", func(t *testing.T) {
		rivals.TwoAtOnce(t)
		p := startPair(t, 0)
		violated(t, "asynchronous replica", p.primary, cutOff(p, oneMore)).Run(t)
	})
}
