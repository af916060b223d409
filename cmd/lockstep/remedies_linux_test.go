//go:build linux

package main

import (
	"database/sql"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/nats-io/nats-server/v2/server"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// remedied asks for a finding whose remedy has a text. Only for a server that nobody hears of may doctor
// advise to start it.
func remedied(t *testing.T, kind, store, problem, remedy string) {
	t.Helper()
	d := doctor(t, store, "-timeout", "2s", "-rounds", "10")
	found := false
	for _, s := range d.Rehearsal {
		forUsers(t, kind, s.Error)
	}
	for _, f := range d.Findings {
		forUsers(t, kind, f.Found+"\n"+f.Meaning+"\n"+f.Remedy)
		found = found || f.Problem == problem && strings.Contains(f.Remedy, remedy)
		if f.Problem != "unreachable" && (strings.Contains(f.Remedy, "start the server;") || strings.Contains(f.Remedy, "firewall")) ||
			strings.Contains(f.Remedy, "look at the error of the step") {
			t.Errorf("%s: %s: %s", kind, f.Problem, f.Remedy)
		}
	}
	if !found {
		t.Errorf("%s: no %s with the remedy %q in %+v", kind, problem, remedy, d.Findings)
	}
}

// forUsers asks for a text without a name of Go: who types a command has no program to change.
func forUsers(t *testing.T, kind, text string) {
	t.Helper()
	if name := goName.FindString(text); name != "" {
		t.Errorf("%s: %q in %s", kind, name, text)
	}
}

var goName = regexp.MustCompile(`\b(redisstore|sqlstore|pgxstore|etcd|natsstore|Store|tls)\.[A-Z]\w+|\bWith(out)?[A-Z]\w+|\bcall Install`)

// What doctor advises against each kind of trouble, with a real store of each family.
func TestDoctorAdvisesByTheKindOfTrouble(t *testing.T) {
	t.Run("nothing answers", func(t *testing.T) {
		t.Parallel()
		for _, store := range []string{"redis://127.0.0.1:1", "postgres://127.0.0.1:1/db", "mysql://127.0.0.1:1/db", "etcd://127.0.0.1:1", "nats://127.0.0.1:1"} {
			remedied(t, store, store, "unreachable", "start the server; look at address and firewall")
		}
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		adviceOfRedis(t)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		adviceOfPostgreSQL(t)
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		adviceOfMariaDB(t)
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		adviceOfSQLite(t)
	})
	t.Run("NATS", func(t *testing.T) {
		t.Parallel()
		adviceOfNATS(t)
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		adviceOfEtcd(t)
	})
}

func adviceOfRedis(t *testing.T) {
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "u", "on", ">right", "~*", "&*", "+@all", "-evalsha")
	remedied(t, "wrong password", "redis://u:wrong@"+s.Addr(), "refused", "redis://USER:PASSWORD@")
	remedied(t, "no right", "redis://u:right@"+s.Addr(), "rehearsal", "ACL SETUSER USER +COMMAND")
	remedied(t, "no such database", url(s)+"/99", "refused", "CONFIG GET databases")
	remedied(t, "no TLS there", "rediss://"+s.Addr(), "unable", "scheme without TLS")
	set := func(name, value string) { s.Do("CONFIG", "SET", name, value) }
	set("maxmemory", "1")
	remedied(t, "no memory", url(s), "rehearsal", "CONFIG SET maxmemory")
	set("maxmemory", "0")
	set("min-replicas-to-write", "1")
	remedied(t, "no replicas", url(s), "rehearsal", "min-replicas-to-write 0")
	set("min-replicas-to-write", "0")
	p := redistest.NewProxy(t, s.Addr())
	p.Add(redistest.Rule{Fault: redistest.Answer, Commands: []string{"EVALSHA", "EVAL", "SET"}, Times: -1,
		Reply: "-MISCONF Errors writing to the AOF file: No space left on device\r\n"})
	remedied(t, "no disk", "redis://"+p.Addr(), "rehearsal", "INFO persistence")
	s.Fill()
	remedied(t, "too many clients", url(s), "unable", "CONFIG SET maxclients")
	s = redistest.Start(t, redistest.WithArgs("--rename-command", "EVALSHA", "", "--rename-command", "EVAL", ""))
	remedied(t, "no scripts", url(s), "rehearsal", "scripts=off in the URL")
	_, _, stderr := run(t, url(s), "run", "-n", "job", "--", "true")
	if forUsers(t, "run without scripts", stderr); !strings.Contains(stderr, "unknown command 'EVALSHA'; use scripts=off in the URL, and -strategy single") {
		t.Error(stderr)
	}
	if code, _, stderr := run(t, url(s)+"?scripts=off", "run", "-strategy", "single", "job", "--", "true"); code != 0 || strings.Contains(stderr, "EVAL") {
		t.Errorf("what it says to use = %d: %s", code, stderr)
	}
	_, _, stderr = run(t, url(s)+"?scripts=off", "inspect", "job")
	if forUsers(t, "inspect without scripts", stderr); !strings.Contains(stderr, "the URL has scripts=off") {
		t.Error(stderr)
	}
}

func adviceOfPostgreSQL(t *testing.T) {
	s := pgtest.Start(t)
	store := postgres(s.DSN())
	sql := func(text string) {
		t.Helper()
		if out, err := exec.Command("psql", store, "-c", text).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	as := func(role string) string { return strings.Replace(store, "postgres@", role+"@", 1) }
	remedied(t, "before install", store, "rehearsal", "lockstep install")
	for _, text := range []string{"REVOKE CREATE ON DATABASE postgres FROM PUBLIC", "CREATE ROLE app LOGIN", "CREATE ROLE busy LOGIN CONNECTION LIMIT 0",
		"CREATE ROLE reader LOGIN SUPERUSER", "ALTER ROLE reader SET default_transaction_read_only = on"} {
		sql(text)
	}
	code, _, stderr := run(t, as("app"), "install")
	if code != 77 || !strings.Contains(stderr, "CREATE on the database") || strings.Contains(stderr, "-grant") {
		t.Errorf("install of a role that may not = %d: %s", code, stderr)
	}
	must(t, store, "install")
	remedied(t, "no right", as("app"), "refused", "lockstep install -grant ROLE")
	remedied(t, "no such role", as("nobody"), "refused", "pg_hba.conf")
	remedied(t, "no such database", postgres(strings.Replace(s.DSN(), "dbname=postgres", "dbname=nowhere", 1)), "refused", "createdb")
	remedied(t, "no TLS there", strings.Replace(store, "sslmode=disable", "sslmode=require", 1), "unable", "sslmode=disable in the URL")
	remedied(t, "no such host", "postgres://no..such/db", "unreachable", "name of the host")
	remedied(t, "no such setting", store+"&nosuch=1", "refused", "parameters of the URL")
	remedied(t, "too many clients", as("busy"), "unable", "CONNECTION LIMIT")
	remedied(t, "read-only", as("reader"), "rehearsal", "default_transaction_read_only = off")
}

func adviceOfMariaDB(t *testing.T) {
	s := mariadbtest.Start(t, "skip-ssl")
	db, err := sql.Open("mysql", s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	do := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	store := func(user, name string) string { return "mysql://" + user + "@" + s.Addr() + "/" + name }
	for _, text := range []string{"CREATE DATABASE locks", "CREATE USER app IDENTIFIED BY 'right'", "CREATE USER reader", "GRANT ALL ON locks.* TO app", "GRANT SELECT ON locks.* TO reader"} {
		do(text)
	}
	remedied(t, "before install", store("app:right", "locks"), "rehearsal", "lockstep install")
	code, _, stderr := run(t, store("reader", "locks"), "install")
	if code != 77 || !strings.Contains(stderr, "CREATE and ALTER") {
		t.Errorf("install of a user who may not = %d: %s", code, stderr)
	}
	must(t, store("app:right", "locks"), "install")
	remedied(t, "no right", store("reader", "locks"), "rehearsal", "GRANT SELECT, INSERT, UPDATE, DELETE")
	remedied(t, "wrong password", store("app:wrong", "locks"), "refused", "password")
	remedied(t, "no such database", store("root", "nowhere"), "refused", "CREATE DATABASE")
	remedied(t, "no TLS there", store("app:right", "locks")+"?tls=true", "unable", "tls=false in the URL")
	do("SET GLOBAL read_only = 1")
	remedied(t, "read-only server", store("app:right", "locks"), "rehearsal", "read_only = OFF")
	do("SET GLOBAL read_only = 0")
	do("SET GLOBAL tx_read_only = 1")
	remedied(t, "read-only transactions", store("app:right", "locks"), "rehearsal", "transaction_read_only = OFF")
	do("SET GLOBAL tx_read_only = 0")
	do("ALTER USER app WITH MAX_USER_CONNECTIONS 1")
	held, err := sql.Open("mysql", "app:right@tcp("+s.Addr()+")/locks")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := held.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	remedied(t, "too many clients", store("app:right", "locks"), "unable", "max_connections")
}

func adviceOfSQLite(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"text": strings.Repeat("no database ", 100), "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remedied(t, "before install", "sqlite://"+dir+"/locks.db", "unable", "lockstep install makes the file")
	remedied(t, "no folder", "sqlite://"+dir+"/none/locks.db", "unable", "in a folder that is there")
	remedied(t, "no database", "sqlite://"+dir+"/text", "refused", "another file")
	remedied(t, "no tables", "sqlite://"+dir+"/empty", "rehearsal", "lockstep install")
	if code, _, err := run(t, "sqlite://"+dir+"/locks.db?mode=ro", "list"); code != 64 || !strings.Contains(err, "has no parameters") {
		t.Errorf("a URL with mode=ro = %d: %s", code, err)
	}
}

func adviceOfNATS(t *testing.T) {
	s := startNATS(t, func(o *server.Options) { o.JetStream = false })
	remedied(t, "no JetStream", "nats://"+s.Addr().String(), "unable", "jetstream {}")
	s = startNATS(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "right"},
			{Username: "some", Password: "right", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"x"}}}},
		}
	})
	at := s.Addr().String()
	remedied(t, "wrong password", "nats://all:wrong@"+at, "unable", "user, password")
	remedied(t, "before install", "nats://all:right@"+at, "rehearsal", "lockstep install")
	remedied(t, "no right", "nats://some:right@"+at, "refused", "docs/security.md")
	remedied(t, "no TLS there", "nats+tls://all:right@"+at, "unable", "nats+tls:// if the server has TLS")
	s = startNATS(t, func(o *server.Options) { o.MaxConn = 1 })
	held, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	remedied(t, "too many clients", "nats://"+s.Addr().String(), "unable", "max_connections")
}

func adviceOfEtcd(t *testing.T) {
	member := etcdtest.Start(t, 1, etcdtest.Fast).Members[0].URL()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{member}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, user := range []string{"root", "app"} {
		if _, err := client.UserAdd(t.Context(), user, "right"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.UserGrantRole(t.Context(), "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AuthEnable(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := strings.TrimPrefix(member, "http://")
	remedied(t, "no user", "etcd://"+at, "refused", "etcd://USER:PASSWORD@HOST:PORT")
	remedied(t, "no right", "etcd://app:right@"+at, "refused", "grant-permission")
	remedied(t, "no TLS there", "etcds://"+at, "unable", "scheme without TLS")
}
