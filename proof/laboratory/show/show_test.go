package show

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/laboratory"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// The test binary is also the program of the owners.
func TestMain(m *testing.M) {
	logging.Disable()
	if laboratory.IsOwner() {
		if err := laboratory.Own(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(redistest.Main(m))
}

var smallSize = laboratory.Size{Pairs: 20, HandOvers: 2, Limit: time.Second}

func TestEveryCellIsShown(t *testing.T) {
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "page.html")
	options := laboratory.Options{Servers: "embedded", Size: smallSize}
	err := Run(t.Context(), &out, options, file)
	for try := 1; err != nil && try < 3; try++ { // a scenario needs its CPU in time; package laboratory judges what comes out
		t.Log(err)
		out.Reset()
		err = Run(t.Context(), &out, options, file)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	shown := maps.Clone(laboratory.Expected)
	delete(shown, "redlock-5/3-strict") // embedded servers tell no uptime
	if strings.Contains(out.String(), "p50") || !strings.Contains(out.String(), "left out: embedded servers run scripts") {
		t.Errorf("times of embedded servers are shown, or nothing says why they are not:\n%s", &out)
	}
	if why := "redlock-5/3-strict was left out: strict quarantine needs"; !strings.Contains(out.String(), why) {
		t.Errorf("no %q in:\n%s", why, &out)
	}
	for name, cells := range shown {
		fields := strings.Fields(line(t, out.String(), name))
		for column, o := range cells {
			if !strings.Contains(strings.Join(fields, " "), string(o)) {
				t.Errorf("%s: no %q for %s in %q", name, o, column, fields)
			}
			command := fmt.Sprintf("-only %s -strategy %s ", column, name)
			if o.IsAnomaly() != strings.Contains(out.String(), command) {
				t.Errorf("%s, which is %q, and a command that reproduces it: %v", command, o, !o.IsAnomaly())
			}
		}
	}
	checkPage(t, file, countAnomalies(shown))
}

func countAnomalies(m laboratory.Matrix) (n int) {
	for _, cells := range m {
		for _, o := range cells {
			if o.IsAnomaly() {
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
	o := laboratory.Options{Servers: "embedded", Only: "restart", Strategy: "fenced"}
	html := filepath.Join(t.TempDir(), "page.html")
	if err := Run(t.Context(), &out, o, html); err != nil {
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
	checkPage(t, html, 1)
}

func TestTimesAreThoseOfRedis(t *testing.T) {
	redistest.Require(t)
	var out bytes.Buffer
	o := laboratory.Options{Servers: "redis", Only: laboratory.SpeedColumn, Strategy: "single", Size: smallSize}
	if err := Run(t.Context(), &out, o, ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"p50 µs", "next ms", "p50, p99"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
	if n := len(strings.Fields(line(t, out.String(), "single"))); n != 6 {
		t.Errorf("%d fields in the line of single:\n%s", n, &out)
	}
}

func TestServersOfTheUserAreNotRestartedAndKeepNothing(t *testing.T) {
	servers := redistest.StartN(t, 3)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	const few = "needs more servers than there are: 5, and REDIS_ADDR has 3"
	for want, o := range map[string]laboratory.Options{
		"restart of single was not run: your servers are not restarted": {Only: "restart"},
		"redlock-5/3 was left out: " + few:                              {Only: "loser"},
		"redlock-5/4 was left out: " + few:                              {Only: "loser", Strategy: "redlock-5/4"},
		"restarts of redlock-3/2 was not run: your servers are not":     {Only: "restarts"},
		"redlock-fenced-5/3 was left out: " + few:                       {Only: laboratory.SpeedColumn, Strategy: "redlock-fenced-5/3"},
	} {
		var out bytes.Buffer
		o.Environment, o.Size = strings.Join(addrs, ", "), smallSize
		err := Run(t.Context(), &out, o, "")
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
		ran := o.Only == "loser" && o.Strategy == "" // what can be run was
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
	for want, o := range map[string]laboratory.Options{
		`no strategy "redlok": there are single, fair, fenced,`:    {Servers: "embedded", Strategy: "redlok"},
		`no column "crush": there are speed, crash, pause,`:        {Servers: "embedded", Only: "crush"},
		`no servers "valkey": there are embedded and redis`:        {Servers: "valkey"},
		`127.0.0.1:1: connect: connection refused`:                 {Environment: "127.0.0.1:1", Only: "speed", Strategy: "single"},
		`single, clock: not produced (Alice: lockstep: acquire`:    {Environment: "127.0.0.1:1", Only: "clock", Strategy: "single"},
		`the table says safe`:                                      {Environment: "127.0.0.1:1", Only: "clock", Strategy: "single"},
		`open /no/such/directory/page.html: no such file or direc`: {Servers: "embedded", Only: "clock", Strategy: "single"},
	} {
		html := ""
		if strings.HasPrefix(want, "open ") {
			html = "/no/such/directory/page.html"
		}
		if err := Run(t.Context(), &bytes.Buffer{}, o, html); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", o, err, want)
		}
	}
}
