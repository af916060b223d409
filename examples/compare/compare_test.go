package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// The test binary is the program of the owners as well, which then know the strategies that are broken on purpose too.
func TestMain(m *testing.M) {
	if isOwner() {
		rows = append(rows, broken...)
		main()
		return
	}
	logging.Disable()
	os.Exit(redistest.Main(m))
}

var smallSize = size{pairs: 20, handOvers: 2, limit: time.Second}

// TestEveryCellIsAsExpected runs the whole program.
func TestEveryCellIsAsExpected(t *testing.T) {
	for _, servers := range []string{"embedded", "redis"} {
		t.Run(servers, func(t *testing.T) {
			t.Parallel()
			if servers == "redis" {
				redistest.Require(t)
			}
			var out bytes.Buffer
			file := filepath.Join(t.TempDir(), "page.html")
			if err := run(t.Context(), &out, options{servers: servers, size: smallSize, html: file}); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			for name, cells := range expected {
				fields := strings.Fields(line(t, out.String(), name))
				for column, o := range cells {
					if !strings.Contains(strings.Join(fields, " "), string(o)) {
						t.Errorf("%s: no %q for %s in %q", name, o, column, fields)
					}
					command := fmt.Sprintf("-only %s -strategy %s ", column, name)
					if o.isAnomaly() != strings.Contains(out.String(), command) {
						t.Errorf("%s, which is %q, and a command that reproduces it: %v", command, o, !o.isAnomaly())
					}
				}
			}
			for name, want := range map[string][]string{ // commands and round trips of a lock
				"single": {"2", "2"}, "fenced": {"2", "2"}, "reentrant": {"2", "2"}, "redlock-3/2": {"6", "2"}, "redlock-5/4": {"10", "2"},
				"redlock-fenced-5/3": {"10", "2"},
				"legacy-getset":      {"2", "2"}, "legacy-expire": {"7", "4"}, "legacy-setbit": {"2", "2"}, "legacy-getbit": {"3", "3"},
			} {
				if got := strings.Fields(line(t, out.String(), name))[1:3]; got[0] != want[0] || got[1] != want[1] {
					t.Errorf("%s: %s commands and %s round trips; want %s and %s", name, got[0], got[1], want[0], want[1])
				}
			}
			if slow := "embedded  servers are for trying out"; strings.Contains(out.String(), slow) != (servers == "embedded") {
				t.Errorf("on %s, %q: %v", servers, slow, servers != "embedded")
			}
			checkPage(t, file, countAnomalies(expected))
		})
	}
}

func countAnomalies(m matrix) (n int) {
	for _, cells := range m {
		for _, o := range cells {
			if o.isAnomaly() {
				n++
			}
		}
	}
	return n
}

// line is that of a strategy in the table.
func line(t *testing.T, text, strategy string) string {
	t.Helper()
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, strategy+" ") {
			return l
		}
	}
	t.Fatalf("no line of %s in:\n%s", strategy, text)
	return ""
}

func TestOneCellIsToldStepByStep(t *testing.T) {
	var out bytes.Buffer
	o := options{servers: "embedded", only: "restart", strategy: "fenced", html: filepath.Join(t.TempDir(), "page.html")}
	if err := run(t.Context(), &out, o); err != nil {
		t.Fatal(err)
	}
	rest := out.String()
	for _, want := range []string{
		"Alice     is granted the lock, number ", "Server 1  restarts and has forgotten all", "Bob       is granted the lock, number ",
		"Resource  accepts what Bob writes", "Resource  refuses what Alice writes", "Alice     extends the lock and is told that it is lost",
		"fenced: Bob had a lease for ",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("no %q in its place in:\n%s", want, &out)
		}
		rest = after
	}
	checkPage(t, o.html, 1)
}

func TestServersOfTheUserAreNotRestartedAndKeepNothing(t *testing.T) {
	servers := redistest.StartN(t, 3)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	const few = "needs more servers than there are: 5, and REDIS_ADDR has 3"
	for want, o := range map[string]options{
		"restart of single was not run: your servers are not restarted": {only: "restart"},
		"redlock-5/3 was left out: " + few:                              {only: "loser"},
		"redlock-5/4 was left out: " + few:                              {only: "loser", strategy: "redlock-5/4"},
		"restarts of redlock-3/2 was not run: your servers are not":     {only: "restarts"},
		"redlock-fenced-5/3 was left out: " + few:                       {only: speedColumn, strategy: "redlock-fenced-5/3"},
	} {
		var out bytes.Buffer
		o.environment, o.size = strings.Join(addrs, ", "), smallSize
		err := run(t.Context(), &out, o)
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
		ran := o.only == "loser" && o.strategy == "" // what can be run was
		if (err == nil) != ran || err != nil && !strings.HasPrefix(err.Error(), "nothing was run: ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
			t.Errorf("keys are left at %s: %q, %v", addr, keys, err)
		}
		client.Close()
	}
}

func TestWhatDoesNotExistIsAnErrorThatListsWhatDoes(t *testing.T) {
	for want, o := range map[string]options{
		`no strategy "redlok": there are single, fenced,`:          {servers: "embedded", strategy: "redlok"},
		`no column "crush": there are speed, crash, pause,`:        {servers: "embedded", only: "crush"},
		`no servers "valkey": there are embedded and redis`:        {servers: "valkey"},
		`127.0.0.1:1: connect: connection refused`:                 {environment: "127.0.0.1:1", only: "speed", strategy: "single"},
		`single, clock: not produced (Alice: lockstep: acquire`:    {environment: "127.0.0.1:1", only: "clock", strategy: "single"},
		`docs/safety.md says safe`:                                 {environment: "127.0.0.1:1", only: "clock", strategy: "single"},
		`open /no/such/directory/page.html: no such file or direc`: {servers: "embedded", only: "clock", strategy: "single", html: "/no/such/directory/page.html"},
	} {
		if err := run(t.Context(), &bytes.Buffer{}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", o, err, want)
		}
	}
}

func TestAnInterruptIsWhatTheRunFailsWith(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	if err := run(ctx, &bytes.Buffer{}, options{servers: "embedded", only: "crash", strategy: "legacy-setbit"}); !errors.Is(err, why) {
		t.Errorf("run = %v", err)
	}
}
