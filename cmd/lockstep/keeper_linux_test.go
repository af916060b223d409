package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// The lease of ten minutes would end after all tests.
func TestTheLockIsFreeWhenAtLeastIsOver(t *testing.T) {
	s := redistest.Start(t, redistest.WithPassword("hunter2"))
	store := "redis://:hunter2@" + s.Addr()
	file := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(file, []byte(store), 0o600); err != nil {
		t.Fatal(err)
	}
	sqlite := "sqlite://" + filepath.Join(t.TempDir(), "locks.db")
	must(t, sqlite, "install")
	etcd := "etcd://" + strings.TrimPrefix(etcdtest.Start(t, 1, etcdtest.Fast).Members[0].URL(), "http://")
	postgreSQL := postgres(pgtest.Start(t).DSN())
	must(t, postgreSQL, "install")
	mariaDB := "mysql://root@" + mariadbtest.Start(t).Addr() + "/test"
	must(t, mariaDB, "install")
	nats := "nats://" + startNATS(t).Addr().String()
	must(t, nats, "install")
	for name, c := range map[string]struct {
		store string
		args  []string
	}{
		"SQLite":                        {sqlite, nil},
		"etcd":                          {etcd, nil},
		"PostgreSQL":                    {postgreSQL, nil},
		"MariaDB":                       {mariaDB, nil},
		"NATS":                          {nats, nil},
		"a password in the environment": {store, nil},
		"a file of stores":              {"", []string{"-store-file", file}},
		"a prefix":                      {store, []string{"-key-prefix", "p:"}},
		"a semaphore":                   {store, []string{"-strategy", "semaphore", "-permits", "2"}},
		"a queue":                       {store, []string{"-strategy", "fair"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTime(t, func() (took, limit time.Duration) { return freed(t, c.store, c.args) })
		})
	}
}

// freed returns how long after its call a lock with -at-least 3 was free, and what is right for that: half a
// second more, and two other calls of the command.
func freed(t *testing.T, store string, args []string) (took, limit time.Duration) {
	key := fmt.Sprint("k", rand.Uint64())
	mark := "MARK=" + key
	call := slices.Concat(args, []string{"run", "-ttl", "10m", "-max-ttl", "10m", "-at-least", "3", key, "--", "sh", "-c", "exit 5"})
	slowest := pulse(t, store, slices.Concat(args, []string{"test", key + " of the pulse"})...)
	began := time.Now() // before the grant
	p := prepare(t, store, call...)
	p.Env = append(p.Env, mark)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if code := p.code(); code != 5 || p.err.String() != "" {
		t.Fatalf("exit %d: %s", code, p.err.String())
	}
	looks := slices.Concat(args, []string{"test", key})
	await(t, "the lock is free", func() bool { code, _, _ := run(t, store, looks...); return code == 0 })
	took = time.Since(began)
	if took < 3*time.Second {
		t.Errorf("it was free after %v; want it after 3s", took)
	}
	limit = 3500*time.Millisecond + 2*slowest()
	await(t, "the keeper ends", func() bool { return len(living(t, mark)) == 0 })
	return took, limit
}

// inTime plays a scene until it takes no longer than its limit: a machine may stand still in some, and a fault
// makes each of them late.
func inTime(t *testing.T, scene func() (took, limit time.Duration)) {
	t.Helper()
	for range 5 {
		took, limit := scene()
		if took <= limit {
			return
		}
		t.Logf("it took %v; want at most %v", took, limit)
	}
	t.Error("five times it took too long")
}

// A keeper that nobody needs would only be in the way.
func TestAKeeperStaysOnlyIfTheLeaseIsLonger(t *testing.T) {
	s := redistest.Start(t)
	for name, args := range map[string][]string{
		"without -at-least":       {"run", "k1"},
		"with a longer -at-least": {"run", "-at-least", "29s", "-ttl", "9s", "k2"},
	} {
		mark := fmt.Sprint("MARK=", rand.Uint64())
		p := prepare(t, url(s), append(args, "--", "true")...)
		p.Env = append(p.Env, mark)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		code := p.code()
		if left := living(t, mark); code != 0 || len(left) > 0 { // it would be there before the call ends
			t.Errorf("%s: exit %d, processes %v: %s", name, code, left, p.err.String())
		}
	}
}

// The keeper shows nothing to others, and keeps no file of the caller.
func TestAKeeperKeepsNothingOfTheCaller(t *testing.T) {
	s := redistest.Start(t)
	mark := fmt.Sprint("MARK=", rand.Uint64())
	p := prepare(t, url(s), "run", "-ttl", "29s", "-at-least", "20s", "k", "--", "true")
	p.Env = append(p.Env, mark)
	file, err := os.Create(filepath.Join(t.TempDir(), "of-the-caller"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p.ExtraFiles = []*os.File{file}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if code := p.code(); code != 0 {
		t.Fatalf("exit %d: %s", code, p.err.String())
	}
	pids := living(t, mark)
	if len(pids) != 1 {
		t.Fatalf("keepers: %v", pids)
	}
	if pid, err := strconv.Atoi(pids[0]); err == nil {
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	}
	process := "/proc/" + pids[0]
	await(t, "a keeper without arguments", func() bool {
		args, _ := os.ReadFile(process + "/cmdline")
		return strings.TrimRight(string(args), "\x00") == "lockstep-keeper"
	})
	files, _ := filepath.Glob(process + "/fd/*")
	for _, f := range files {
		to, _ := os.Readlink(f)
		if fd := filepath.Base(f); to == file.Name() || (fd == "1" || fd == "2") && to != "/dev/null" {
			t.Errorf("file %s is %s", fd, to)
		}
	}
}

// pulse calls the command again and again. slowest ends that and returns how long a
// call took at most: what the machine adds to everything else.
func pulse(t *testing.T, store string, args ...string) (slowest func() time.Duration) {
	stop, most := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var longest time.Duration
		for {
			began := time.Now()
			c := prepare(t, store, args...)
			_ = c.Run()
			longest = max(longest, time.Since(began))
			select {
			case <-stop:
				most <- longest
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	end := sync.OnceValue(func() time.Duration { close(stop); return <-most })
	t.Cleanup(func() { end() })
	return end
}
