//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/nats-io/nats-server/v2/server"
)

// These stores have numbers, and a lock of them can be found and freed by hand.
func TestTheStoresWithAURL(t *testing.T) {
	t.Parallel()
	t.Run("Redis Cluster", func(t *testing.T) {
		freeByHand(t, "redis+cluster://"+strings.Join(redistest.StartCluster(t, 3, 0).Addrs(), ","))
	})
	t.Run("Redis Sentinel", func(t *testing.T) {
		freeByHand(t, "redis+sentinel://"+strings.Join(redistest.StartSentinel(t, 1).Addrs(), ",")+"/"+redistest.MasterName)
	})
	t.Run("SQLite", func(t *testing.T) {
		store := "sqlite://" + filepath.Join(t.TempDir(), "the locks?#%.db")
		store = strings.NewReplacer(" ", "%20", "?", "%3F", "#", "%23", "%.", "%25.").Replace(store)
		if code, _, err := run(t, store, "list"); code == 0 || code == 64 {
			t.Errorf("list without a file = %d: %s", code, err)
		}
		must(t, store, "install")
		expect(t, doctor(t, store), "wake-ups", "nobody", false)
		awaitDoctor(t, "fit", func(d diagnosis) bool { return fit(d) && len(d.Findings) == 1 }, store, "-allow", "wake-ups")
		freeByHand(t, store)
		must(t, store, "acquire", "-ttl", "29s", "held") // SQLite keeps no queue
		for want, args := range map[string][]string{
			"waiting    not known": {"inspect", "held"},
			`"waiting":null`:       {"inspect", "-json", "held"},
			"  ?  ":                {"list"},
		} {
			if out := must(t, store, args...); !strings.Contains(strings.ReplaceAll(out, `": `, `":`), want) {
				t.Errorf("%s: %s; want %q", args, out, want)
			}
		}
	})
	t.Run("MariaDB", func(t *testing.T) {
		s := mariadbtest.Start(t, "innodb-flush-log-at-trx-commit=0", "log-bin", "sync-binlog=1")
		store := "mysql://root@" + s.Addr() + "/test"
		expect(t, doctor(t, store), "install", "missing", true)
		must(t, store, "install")
		expect(t, doctor(t, store), "persistence", "innodb_flush_log_at_trx_commit is 0", true)
		freeByHand(t, store)
		s.Kill()
		wantNoAnswer(t, store)
	})
	t.Run("etcd", func(t *testing.T) {
		c := etcdtest.Start(t, 1, etcdtest.Fast)
		store := "etcd://" + strings.TrimPrefix(c.Members[0].URL(), "http://")
		expect(t, doctor(t, store), "members", "1 voting members", false)
		freeByHand(t, store)
		c.Members[0].Kill()
		wantNoAnswer(t, store)
	})
	t.Run("NATS", func(t *testing.T) {
		s := startNATS(t)
		store := "nats://" + s.Addr().String()
		expect(t, doctor(t, store), "install", "no stream", true)
		must(t, store, "install")
		expect(t, doctor(t, store), "sync", "unknown", false)
		awaitDoctor(t, "fit", fit, store, "-allow", "sync,replicas")
		freeByHand(t, store)
		must(t, store, "acquire", "-ttl", "29s", "held")
		if _, out, err := run(t, store, "list", "-held-over", "1ms"); !strings.Contains(err, "left out") {
			t.Errorf("a number of NATS is taken for a time: %s%s", out, err)
		}
		s.Shutdown()
		s.WaitForShutdown()
		wantNoAnswer(t, store)
	})
}

// freeByHand takes a lock, finds its holder, and frees it.
func freeByHand(t *testing.T, store string) {
	t.Helper()
	if out := must(t, store, "run", "job", "--", "sh", "-c", "echo $LOCKSTEP_FENCE"); strings.TrimSpace(out) == "" {
		t.Error("run: no number")
	}
	must(t, store, "acquire", "-holder", "me", "-ttl", "29s", "stuck")
	if code, _, _ := run(t, store, "test", "stuck"); code != 75 {
		t.Errorf("test of a held lock = %d", code)
	}
	for _, look := range [][]string{{"list", "-prefix", "st"}, {"inspect", "stuck"}} {
		if out := must(t, store, look...); !strings.Contains(out, "me") || !strings.Contains(out, "stuck") {
			t.Errorf("%s: %s", look[0], out)
		}
	}
	code, out, err := run(t, store, "release", "stuck")
	fields := strings.Fields(out[max(strings.LastIndex(out, "-print"), 0):])
	if code != 75 || len(fields) < 2 {
		t.Fatalf("release without a print = %d: %s%s", code, out, err)
	}
	must(t, store, "release", "stuck", "-print", fields[1], "-now", "-yes")
	must(t, store, "test", "stuck")
}

func wantNoAnswer(t *testing.T, store string) {
	t.Helper()
	if code, _, err := run(t, store, "run", "-n", "job", "--", "true"); code != 69 {
		t.Errorf("run without a server = %d: %s", code, err)
	}
	if code, _, err := run(t, store, "list"); code != 69 {
		t.Errorf("list without a server = %d: %s", code, err)
	}
}

func startNATS(t *testing.T, more ...func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	for _, set := range more {
		set(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s
}
