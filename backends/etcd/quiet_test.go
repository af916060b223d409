package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Calls whose ctx ends are a normal end of a program.
func TestAProgramWritesNothingButItsOwnErrors(t *testing.T) {
	const role = "ETCD_PROGRAM"
	if endpoint, ok := strings.CutPrefix(os.Getenv(role), "quiet "); ok {
		program(t, clientv3.Config{Endpoints: []string{endpoint}})
		return
	}
	if endpoint, ok := strings.CutPrefix(os.Getenv(role), "with a logger "); ok {
		config := zap.NewDevelopmentConfig()
		program(t, clientv3.Config{Endpoints: []string{endpoint}, LogConfig: &config})
		return
	}
	up := etcdtest.Start(t, 1, etcdtest.Fast).Endpoints()[0]
	const nobody = "http://127.0.0.1:1"
	for name, c := range map[string]struct{ role, first, last string }{
		"a normal end":        {"quiet " + up, "lock: <nil>", "waiter: lockstep: lock"},
		"nobody is there":     {"quiet " + nobody, "lock: lockstep: lock", "waiter: lockstep: lock"},
		"a logger of its own": {role: "with a logger " + nobody},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := child.Command(t, "TestAProgramWritesNothingButItsOwnErrors", role+"="+c.role)
			var out bytes.Buffer
			cmd.Stderr = &out
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if c.first == "" {
				if !strings.Contains(out.String(), "retry_interceptor.go") {
					t.Errorf("the logger of the program got nothing: %s", out.String())
				}
				return
			}
			if len(lines) != 2 || !strings.HasPrefix(lines[0], c.first) || !strings.HasPrefix(lines[1], c.last) {
				t.Errorf("%d lines, want the two of the program:\n%s", len(lines), out.String())
			}
		})
	}
}

func program(t *testing.T, config clientv3.Config) {
	store, client, err := etcd.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	locks := locker.New(single.New(store))
	lock, err := locks.Lock(t.Context(), "a", locker.WithWait(2*time.Second))
	fmt.Fprintln(os.Stderr, "lock:", err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = locks.Lock(ctx, "a")
	fmt.Fprintln(os.Stderr, "waiter:", err)
	if _, err := store.Inspect(ctx, "a"); err == nil {
		t.Error("Inspect under a ctx that has ended has worked")
	}
	if lock != nil {
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	_ = client.Close()
}
