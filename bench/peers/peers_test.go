package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/stamp"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) {
	lab.Spin()
	beChild()
	os.Exit(redistest.Main(m))
}

// rows are what each case must have beside the rows of Lockstep, by case and table.
var rows = map[string][][]string{
	"a": {{"raw go-redis", "raw go-redis, again (A/A)", "raw rueidis", "redislock", "redsync", "redsync over rueidis",
		"rueidislock", "rueidislock, tuned", "redislock, ctx per call", "redsync, ctx per call"}},
	"b": {{"raw go-redis", "raw go-redis, again (A/A)", "raw rueidis", "go-redis, pipelines of 64", "redislock", "redsync",
		"redsync over rueidis", "rueidislock", "rueidislock, tuned", "redislock, ctx per call", "redsync, ctx per call",
		"raw go-redis, PoolSize 64", "redislock, PoolSize 64", "redsync, PoolSize 64"}},
	"c": {
		append([]string{"in-process FIFO over raw go-redis", "in-process FIFO over raw go-redis, again (A/A)"}, whoWait...),
		append([]string{"BLPOP wake + SET", "BLPOP wake + SET, again (A/A)", "bare pub/sub wake + SET"}, whoWait...),
	},
	"d": {
		append([]string{"bare pub/sub wake + SET", "bare pub/sub wake + SET, again (A/A)", "BLPOP wake + SET"}, whoWait...),
		append([]string{"BLPOP wake + SET", "BLPOP wake + SET, again (A/A)", "bare pub/sub wake + SET"}, whoWait...),
		append([]string{"BLPOP wake + SET", "BLPOP wake + SET, again (A/A)", "bare pub/sub wake + SET"}, whoWait...),
		append([]string{"BLPOP wake + SET", "BLPOP wake + SET, again (A/A)", "bare pub/sub wake + SET"}, whoWait[:6]...),
	},
	"e": {onFive,
		append([]string{"raw, done at 3 of 5, PoolSize 64", "redsync, PoolSize 64", "redsync, fail-fast, PoolSize 64"}, onFive...),
		append([]string{"redsync, ContextTimeoutEnabled"}, onFive...)},
	"f": {{"lockstep, again (A/A)", "rueidislock, tuned"}},
	"g": {{"lockstep, again (A/A)", "rueidislock", "rueidislock, tuned", "redislock", "redsync"},
		{"lockstep, again (A/A)", "rueidislock", "rueidislock, tuned", "redislock", "redsync"}},
	"h": {farAway,
		append([]string{"raw go-redis, PoolSize 64", "redislock, PoolSize 64", "redsync, PoolSize 64"}, farAway...),
		{"bare pub/sub wake + SET", "bare pub/sub wake + SET, again (A/A)", "BLPOP wake + SET",
			"redislock, tuned", "redsync, tuned", "rueidislock, tuned"}},
	"i": {whoShare, whoShare, {"lockstep, again (A/A)", "walk over a hash"}},
	"k": {{"lockstep, again (A/A)", "SET NX loop"}, {"lockstep, again (A/A)", "SET NX loop"}},
	"j": {handRW[:2], append([]string{"reader and writer keys, pub/sub wake", "reader and writer keys, pub/sub wake, again (A/A)"}, handRW[0]),
		append([]string{"reader and writer keys, pub/sub wake", "reader and writer keys, pub/sub wake, again (A/A)"}, handRW[0])},
}

var (
	whoWait = []string{"redislock", "redislock, tuned", "redsync", "redsync, tuned", "rueidislock", "rueidislock, tuned",
		"redislock, tuned, ctx per call", "redsync, tuned, ctx per call"}
	onFive = []string{"raw, done at 3 of 5", "raw, done at 3 of 5, again (A/A)", "redsync", "redsync, fail-fast", "redsync over rueidis, fail-fast",
		"redsync, ctx per call", "redsync, fail-fast, ctx per call"}
	whoShare = []string{"lockstep, again (A/A)", "redis-semaphore (npm)", "Redis in Action 6.3.1", "BLPOP of 10 elements"}
	handRW   = []string{"reader and writer keys, polling", "reader and writer keys, polling, again (A/A)"}
	farAway  = []string{"raw go-redis", "raw go-redis, again (A/A)", "raw rueidis", "redislock", "redsync"}
)

// TestTheShortFormHasEveryRow runs everything, too little of it to mean anything, and asks of no figure how large it is. Anybody may
// fail, as some peers do in full, and all do on a machine that is slow enough; but not everybody everywhere.
func TestTheShortFormHasEveryRow(t *testing.T) {
	redistest.Require(t)
	page := filepath.Join(t.TempDir(), "artefacts", "performance.md") // there is none yet
	var out bytes.Buffer
	reports, err := run(settings{short: true, repeat: 1, rounds: 20, turn: 50 * time.Millisecond, page: page}, &out)
	t.Logf("%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	measured, failed := 0, 0
	for id, tables := range rows {
		r := reports[id]
		if r == nil || len(r.tables) != len(tables) || len(r.musts) == 0 {
			t.Errorf("case %s: %+v", id, r)
			continue
		}
		for i, tb := range r.tables {
			wantRows(t, tb, tables[i])
			for _, row := range tb.rows {
				if err := errors.Join(row.broke...); errors.Is(err, errNoNode) && os.Getenv("LOCKSTEP_REQUIRE_REDIS") == "1" {
					t.Errorf("%s: %s: %v", tb.title, row.name, err)
				}
				if len(row.broke) > 0 {
					failed++
				} else if row.kind == ours {
					measured++
				}
			}
		}
	}
	if text := headlines([]map[string]*report{reports}); strings.Count(text, "\n") != 2+9 || strings.Contains(text, "not measured |\n| 64") {
		t.Errorf("headlines:\n%s", text)
	}
	if measured < failed {
		t.Errorf("%d rows of ours have figures, and %d of all have none", measured, failed)
	}
	after, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if outside(after) != outside(cases) {
		t.Error("what stands outside of the marks has changed")
	}
	if made := stamp.Find(string(after)); len(made) != 1 {
		t.Errorf("stamps: %v", made)
	}
	for id, r := range reports {
		if !strings.Contains(string(after), r.markdown()) {
			t.Errorf("case %s is not in the page", id)
		}
	}
	for _, chart := range regexp.MustCompile(`\]\((performance/.*?)\)`).FindAllSubmatch(after, -1) {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(page), string(chart[1])))
		if err != nil || !bytes.Contains(text, []byte("<svg")) {
			t.Errorf("%s: %v, %.40q", chart[1], err, text)
		}
	}
}

func wantRows(t *testing.T, tb *table, others []string) {
	t.Helper()
	var names []string
	lockstep := 0
	for _, r := range tb.rows {
		if r.kind == ours {
			lockstep++
		} else {
			names = append(names, r.name)
		}
		if len(r.broke) == 0 && !slices.ContainsFunc(r.figures, func(figures []float64) bool { return len(figures) > 0 }) {
			t.Errorf("%s: %s has neither a figure nor a reason", tb.title, r.name)
		}
		for _, err := range r.broke {
			if r.kind == ours && errors.Is(err, errTwo) {
				t.Errorf("%s: %s: %v", tb.title, r.name, err)
			}
		}
	}
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(others)); !slices.Equal(names, want) || lockstep == 0 {
		t.Errorf("%s has %d rows of ours and %q, want %q", tb.title, lockstep, names, want)
	}
}

// outside is the page without what stands between marks.
func outside(page []byte) string {
	return regexp.MustCompile(`(?s)(<!-- bench-peers: .*? -->\n).*?(<!-- end of bench-peers)`).ReplaceAllString(string(page), "$1$2")
}

func TestACaseThatIsNotThereIsRefused(t *testing.T) {
	if _, err := run(settings{short: true, only: []string{"a", "z"}}, io.Discard); err == nil || !strings.Contains(err.Error(), `"z"`) {
		t.Errorf("run = %v", err)
	}
}

func TestAPageWithoutMarksIsLeftAlone(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	begin, end := marks("a")
	for _, text := range []string{"no marks", string(begin) + "no end", "no begin\n" + string(end)} {
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := publish(page, map[string]string{"a": "table"}); err == nil {
			t.Errorf("publish into %q reports no error", text)
		}
		if after, err := os.ReadFile(page); err != nil || string(after) != text {
			t.Errorf("%q has become %q, %v", text, after, err)
		}
	}
}

// TestHeadlinesAreWrittenIntoThePageWithTheChartsThatItShows writes them into a copy of the page.
func TestHeadlinesAreWrittenIntoThePageWithTheChartsThatItShows(t *testing.T) {
	before, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	page, from := filepath.Join(dir, "docs", "performance.md"), filepath.Join(dir, "artefacts", "performance.md")
	for _, folder := range []string{"docs", "artefacts/performance"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(page, before, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := publishHeadlines(page, "new\n", from); err == nil {
		t.Error("the charts that the page shows are not there, and that is no error")
	}
	charts := shown.FindAllStringSubmatch(string(before), -1)
	for _, chart := range charts {
		if err := os.WriteFile(filepath.Join(filepath.Dir(from), chart[1]), []byte("<svg>"+chart[1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := publishHeadlines(page, "new\n", from); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	first, last := marks("headlines")
	if outside(after) != outside(before) || !bytes.Contains(after, slices.Concat(first, []byte("new\n"), last)) {
		t.Errorf("the page is\n%s", after)
	}
	drawn, err := filepath.Glob("../../docs/performance/*")
	if err != nil || len(drawn) != len(charts) || len(charts) == 0 {
		t.Errorf("the page shows %d charts, and beside it lie %q, %v", len(charts), drawn, err)
	}
	for _, chart := range charts {
		svg, err := os.ReadFile(filepath.Join(filepath.Dir(page), chart[1]))
		if err != nil || string(svg) != "<svg>"+chart[1] {
			t.Errorf("%s: %s, %v", chart[1], svg, err)
		}
	}
}

func TestRequestsCountWhereverTheStreamIsCut(t *testing.T) {
	stream := []byte("*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\n*9\r\n$4\r\nabcd\r\n*2\r\n$10\r\n0123456789\r\n$1\r\nx\r\n")
	for first := range len(stream) {
		for second := first; second < len(stream); second++ {
			var r requests
			if n := r.count(stream[:first]) + r.count(stream[first:second]) + r.count(stream[second:]); n != 3 {
				t.Fatalf("%d requests when cut at %d and %d, want 3", n, first, second)
			}
		}
	}
}

// A waiter that goes on after its turn takes CPU time from the contenders that follow.
func TestAWaiterOfAPeerEndsWhenItsClientIsClosed(t *testing.T) {
	server := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	p := place{addrs: []string{server.Addr()}, ttl: time.Minute, waiters: 2}
	for _, c := range slices.Concat(named(peersThatWait, tunedPeers...), eachPerCall(named(peersThatWait, tunedPeers...)...)) {
		t.Run(c.name, func(t *testing.T) {
			holder, err := c.open(p)
			if err != nil {
				t.Fatal(err)
			}
			defer holder.close()
			if _, err := holder.lock(t.Context(), t.Name()); err != nil {
				t.Fatal(err)
			}
			waiter, err := c.open(p)
			if err != nil {
				t.Fatal(err)
			}
			waiting := asking(t, admin)
			ended := make(chan error, 1)
			go func() {
				_, err := waiter.lock(context.Background(), t.Name())
				ended <- err
			}()
			waiting()
			waiter.close()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("it has the lock")
				}
			case <-time.After(20 * time.Second):
				t.Error("it goes on")
			}
		})
	}
}

// asking returns a function that waits until somebody else has sent some commands.
func asking(t *testing.T, admin *redis.Client) func() {
	t.Helper()
	count := func() int64 {
		n, err := executed(admin)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	return func() {
		for own := int64(1); count()-before-own < 5; own++ {
			time.Sleep(time.Millisecond)
		}
	}
}
