package sqlstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
)

// No network file system can be mounted here, so the type of the file system of a folder of this test
// stands for one.
func TestANetworkFileSystemIsRecognized(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the type of a file system")
	}
	file := filepath.Join(t.TempDir(), "locks.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if kind := networkFileSystem(file); kind != "" {
		t.Skipf("the folder for tests is on %s", kind)
	}
	standIn(t, file, "a stand-in")
	if kind := networkFileSystem(file); kind != "a stand-in" {
		t.Errorf("the file is on %q; want a stand-in", kind)
	}
}

type coded struct{ code int }

func (c coded) Error() string { return "coded" }
func (c coded) Code() int     { return c.code }

type numbered struct { // as in github.com/go-sql-driver/mysql
	Number uint16
	text   string
}

func (n *numbered) Error() string { return n.text }

type fielded struct{ Code int } // as in github.com/mattn/go-sqlite3

func (f fielded) Error() string { return "fielded" }

func TestNumberOfAnErrorOfADriver(t *testing.T) {
	for _, err := range []error{coded{1205}, &numbered{Number: 1205}, fielded{1205}, errors.Join(errors.New("first"), coded{1205})} {
		n, ok := number(err)
		if joined := strings.Contains(err.Error(), "first"); ok == joined || !joined && n != 1205 {
			t.Errorf("number(%v) = %d, %v", err, n, ok)
		}
	}
	if n, ok := number(errors.New("connection refused")); ok {
		t.Errorf("an error without a code has the code %d", n)
	}
}

func TestTheClassesOfErrorsOfMySQL(t *testing.T) {
	for code, want := range map[uint16]class{1213: raced, 1062: raced, 1205: notDone, 1290: notDone, 1146: permanentClass, 1142: permanentClass, 2013: unknown} {
		if got := mysqlError(&numbered{Number: code, text: "the server is running with the --read-only option"}).class; got != want {
			t.Errorf("error %d is of class %v; want %v", code, got, want)
		}
	}
	for _, option := range []string{"--skip-grant-tables", "--secure-file-priv"} {
		if e := mysqlError(&numbered{1290, "running with the " + option + " option"}); !e.Permanent() || strings.Contains(e.Error(), "replica") {
			t.Errorf("%v is not permanent", e)
		}
	}
}

type stated struct{ state, text string }

func (s stated) Error() string    { return s.text }
func (s stated) SQLState() string { return s.state }

// An error says what to do, by what has gone wrong. want is empty if there is no next step.
func TestErrorsOfDatabasesNameTheNextStep(t *testing.T) {
	const missing, grants, install = "call Install once", "sqlstore.PostgreSQLGrants", "CREATE on the database"
	for _, c := range []struct {
		e    *StatementError
		want string
	}{
		{postgresqlError(stated{"3F000", `schema "lockstep" does not exist`}), missing},
		{postgresqlError(stated{"42704", `type "lockstep.grant" does not exist`}), missing},
		{postgresqlError(fmt.Errorf("user=lockstep: %w", stated{"42704", `unrecognized configuration parameter "nosuch"`})), "settings in the connection string"},
		{postgresqlError(stated{"42501", "permission denied for schema lockstep"}), grants},
		{ofInstall(postgresqlError(stated{"42501", "permission denied for database lockstep"})).(*StatementError), install},
		{postgresqlError(stated{"25006", "cannot execute UPDATE in a read-only transaction"}), "default_transaction_read_only"},
		{postgresqlError(stated{"25006", "cannot execute UPDATE in a read-only transaction"}), "standby"},
		{postgresqlError(stated{"3D000", `database "nowhere" does not exist`}), "create the database"},
		{mysqlError(&numbered{1290, "running with the --read-only option"}), "set read_only to OFF"},
		{mysqlError(&numbered{1836, "Running in read-only mode"}), "set read_only to OFF"},
		{mysqlError(&numbered{1792, "Cannot execute statement in a READ ONLY transaction"}), "transaction_read_only"},
		{mysqlError(&numbered{1290, "running with the --secure-file-priv option"}), ""},
		{mysqlError(&numbered{1142, "INSERT command denied"}), "SELECT, INSERT"},
		{ofInstall(mysqlError(&numbered{1142, "CREATE command denied"})).(*StatementError), "CREATE and ALTER"},
		{sqliteError(coded{8}), "mode=ro"},
		{sqliteError(coded{14}), "no such file"},
		{sqliteError(coded{13}), "disk is full"},
		{sqliteError(coded{26}), "another file"},
	} {
		if !strings.Contains(c.e.next, c.want) || c.want == "" && c.e.next != "" {
			t.Errorf("%v; want %q", c.e, c.want)
		}
	}
}

func TestAnErrorTellsItsOutcomeOnce(t *testing.T) {
	e := sqliteError(backends.NotSent(coded{14}))
	if text := e.Error(); strings.Count(text, "nothing was") != 1 || !strings.Contains(text, "nothing was sent: there is") {
		t.Error(text)
	}
}

// The servers of these findings can't be had here.
func TestFindingsAboutClusters(t *testing.T) {
	good := map[string]string{"read_only": "OFF", "autocommit": "ON", "innodb_flush_log_at_trx_commit": "1"}
	for what, settings := range map[string]map[string]string{
		"Galera":            {"wsrep_on": "ON"},
		"group replication": {"group_replication_group_name": "g", "group_replication_single_primary_mode": "OFF"},
	} {
		for name, value := range good {
			settings[name] = value
		}
		var r Report
		r.inMySQL(settings, "InnoDB")
		if r.Err() == nil || r.Err(ProblemClock) != nil || len(r.Findings) != 1 {
			t.Errorf("%s: %v; want one unsafe finding about clocks", what, r.Findings)
		}
	}
	var r Report
	r.inMySQL(good, "InnoDB")
	if len(r.Findings) != 0 {
		t.Errorf("a good server: %v", r.Findings)
	}
}

// The variables have the names of the server that was asked.
func TestFindingsAboutReplicasOfMySQL(t *testing.T) {
	for what, c := range map[string]struct {
		settings string // beside good ones
		want     string // the detail of the one finding; empty: there is none
	}{
		"MariaDB":               {"rpl_semi_sync_master_enabled=ON rpl_semi_sync_master_status=ON rpl_semi_sync_master_timeout=3600000 rpl_semi_sync_master_wait_no_slave=ON", ""},
		"MySQL":                 {"rpl_semi_sync_source_enabled=ON rpl_semi_sync_source_status=ON rpl_semi_sync_source_timeout=3600000 rpl_semi_sync_source_wait_no_replica=ON", ""},
		"MariaDB, off":          {"rpl_semi_sync_master_enabled=OFF rpl_semi_sync_master_status=OFF", "1 replicas are connected, and a commit waits for none: rpl_semi_sync_master_enabled is OFF"},
		"MySQL, off":            {"rpl_semi_sync_source_enabled=OFF rpl_semi_sync_source_status=OFF", "1 replicas are connected, and a commit waits for none: rpl_semi_sync_source_enabled is OFF"},
		"MySQL, no plugin":      {"", "1 replicas are connected, and a commit waits for none: the plugin rpl_semi_sync_source is not installed"},
		"MySQL, not a replica":  {"rpl_semi_sync_source_enabled=ON rpl_semi_sync_source_status=OFF", "1 replicas are connected, and a commit waits for none: rpl_semi_sync_source_enabled is ON, but no replica takes part"},
		"MariaDB, not for long": {"rpl_semi_sync_master_enabled=ON rpl_semi_sync_master_status=ON rpl_semi_sync_master_timeout=10000", "a commit waits for a replica for 10s: rpl_semi_sync_master_timeout is 10000"},
		"MySQL, not for long":   {"rpl_semi_sync_source_enabled=ON rpl_semi_sync_source_status=ON rpl_semi_sync_source_timeout=10000", "a commit waits for a replica for 10s: rpl_semi_sync_source_timeout is 10000"},
		"MariaDB, not alone":    {"rpl_semi_sync_master_enabled=ON rpl_semi_sync_master_status=ON rpl_semi_sync_master_wait_no_slave=OFF", "a commit waits for nobody once no replica is connected: rpl_semi_sync_master_wait_no_slave is OFF"},
		"MySQL, not alone":      {"rpl_semi_sync_source_enabled=ON rpl_semi_sync_source_status=ON rpl_semi_sync_source_wait_no_replica=OFF", "a commit waits for nobody once no replica is connected: rpl_semi_sync_source_wait_no_replica is OFF"},
	} {
		is := map[string]string{"read_only": "OFF", "autocommit": "ON", "innodb_flush_log_at_trx_commit": "1"}
		for _, setting := range strings.Fields(c.settings) {
			name, value, _ := strings.Cut(setting, "=")
			is[name] = value
		}
		r := Report{Standbys: 1}
		r.inMySQL(is, "InnoDB")
		switch {
		case c.want == "" && len(r.Findings) == 0:
		case c.want == "" || len(r.Findings) != 1 || r.Findings[0].Detail != c.want || r.Findings[0].Problem != ProblemReplicas || r.Err() != nil:
			t.Errorf("%s: %v; want %q alone, not unsafe", what, r.Findings, c.want)
		}
	}
}
