package sqlstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
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

type typed struct{} // as in github.com/ncruces/go-sqlite3

type typedErrorCode uint16

func (*typed) Error() string        { return "typed" }
func (*typed) Code() typedErrorCode { return 1205 }

func (typedErrorCode) Error() string { return "without a text" }

type named struct{ error }

func (named) Code() string    { return "1205" }
func (n named) Unwrap() error { return n.error }

func TestNumberOfAnErrorOfADriver(t *testing.T) {
	for _, err := range []error{coded{1205}, &numbered{Number: 1205}, fielded{1205}, new(typed), named{new(typed)}, typedErrorCode(1205), errors.Join(typedErrorCode(1205)), errors.Join(errors.New("first"), coded{1205})} {
		n, ok := number(err)
		if joined := strings.Contains(err.Error(), "first"); ok == joined || !joined && n != 1205 {
			t.Errorf("number(%v) = %d, %v", err, n, ok)
		}
	}
	for _, err := range []error{errors.New("connection refused"), syscall.ECONNREFUSED, tls.AlertError(40)} {
		if n, ok := number(err); ok {
			t.Errorf("%v has the code %d", err, n)
		}
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
		{mysqlError(&numbered{1041, "Out of memory"}), "more memory"},
		{mysqlError(&numbered{3024, "maximum statement execution time exceeded"}), "max_execution_time"},
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
		replicas int
		settings string // beside good ones, with the names of MySQL
		want     string // the details of the findings
	}{
		"good":           {1, "enabled=ON status=ON timeout=3600000 wait_no_replica=ON clients=1", ""},
		"alone":          {0, "enabled=OFF status=OFF timeout=10000 wait_no_replica=OFF clients=0", ""},
		"alone, without": {0, "", ""},
		"off":            {1, "enabled=OFF status=OFF timeout=10000 wait_no_replica=OFF clients=0", "it has 1 replica, and a commit waits for none: X_enabled is OFF"},
		"not a replica":  {1, "enabled=ON status=OFF timeout=3600000 wait_no_replica=ON clients=0", "it has 1 replica, and a commit waits for none: X_enabled is ON, but no replica takes part"},
		"not a replica, called on": {1, "enabled=ON status=ON timeout=3600000 wait_no_replica=OFF clients=0", "it has 1 replica, and a commit waits for none: X_enabled is ON, but no replica takes part\n" +
			"a commit waits for nobody once no replica is connected: X_wait_no_replica is OFF"},
		"not for long":         {1, "enabled=ON status=ON timeout=10000 wait_no_replica=ON clients=1", "a commit waits for a replica for 10s: X_timeout is 10000"},
		"not alone":            {1, "enabled=ON status=ON timeout=3600000 wait_no_replica=OFF clients=1", "a commit waits for nobody once no replica is connected: X_wait_no_replica is OFF"},
		"alone now":            {0, "enabled=ON status=OFF timeout=3600000 wait_no_replica=OFF clients=0", "a commit waits for nobody once no replica is connected: X_wait_no_replica is OFF"},
		"alone, waits":         {0, "enabled=ON status=ON timeout=3600000 wait_no_replica=ON clients=0", ""},
		"too late":             {2, "enabled=ON status=OFF timeout=3600000 wait_no_replica=ON clients=1", "a commit waits for no replica: X_status is OFF"},
		"too late, then alone": {0, "enabled=ON status=OFF timeout=3600000 wait_no_replica=ON clients=0", "a commit waits for no replica: X_status is OFF"},
		"too late, not for long": {1, "enabled=ON status=OFF timeout=10000 wait_no_replica=OFF clients=1", "a commit waits for no replica: X_status is OFF\n" +
			"a commit waits for a replica for 10s: X_timeout is 10000\na commit waits for nobody once no replica is connected: X_wait_no_replica is OFF"},
	} {
		for server, named := range map[string]*strings.Replacer{
			"MySQL":   strings.NewReplacer("X_", "rpl_semi_sync_source_"),
			"MariaDB": strings.NewReplacer("X_", "rpl_semi_sync_master_", "no_replica", "no_slave"),
		} {
			is := map[string]string{"read_only": "OFF", "autocommit": "ON", "innodb_flush_log_at_trx_commit": "1"}
			for _, setting := range strings.Fields(c.settings) {
				name, value, _ := strings.Cut(setting, "=")
				is[named.Replace("X_"+name)] = value
			}
			r := Report{Standbys: c.replicas}
			r.inMySQL(is, "InnoDB")
			var got []string
			for _, f := range r.Findings {
				got = append(got, f.Detail)
				if f.Problem != ProblemReplicas || f.Unsafe {
					t.Errorf("%s, %s: %v; want one about replicas, not unsafe", server, what, f)
				}
			}
			if got, want := strings.Join(got, "\n"), named.Replace(c.want); got != want {
				t.Errorf("%s, %s: %s; want %s", server, what, got, want)
			}
		}
	}
	r := Report{Standbys: 1}
	r.semiSynchronous(map[string]string{})
	if want := "it has 1 replica, and a commit waits for none: the plugin rpl_semi_sync_source is not installed"; len(r.Findings) != 1 || r.Findings[0].Detail != want {
		t.Errorf("no plugin: %v; want %q", r.Findings, want)
	}
}

// A file is no server: an error of a wait says "no answer from" and this.
func TestEndpointOfAFileSaysThatItIsOne(t *testing.T) {
	for addr, want := range map[string]string{"": "", "/srv/a b.db": "file /srv/a b.db", inMemory: ""} {
		if got := NewSQLite(nil, WithAddress(addr)).Endpoint(); got != want {
			t.Errorf("SQLite at %q: Endpoint() = %q; want %q", addr, got, want)
		}
	}
	if got := NewMySQL(nil, WithAddress("db:3306")).Endpoint(); got != "db:3306" {
		t.Errorf("MySQL: Endpoint() = %q; want db:3306", got)
	}
}

// Nothing can be mounted here, so a list of mounts of this test stands for one.
func TestAFileThatIsMountedByItselfIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, `my locks\.db`)
	list := filepath.Join(dir, "mountinfo")
	old := mounts
	mounts = list
	t.Cleanup(func() { mounts = old })
	for at, refused := range map[string]bool{path: true, dir: false, path + "2": false} {
		at = strings.ReplaceAll(strings.ReplaceAll(at, `\`, `\134`), " ", `\040`)
		text := "23 1 254:1 / / rw,relatime - ext4 /dev/vda rw\n99 23 254:1 /home/me/locks.db " + at + " rw,relatime - ext4 /dev/vda rw\n"
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.WriteFile(list, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := alone(path, info); (err != nil) != refused || err != nil && !strings.HasSuffix(err.Error(), "mount its folder instead") {
			t.Errorf("with %s mounted: %v; want it refused: %v", at, err, refused)
		}
	}
}
