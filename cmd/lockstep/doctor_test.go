//go:build linux

package main

import (
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

type finding struct {
	Problem, Found, Meaning, Remedy string
	Unsafe, Accepted                bool
}

// diagnosis is what doctor -json says.
type diagnosis struct {
	Findings  []finding
	Rehearsal []struct {
		Step, Error string
		OK          bool
	}
	LeastTTLMS int64 `json:"least_ttl_ms"`
	Exit       int
}

func doctor(t *testing.T, store string, args ...string) (d diagnosis) {
	t.Helper()
	code, out, stderr := run(t, store, append([]string{"doctor", "-json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &d); err != nil || d.Exit != code {
		t.Fatalf("doctor = %d: %v: %s%s", code, err, out, stderr)
	}
	return d
}

// awaitDoctor asks again until the answer is right: other work on the machine makes round trips long, and
// ends the short leases of a rehearsal.
func awaitDoctor(t *testing.T, what string, right func(diagnosis) bool, store string, args ...string) {
	t.Helper()
	var d diagnosis
	defer func() {
		if t.Failed() {
			t.Logf("exit %d, %v, %+v", d.Exit, d.found(), d.Rehearsal)
		}
	}()
	await(t, what, func() bool {
		d = doctor(t, store, args...)
		return right(d)
	})
}

// fit tells of a diagnosis without a finding, after a rehearsal that went well.
func fit(d diagnosis) bool { return d.Exit == 0 && d.rehearsed() }

// rehearsed tells whether each step of the rehearsal went well.
func (d diagnosis) rehearsed() bool {
	for _, s := range d.Rehearsal {
		if !s.OK {
			return false
		}
	}
	return len(d.Rehearsal) == 6
}

// found are the problems, and the parts of what was found where a kind has several.
func (d diagnosis) found() map[string]string {
	all := map[string]string{}
	for _, f := range d.Findings {
		all[f.Problem] += f.Found + "; "
	}
	return all
}

// expect looks for a finding with something to type.
func expect(t *testing.T, d diagnosis, problem, part string, unsafe bool) {
	t.Helper()
	for _, f := range d.Findings {
		if f.Problem == problem && strings.Contains(f.Found, part) {
			if f.Meaning == "" || f.Remedy == "" || f.Unsafe != unsafe {
				t.Errorf("%+v", f)
			}
			return
		}
	}
	t.Errorf("no finding %s (%s) in %+v", problem, part, d.found())
}

func TestDoctorOnRedis(t *testing.T) {
	t.Parallel()
	t.Run("fit", func(t *testing.T) {
		s := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
		// The server tells whole seconds. With the shortest limit it is up for long enough soon.
		awaitDoctor(t, "fit", func(d diagnosis) bool {
			return fit(d) && len(d.Findings) == 0 && d.LeastTTLMS >= 10
		}, url(s), "-max-ttl", "1s", "-ttl", "1s")
		if d := doctor(t, url(s), "-ttl", "10ms", "-max-ttl", "1s"); d.LeastTTLMS > 10 {
			expect(t, d, "ttl", "10ms", false)
		}
		if keys, _ := s.Do("EXISTS", "lockstep-doctor/"); keys != int64(0) {
			t.Error("the scratch key is left")
		}
	})
	t.Run("everything wrong", func(t *testing.T) {
		s := redistest.Start(t, redistest.WithArgs("--maxmemory-policy", "allkeys-lru", "--appendonly", "yes", "--appendfsync", "everysec"))
		d := doctor(t, url(s))
		expect(t, d, "restarted", "30s", true)
		expect(t, d, "eviction", "allkeys-lru", true)
		expect(t, d, "persistence", "everysec", false)
		if d.Exit != 2 {
			t.Errorf("exit %d", d.Exit)
		}
		s.Do("CONFIG", "SET", "appendonly", "no")
		awaitDoctor(t, "a warning, with -allow", func(d diagnosis) bool {
			return d.Exit == 1 && strings.Contains(d.found()["persistence"], "no append-only file")
		}, url(s), "-allow", "restarted,eviction")
		expect(t, doctor(t, url(s)), "persistence", "no append-only file", false)
	})
	t.Run("replicas", func(t *testing.T) {
		s := redistest.StartSwitchover(t)
		expect(t, doctor(t, url(s.First)), "replicas", "it has 1 replica", false)
		d := doctor(t, url(s.Second))
		expect(t, d, "role", "replica", true)
		if d.Exit != 2 {
			t.Errorf("exit %d", d.Exit)
		}
	})
	t.Run("clock", func(t *testing.T) {
		s := redistest.Start(t, redistest.WithMovableClock())
		s.MoveClock(time.Hour)
		expect(t, doctor(t, url(s)), "clock", "differs", false)
	})
	t.Run("permissions", func(t *testing.T) {
		s := redistest.Start(t, redistest.WithArgs("--appendonly", "yes"))
		s.Do("ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", "+@all", "-info", "-time")
		d := doctor(t, "redis://u:x@"+s.Addr())
		expect(t, d, "permission", "INFO", true)
		expect(t, d, "permission", "TIME", false)
		s.Do("ACL", "SETUSER", "u", "+info", "-config")
		expect(t, doctor(t, "redis://u:x@"+s.Addr()), "permission", "CONFIG GET", false)
		s.Do("ACL", "SETUSER", "u", "-eval", "-evalsha")
		d = doctor(t, "redis://u:x@"+s.Addr())
		expect(t, d, "rehearsal", "", true)
	})
	t.Run("a server that tells little", func(t *testing.T) {
		s := redistest.Start(t, redistest.WithArgs("--rename-command", "CONFIG", "", "--appendonly", "yes"))
		expect(t, doctor(t, url(s)), "unknown", "CONFIG GET", false)
		p := redistest.NewProxy(t, s.Addr())
		info := "role:master\r\nrun_id:abc\r\naof_enabled:1\r\n"
		p.Add(redistest.Rule{Fault: redistest.Answer, Commands: []string{"INFO"}, Times: -1, Reply: "$" + itoa(len(info)) + "\r\n" + info + "\r\n"})
		d := doctor(t, "redis://"+p.Addr())
		expect(t, d, "uptime", "no uptime", false)
		expect(t, d, "unknown", "eviction", false)
	})
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestDoctorOnAQuorum(t *testing.T) {
	t.Parallel()
	all := redistest.StartN(t, 3)
	store := url(all[0]) + " " + url(all[1]) + " " + url(all[2])
	limits := []string{"-max-ttl", "1s", "-ttl", "1s", "-allow", "restarted,persistence"}
	awaitDoctor(t, "fit", fit, store, limits...)
	// The commands work on a quorum as well, if its nodes have been up for the longest TTL.
	if code, _, err := run(t, store, "-max-ttl", "10m", "run", "-n", "q", "--", "true"); code != 77 || !strings.Contains(err, "quarantine") {
		t.Errorf("run on nodes that were just started = %d: %s", code, err)
	}
	must(t, store, "-max-ttl", "20s", "run", "-w", "2m", "-ttl", "20s", "q", "--", "true")
	if out := must(t, store, "-max-ttl", "20s", "run", "-ttl", "20s", "-v", "q", "--", "sh", "-c", "echo $LOCKSTEP_FENCE"); strings.TrimSpace(out) == "" {
		t.Error("no number")
	}
	must(t, store, "-max-ttl", "20s", "acquire", "-ttl", "20s", "-holder", "me", "q")
	// Two of three nodes are enough: the process may have ended before the third one granted.
	if out := must(t, store, "list", "-prefix", "q"); strings.Count(out, "  on redis://") < 2 || strings.Count(out, "me") < 2 {
		t.Errorf("list: %s", out)
	}
	if code, _, _ := run(t, store, "test", "q"); code != 75 {
		t.Errorf("test = %d", code)
	}
	_, out, _ := run(t, store, "release", "q")
	prints := strings.Fields(out[strings.LastIndex(out, "-print"):])[1]
	must(t, store, "release", "q", "-print", prints, "-now", "-yes")
	must(t, store, "test", "q")

	d := doctor(t, url(all[0])+" "+url(all[1])+" redis://localhost:"+strings.Split(all[0].Addr(), ":")[1], limits...)
	expect(t, d, "same", "nodes 1 and 3", true)
	all[2].Do("REPLICAOF", "127.0.0.1", strings.Split(all[0].Addr(), ":")[1])
	d = doctor(t, store, limits...)
	expect(t, d, "role", "replica", true)
	all[2].Do("REPLICAOF", "NO", "ONE")
	all[2].Kill()
	expect(t, doctor(t, store, limits...), "unreachable", "", false)
	awaitDoctor(t, "a warning with two of three nodes", func(d diagnosis) bool { return d.Exit == 1 && d.rehearsed() }, store, limits...)
	all[1].Kill()
	if d = doctor(t, store, limits...); d.Exit != 69 || len(d.Rehearsal) != 0 {
		t.Errorf("with one of three nodes: %+v", d)
	}
}

func postgres(dsn string) string {
	at := map[string]string{}
	for _, f := range strings.Fields(dsn) {
		name, value, _ := strings.Cut(f, "=")
		at[name] = value
	}
	u := "postgres://" + at["user"] + "@" + at["host"] + ":" + at["port"] + "/" + at["dbname"]
	for _, name := range slices.Sorted(maps.Keys(at)) {
		switch name {
		case "user", "host", "port", "dbname":
		default:
			u += map[bool]string{true: "&", false: "?"}[strings.Contains(u, "?")] + name + "=" + at[name]
		}
	}
	return u
}

func TestDoctorFindsAnOldTransactionAndAClock(t *testing.T) {
	t.Parallel()
	s := pgtest.StartWithMovableClock(t)
	store := postgres(s.DSN())
	must(t, store, "install")
	old := exec.Command("psql", store, "-c", "BEGIN; SELECT txid_current(); SELECT pg_sleep(600)")
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = old.Process.Kill()
		_ = old.Wait()
	})
	await(t, "the transaction has begun", func() bool {
		out, err := exec.Command("psql", store, "-Atc", "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND backend_xid IS NOT NULL").Output()
		return err == nil && strings.TrimSpace(string(out)) == "1"
	})
	s.MoveClock(time.Hour)
	d := doctor(t, store)
	expect(t, d, "transactions", "old", false)
	expect(t, d, "clock", "differs", false)
}

func TestDoctorOnPostgreSQL(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	store := postgres(s.DSN())
	sql := func(statements ...string) {
		for _, text := range statements {
			if out, err := exec.Command("psql", store, "-c", text).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", text, err, out)
			}
		}
	}
	expect(t, doctor(t, store), "install", "missing", true)
	must(t, store, "install")
	set := func(setting string, want, part string, unsafe bool) {
		name, _, _ := strings.Cut(setting, " =")
		sql("ALTER SYSTEM SET "+setting, "SELECT pg_reload_conf()")
		await(t, setting, func() bool { return strings.Contains(doctor(t, store).found()[want], part) })
		expect(t, doctor(t, store), want, part, unsafe)
		sql("ALTER SYSTEM RESET "+name, "SELECT pg_reload_conf()")
	}
	set("fsync = off", "persistence", "fsync is off", true)
	set("synchronous_commit = off", "persistence", "synchronous_commit is off", true)
	set("default_transaction_isolation = 'serializable'", "isolation", "serializable", false)
	sql("ALTER TABLE lockstep.hold SET UNLOGGED", "ALTER TABLE lockstep.waiter SET UNLOGGED", "ALTER TABLE lockstep.lock SET UNLOGGED")
	expect(t, doctor(t, store), "persistence", "UNLOGGED", true)
	sql("ALTER TABLE lockstep.lock SET LOGGED")

	sql("CREATE ROLE app LOGIN", "GRANT USAGE ON SCHEMA lockstep TO app", "GRANT SELECT ON lockstep.version TO app")
	asApp := doctor(t, postgres(strings.Replace(s.DSN(), "user=postgres", "user=app", 1)))
	expect(t, asApp, "install", "the role app lacks", true)
	if !slices.ContainsFunc(asApp.Findings, func(f finding) bool { return f.Problem == "install" && strings.Contains(f.Remedy, "install -grant") }) {
		t.Errorf("the remedy of missing rights: %+v", asApp.Findings)
	}

	pooled := doctor(t, postgres(s.Pooler(t)))
	expect(t, pooled, "wakes", "", false)
	standby := s.Standby(t)
	await(t, "the standby is connected", func() bool { return doctor(t, store).found()["replicas"] != "" })
	expect(t, doctor(t, store), "replicas", "it has 1 standby", false)
	d := doctor(t, postgres(standby.DSN()))
	expect(t, d, "role", "standby", true)
	if !slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Problem == "rehearsal" && strings.Contains(f.Remedy, "primary") }) {
		t.Errorf("the rehearsal on a standby: %+v", d.Findings)
	}

	if out := must(t, store, "run", "pg", "--", "sh", "-c", "echo $LOCKSTEP_FENCE"); strings.TrimSpace(out) == "" {
		t.Error("no number")
	}
	must(t, store, "acquire", "-holder", "me", "pg")
	if out := must(t, store, "list"); !strings.Contains(out, "me") {
		t.Errorf("list: %s", out)
	}
}
