package stores

import (
	"cmp"
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
)

// MySQL is a database of MySQL or MariaDB with the table lockstep_lock. The parameters of the URL are
// those of the DSN of github.com/go-sql-driver/mysql, such as tls; and ca, cert and key, which name files.
func MySQL() command.Family {
	return command.Family{
		Schemes: []string{"mysql", "mariadb"},
		Examples: []string{"mysql://user:password@host:3306/database?tls=true",
			"mysql://user@host:3306/database?ca=/etc/mysql/ca.pem&cert=/etc/mysql/client.pem&key=/etc/mysql/client-key.pem",
		},
		Open:  openMySQL,
		Terms: sqlTerms,
	}
}

func openMySQL(_ context.Context, text string, o command.Options) (*command.Store, error) {
	u, _, err := command.ParseURL(text)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	files, err := tlsOf(q)
	if err != nil {
		return nil, err
	}
	config, err := mysql.ParseDSN("tcp(" + u.Host + ")/" + strings.Trim(u.Path, "/") + "?" + q.Encode())
	if err != nil {
		return nil, err
	}
	if files != nil {
		files.ServerName = u.Hostname()
		config.TLS, config.TLSConfig = files, ""
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true
	config.ConnectionAttributes = named(config.ConnectionAttributes)
	config.Timeout = cmp.Or(config.Timeout, 5*time.Second)
	config.Logger = &mysql.NopLogger{} // the calls tell
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetConnMaxIdleTime(30 * time.Second) // a NAT forgets connections after a minute or more
	store := sqlstore.NewMySQL(db, append(sqlOptions(o), sqlstore.WithAddress(config.Addr))...)
	return &command.Store{
		Backend: store,
		Check: func(ctx context.Context) (command.Report, error) {
			r, err := store.Check(ctx)
			return command.Report{Server: r.Version, Findings: r.Findings, ClockSkew: r.ClockSkew}, err
		},
		Remedy:  remedyMySQL,
		Advise:  advise(adviseMySQL),
		Install: func(ctx context.Context) error { return sqlstore.InstallMySQL(ctx, db) },
		Schema:  sqlstore.MySQLSchema(),
		Close:   func() { _ = db.Close() }, // nothing is written that it could lose
	}, nil
}

// ownDB is the remedy for a pool of database/sql that is too small.
const ownDB = "give the locks a *sql.DB of their own, or SetMaxOpenConns(3) or more"

func remedyMySQL(f backends.Finding) string {
	set := func(setting string) string { return `mysql -e "SET GLOBAL ` + setting + `", and in my.cnf` }
	switch f.Problem {
	case sqlstore.ProblemInstall:
		return "lockstep install, as a user who may create a table"
	case sqlstore.ProblemRole:
		return "give the URL of the server that takes the writes"
	case sqlstore.ProblemClock:
		if strings.Contains(f.Detail, "sysdate") {
			return "remove sysdate-is-now from my.cnf, and restart"
		}
		if strings.Contains(f.Detail, "differs") {
			return "chronyc makestep on the host of the server, or on this one, while no lock is held"
		}
		return "send all locks to one server, then -allow clock"
	case sqlstore.ProblemPersistence:
		switch {
		case strings.HasPrefix(f.Detail, "the engine"):
			return `mysql DATABASE -e "ALTER TABLE lockstep_lock ENGINE = InnoDB"`
		case strings.HasPrefix(f.Detail, "innodb_doublewrite"):
			return "innodb_doublewrite = ON in my.cnf, and a restart"
		case strings.HasPrefix(f.Detail, "sync_binlog"):
			return set("sync_binlog = 1")
		}
		return set("innodb_flush_log_at_trx_commit = 1")
	case sqlstore.ProblemPool:
		return ownDB
	case sqlstore.ProblemTransactions:
		return "autocommit=true in the DSN of the programs, and " + set("autocommit = ON")
	case sqlstore.ProblemReplicas:
		if strings.HasPrefix(f.Detail, "binlog_format") {
			return set("binlog_format = ROW")
		}
		return semiSynchronous(f.Detail, set)
	case sqlstore.ProblemIsolation:
		name, _, _ := strings.Cut(f.Detail, " is ")
		return set(name + " = 'READ-COMMITTED'")
	}
	return ""
}

// semiSynchronous is the remedy for a finding about semi-synchronous replication, whose detail ends with the
// variable of the server and its value.
func semiSynchronous(detail string, set func(setting string) string) string {
	_, setting, _ := strings.Cut(detail, ": ")
	name, value, _ := strings.Cut(setting, " is ")
	switch {
	case value == "not installed":
		return `mysql -e "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'" (before 8.0.26, master for source), and rpl_semi_sync_replica on each replica`
	case strings.HasSuffix(value, "takes part"):
		replica := strings.NewReplacer("source", "replica", "master", "slave").Replace(name)
		return "on each replica " + set(replica+" = ON") + ", then STOP REPLICA and START REPLICA"
	case strings.HasSuffix(name, "_status"):
		return `on each replica mysql -e "SHOW REPLICA STATUS\G"`
	case strings.HasSuffix(name, "_timeout"):
		return set(name + " = 3600000")
	}
	return set(name+" = ON") + "; or show LOCKSTEP_FENCE to the resource"
}

// named gives the connections a name for operators, unless the user has named them.
func named(attributes string) string {
	const name = "program_name:"
	if strings.HasPrefix(attributes, name) || strings.Contains(attributes, ","+name) {
		return attributes
	}
	return strings.TrimPrefix(attributes+","+name+"lockstep", ",")
}
