package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func TestEveryStrategyCanBeChosen(t *testing.T) {
	for _, backend := range []string{"embedded", "memory"} {
		for _, strategy := range strategies.Names() {
			addrs := "a"
			if strings.HasPrefix(strategy, "redlock") {
				addrs = "a,b,c"
			}
			t.Run(strategy+" on "+backend, func(t *testing.T) {
				var out bytes.Buffer
				args := []string{"-strategy", strategy, "-backend", backend, "-addr", addrs}
				want := ""
				if strategy == "semaphore" {
					args, want = append(args, "-permits", "3", "-order", "-slots"), ", slot 0\n"
				}
				err := run(t.Context(), &out, env{}.get, args)
				if err != nil || !strings.Contains(out.String(), `holds "choose/example"`) || !strings.HasSuffix(out.String(), want) {
					t.Errorf("%v\n%s", err, &out)
				}
			})
		}
	}
}

// TestRealServersWorkAtOnce: both client libraries are opened as in production.
func TestRealServersWorkAtOnce(t *testing.T) {
	for _, backend := range []string{"goredis", "redigo"} {
		var out bytes.Buffer
		e := env{"LOCK_STRATEGY": "fenced", "LOCK_BACKEND": backend, "LOCK_ADDR": redistest.Start(t).Addr()}
		if err := run(t.Context(), &out, e.get, nil); err != nil || !strings.Contains(out.String(), `holds "choose/example"`) {
			t.Errorf("%s: %v\n%s", backend, err, &out)
		}
	}
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	e := env{"LOCK_STRATEGY": "single", "LOCK_BACKEND": "goredis", "LOCK_ADDR": "x", "LOCK_QUORUM": "4"}
	c, key, err := configure(e.get, []string{"-strategy", "redlock", "-addr", "a,b", "-drift", "0.05", "-key", "k"})
	if err != nil || c.Strategy != "redlock" || c.Backend != "goredis" || len(c.Addrs) != 2 || c.Quorum != 4 || c.Drift != 0.05 || key != "k" {
		t.Errorf("%+v, %q, %v", c, key, err)
	}
	for _, bad := range []env{{"LOCK_QUORUM": "many"}, {"LOCK_STRATEGY": "rdlock"}, {"LOCK_BACKEND": "redis"}} {
		if err := run(t.Context(), &bytes.Buffer{}, bad.get, nil); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// env is an environment.
type env map[string]string

func (e env) get(name string) string { return e[name] }
