package sqlstore

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
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

type numbered struct{ Number uint16 } // as in github.com/go-sql-driver/mysql

func (n *numbered) Error() string { return "numbered" }

type fielded struct{ Code int } // as in github.com/mattn/go-sqlite3

func (f fielded) Error() string { return "fielded" }

func TestNumberOfAnErrorOfADriver(t *testing.T) {
	for _, err := range []error{coded{1205}, &numbered{1205}, fielded{1205}, errors.Join(errors.New("first"), coded{1205})} {
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
		if got := mysqlError(&numbered{code}).class; got != want {
			t.Errorf("error %d is of class %v; want %v", code, got, want)
		}
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
	r = Report{Standbys: 1}
	good["rpl_semi_sync_master_status"] = "ON"
	if r.inMySQL(good, "InnoDB"); len(r.Findings) != 0 {
		t.Errorf("a server with a semi-synchronous replica: %v", r.Findings)
	}
}
