//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// TestMain makes this test binary the command if it is called by its name, or as one of its
// helpers.
func TestMain(m *testing.M) {
	if strings.HasPrefix(filepath.Base(os.Args[0]), "lockstep-") || os.Args[0] == "lockstep" {
		main()
	}
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP} {
		if signal.Ignored(s) { // as a shell does for what runs in its background; the calls would ignore it too
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(redistest.Main(m))
}

// call is one run of the command.
type call struct {
	*exec.Cmd
	t        testing.TB
	out, err output
}

// output may be read while it is written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// prepare makes a call with LOCKSTEP_STORE.
func prepare(t testing.TB, store string, args ...string) *call {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &call{Cmd: &exec.Cmd{Path: exe, Args: append([]string{"lockstep"}, args...)}, t: t}
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LOCKSTEP_") })
	if store != "" {
		c.Env = append(c.Env, "LOCKSTEP_STORE="+store)
	}
	c.Stdout, c.Stderr = &c.out, &c.err
	c.WaitDelay = 5 * time.Second // a descendant may keep the output
	return c
}

// begin starts a call, which ends with the test.
func begin(t testing.TB, store string, args ...string) *call {
	c := prepare(t, store, args...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

// code waits for the exit code.
func (c *call) code() int {
	if err := c.Wait(); err != nil && c.ProcessState == nil && !errors.Is(err, exec.ErrWaitDelay) {
		c.t.Errorf("%v: %v", c.Args, err)
	}
	return c.ProcessState.ExitCode()
}

func run(t testing.TB, store string, args ...string) (code int, out, err string) {
	c := begin(t, store, args...)
	code = c.code()
	return code, c.out.String(), c.err.String()
}

// must runs a call that succeeds, and returns its output.
func must(t testing.TB, store string, args ...string) string {
	t.Helper()
	code, out, err := run(t, store, args...)
	if code != 0 {
		t.Fatalf("lockstep %v = %d: %s", args, code, err)
	}
	return out
}

func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for limit := time.Now().Add(3 * time.Minute); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

func url(s *redistest.Server) string { return "redis://" + s.Addr() }

// key is what inspect -json says.
type key struct {
	Key   string
	Store string
	Held  bool
	Holds []struct {
		Holder  string
		LeftMS  int64 `json:"left_ms"`
		Print   string
		Evicted bool
	}
	Waiting int
	Fence   uint64
}

func inspect(t testing.TB, store, name string) (k key) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, store, "inspect", "-json", name)), &k); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestExitCodes(t *testing.T) {
	s := redistest.Start(t)
	s.Do("SET", "held", "x", "PX", "600000")
	s.Do("LPUSH", "list", "x")
	s.Do("ACL", "SETUSER", "weak", "on", ">secret", "~*", "&*", "+hello", "+info")
	weak := "redis://weak:secret@" + s.Addr()
	dead := "redis://127.0.0.1:1"
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		store string
		args  []string
		want  int
	}{
		{"the command's own", url(s), []string{"run", "a1", "--", "sh", "-c", "exit 7"}, 7},
		{"success", url(s), []string{"run", "a2", "--", "true"}, 0},
		{"ended by a signal", url(s), []string{"run", "a3", "--", "sh", "-c", "kill -9 $$"}, 137},
		{"held, with -n", url(s), []string{"run", "-n", "held", "--", "true"}, 75},
		{"held, after -w", url(s), []string{"run", "-w", "3", "held", "--", "true"}, 75},
		{"held, with -w 0", url(s), []string{"run", "-w", "0", "held", "--", "true"}, 75},
		{"held, with -E", url(s), []string{"run", "-n", "-E", "0", "held", "--", "false"}, 0},
		{"no answer", dead, []string{"run", "-n", "a4", "--", "true"}, 69},
		{"no answer within -w", dead, []string{"run", "-w", "200ms", "a4", "--", "true"}, 69},
		{"no permission", weak, []string{"run", "a5", "--", "true"}, 77},
		{"wrong password", "redis://weak:wrong@" + s.Addr(), []string{"run", "-n", "a5", "--", "true"}, 77},
		{"another type", url(s), []string{"run", "list", "--", "true"}, 77},
		{"quarantine", url(s), []string{"run", "-quarantine", "-max-ttl", "10m", "a6", "--", "true"}, 77},
		{"-max", url(s), []string{"run", "-max", "0.1", "-grace", "0.1", "a7", "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"}, 124},
		{"no program", url(s), []string{"run", "a8", "--", script}, 126},
		{"no such interpreter", url(s), []string{"run", "a8", "--", filepath.Dir(script)}, 126},
		{"not found", url(s), []string{"run", "a9", "--", "no-such-command"}, 127},
		{"no store", "", []string{"run", "a", "--", "true"}, 64},
		{"an empty store", " ", []string{"run", "a", "--", "true"}, 64},
		{"no --", url(s), []string{"run", "a", "true"}, 64},
		{"no command", url(s), []string{"run", "a", "--"}, 64},
		{"a long grace", url(s), []string{"run", "-ttl", "2s", "-grace", "1s", "a", "--", "true"}, 64},
		{"-n and -w", url(s), []string{"run", "-n", "-w", "1", "a", "--", "true"}, 64},
		{"a strategy without leases", url(s), []string{"run", "-strategy", "legacy-setbit", "a", "--", "true"}, 64},
		{"an unknown scheme", "etcd2://x", []string{"run", "a", "--", "true"}, 64},
		{"a password in the arguments", "", []string{"-store", weak, "run", "a", "--", "true"}, 64},
		{"an unknown command", url(s), []string{"lock"}, 64},
		{"no command at all", url(s), nil, 64},
		{"free", url(s), []string{"test", "a10"}, 0},
		{"test of a held lock", url(s), []string{"test", "held"}, 75},
		{"test without an answer", dead, []string{"test", "held"}, 69},
		{"inspect another type", url(s), []string{"inspect", "list"}, 77},
		{"release of a free lock", url(s), []string{"release", "a11"}, 0},
		{"release without a print", url(s), []string{"release", "held"}, 75},
		{"release of another hold", url(s), []string{"release", "held", "-print", "0123456789abcdef", "-yes"}, 75},
		{"release of what may be no lock", url(s), []string{"release", "held", "-print", inspect(t, url(s), "held").Holds[0].Print, "-yes"}, 77},
		{"release by force without a question", url(s), []string{"release", "held", "-print", "0123456789abcdef"}, 64},
		{"list without a prefix", url(s), []string{"list"}, 0},
		{"a page without a prefix", url(s), []string{"serve", "-listen", "127.0.0.1:0"}, 64},
		{"doctor without an answer", dead, []string{"doctor"}, 69},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			code, out, stderr := run(t, row.store, row.args...)
			if code != row.want {
				t.Errorf("exit %d, want %d\n%s%s", code, row.want, out, stderr)
			}
			if strings.Contains(out+stderr, "secret") || strings.Contains(out+stderr, "wrong@") {
				t.Errorf("it shows the password: %s%s", out, stderr)
			}
			if row.want >= 64 && row.want != 75 && row.want < 128 && stderr == "" {
				t.Error("it does not say why")
			}
		})
	}
}

func TestSignals(t *testing.T) {
	s := redistest.Start(t)
	t.Run("a signal ends the wait and leaves the queue", func(t *testing.T) {
		for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
			s.Do("SET", "w", "x", "PX", "600000")
			c := begin(t, url(s), "run", "w", "--", "true")
			await(t, "it waits", func() bool { return inspect(t, url(s), "w").Waiting == 1 })
			_ = c.Process.Signal(sig)
			if code := c.code(); code != want {
				t.Errorf("%v: exit %d, want %d: %s", sig, code, want, c.err.String())
			}
			await(t, "it has left the queue", func() bool { return inspect(t, url(s), "w").Waiting == 0 })
		}
	})
	started := func(c *call) {
		await(t, "the command runs", func() bool { return strings.Contains(c.out.String(), "started") })
	}
	t.Run("the command gets it, and its code is the code", func(t *testing.T) {
		c := begin(t, url(s), "run", "b", "--", "sh", "-c", "trap 'exit 3' TERM; echo started; while :; do sleep 0.02; done")
		started(c)
		_ = c.Process.Signal(syscall.SIGTERM)
		if code := c.code(); code != 3 {
			t.Errorf("exit %d: %s", code, c.err.String())
		}
	})
	t.Run("a second one kills", func(t *testing.T) {
		c := begin(t, url(s), "run", "c", "--", "sh", "-c", "trap '' TERM INT; echo started; while :; do sleep 0.02; done")
		started(c)
		await(t, "it ends", func() bool {
			_ = c.Process.Signal(syscall.SIGINT)
			return !inspect(t, url(s), "c").Held
		})
		if code := c.code(); code != 137 {
			t.Errorf("exit %d: %s", code, c.err.String())
		}
	})
	t.Run("what is left in the group ends before the release", func(t *testing.T) {
		c := begin(t, url(s), "run", "-grace", "0.3", "d", "--", "sh", "-c", "(trap '' TERM; while :; do sleep 0.02; done) >/dev/null 2>&1 & echo $$")
		if code := c.code(); code != 0 {
			t.Errorf("exit %d: %s", code, c.err.String())
		}
		var group int
		if _, err := fmt.Sscan(c.out.String(), &group); err != nil || syscall.Kill(-group, 0) == nil && len(living(t, "LOCKSTEP_KEY=d\x00")) > 0 {
			t.Errorf("the group %d lives: %v", group, err)
		}
	})
}

// TestARunThatEndsWellSaysNothing: also not the guard, a while after it last heard of the lease.
func TestARunThatEndsWellSaysNothing(t *testing.T) {
	s := redistest.Start(t)
	if code, out, err := run(t, url(s), "run", "-ttl", "9s", "q", "--", "sleep", "1.5"); code != 0 || out+err != "" {
		t.Errorf("exit %d: %s%s", code, out, err)
	}
}

func TestTwoHostsOfACronJobRunItOnce(t *testing.T) {
	s := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "ran")
	job := []string{"run", "-n", "-E", "0", "-ttl", "28s", "-at-least", "29s", "report", "--", "sh", "-c", "sleep 0.01; echo $LOCKSTEP_FENCE >> " + file}
	first, second := begin(t, url(s), job...), begin(t, url(s), job...)
	for _, c := range []*call{first, second} {
		if code := c.code(); code != 0 {
			t.Errorf("exit %d: %s", code, c.err.String())
		}
	}
	if code, _, err := run(t, url(s), job...); code != 0 { // a host whose clock is late: the job has ended long ago
		t.Errorf("exit %d: %s", code, err)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), "\n") != 1 {
		t.Errorf("it ran so often: %q, %v", text, err)
	}
}

func TestTheCommandGetsNoSecret(t *testing.T) {
	s := redistest.Start(t, redistest.WithPassword("hunter2"))
	_ = s
	store := "redis://:hunter2@" + s.Addr()
	script := "tr '\\0' '\\n' < /proc/self/environ; cat /proc/$PPID/cmdline; " +
		"for p in /proc/[0-9]*; do case $(tr '\\0' ' ' < $p/cmdline 2>/dev/null) in lockstep-guard*) tr '\\0' '\\n' < $p/environ; esac; done"
	out := must(t, store, "run", "-holder", "me", "e", "--", "sh", "-c", script+"; redis-cli -p "+strings.TrimPrefix(s.Addr(), "127.0.0.1:")+" -a hunter2 --no-auth-warning GET e | sed 's/^me /token: /'")
	token := strings.TrimSpace(out[strings.LastIndex(out, " ")+1:])
	if len(token) != 26 {
		t.Fatalf("no token: %s", out)
	}
	if strings.Count(out, token) != 1 || strings.Contains(strings.ReplaceAll(out, "-a hunter2", ""), "hunter2") {
		t.Errorf("a secret is there: %s", out)
	}
	for _, want := range []string{"LOCKSTEP_KEY=e", "LOCKSTEP_FENCE=", "LOCKSTEP_TTL_MS=30000", "LOCKSTEP_HOLDER=me"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s", want)
		}
	}
	if out := must(t, store, "run", "-pass-store", "e", "--", "env"); !strings.Contains(out, store) {
		t.Error("-pass-store does nothing")
	}
}

func TestScriptsTakeExtendAndRelease(t *testing.T) {
	s := redistest.Start(t)
	token := must(t, url(s), "acquire", "-ttl", "20s", "-holder", "script", "d")
	if k := inspect(t, url(s), "d"); !k.Held || k.Holds[0].Holder != "script" {
		t.Errorf("%+v", k)
	}
	feed := func(text string, args ...string) int {
		c := prepare(t, url(s), args...)
		c.Stdin = strings.NewReader(text)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c.code()
	}
	if code := feed(token, "extend", "-ttl", "29s", "d"); code != 0 || inspect(t, url(s), "d").Holds[0].LeftMS < 21_000 {
		t.Errorf("extend = %d", code)
	}
	if code := feed("script AAAAAAAAAAAAAAAAAAAAAAAAAA\n", "release", "-token-file", "-", "d"); code != 74 {
		t.Errorf("a release with another token = %d", code)
	}
	if code := feed(`{"token":"x"}`, "extend", "d"); code != 64 {
		t.Errorf("what is no token = %d", code)
	}
	if code := feed(token, "release", "-token-file", "-", "d"); code != 0 || inspect(t, url(s), "d").Held {
		t.Errorf("release = %d", code)
	}
	if code := feed(token, "extend", "d"); code != 74 {
		t.Errorf("extend after the release = %d", code)
	}
	file := filepath.Join(t.TempDir(), "token")
	must(t, url(s), "acquire", "-token-file", file, "d")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	must(t, url(s), "release", "-token-file", file, "d")
	if code, _, _ := run(t, url(s), "acquire", "-token-file", filepath.Join(file, "no"), "d"); code != 64 || inspect(t, url(s), "d").Held {
		t.Errorf("a token that can't be written = %d", code)
	}
}

func TestAForcedReleaseEndsOnlyWhatWasSeen(t *testing.T) {
	s := redistest.Start(t)
	must(t, url(s), "acquire", "-ttl", "5m", "stuck")
	seen := inspect(t, url(s), "stuck").Holds[0].Print
	code, out, _ := run(t, url(s), "release", "stuck")
	if want := "lockstep release stuck -print " + seen; code != 75 || !strings.Contains(out, want) {
		t.Errorf("release = %d: %s, want %q", code, out, want)
	}
	code, _, err := run(t, url(s), "release", "stuck", "-print", seen, "-reason", "host is gone", "-yes")
	if k := inspect(t, url(s), "stuck"); code != 0 || !k.Held || !k.Holds[0].Evicted || !strings.Contains(err, `reason="host is gone"`) {
		t.Errorf("release = %d: %s: %+v", code, err, k)
	}
	if code, _, _ := run(t, url(s), "release", "stuck", "-print", seen, "-yes"); code != 75 {
		t.Errorf("a second release = %d", code)
	}
	must(t, url(s), "release", "stuck", "-print", inspect(t, url(s), "stuck").Holds[0].Print, "-now", "-yes")
	if inspect(t, url(s), "stuck").Held {
		t.Error("it is held after -now")
	}
}

func TestLooking(t *testing.T) {
	s := redistest.Start(t)
	for i := range 3 {
		must(t, url(s), "acquire", "-ttl", "5m", "-holder", fmt.Sprint("h", i), fmt.Sprint("job/", i))
	}
	s.Do("SET", "job/\x1b[2Jx", "v", "PX", "60000")
	out := must(t, url(s), "list", "-prefix", "job/")
	for _, want := range []string{"h0", "job/0", "h2", "job/2", "other software", `"job/\x1b[2Jx"`} {
		if !strings.Contains(out, want) {
			t.Errorf("list has no %q: %s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("list lets a key speak to the terminal")
	}
	lines := strings.Split(strings.TrimSpace(must(t, url(s), "list", "-json", "-prefix", "job/")), "\n")
	for _, line := range lines {
		var k key
		if err := json.Unmarshal([]byte(line), &k); err != nil || !k.Held || len(lines) != 4 {
			t.Errorf("%s: %v", line, err)
		}
	}
	if out := must(t, url(s), "list", "-limit", "2", "-prefix", "job/"); strings.Count(out, "job/") != 2 {
		t.Errorf("-limit 2: %s", out)
	}
	if out := must(t, url(s), "list", "-held-over", "1h", "-prefix", "job/"); !strings.Contains(out, "no lock that is held matches") {
		t.Errorf("-held-over: %s", out)
	}
	if out := must(t, url(s), "-key-prefix", "job/", "list"); !strings.Contains(out, "h1") {
		t.Errorf("-key-prefix: %s", out)
	}
	for _, line := range strings.Split(strings.TrimRight(must(t, url(s), "top", "-prefix", "job/"), "\n"), "\n") {
		if strings.Contains(line, "\x1b") {
			t.Errorf("top has control sequences without a terminal: %q", line)
		}
	}

	w := begin(t, url(s), "watch", "-json", "deploy")
	await(t, "the first state", func() bool { return strings.Count(w.out.String(), "\n") == 1 })
	must(t, url(s), "run", "-holder", "deployer", "deploy", "--", "true")
	token := must(t, url(s), "acquire", "deploy")
	await(t, "the changes", func() bool { return strings.Contains(w.out.String(), `acquire`) })
	_ = w.Process.Signal(syscall.SIGTERM)
	if code := w.code(); code != 0 || strings.Contains(w.out.String(), strings.TrimSpace(token)) {
		t.Errorf("watch = %d: %s", code, w.out.String())
	}
}

func TestServeShowsTheLocksOfTheStores(t *testing.T) {
	all := redistest.StartN(t, 2)
	must(t, url(all[0]), "acquire", "-ttl", "5m", "-holder", "me", "job/1")
	address := regexp.MustCompile(`http://\S+`)
	get := func(c *call, path string) string {
		await(t, "the address", func() bool { return address.MatchString(c.err.String()) })
		answer, err := http.Get(address.FindString(c.err.String()) + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, answer.Status, err)
		}
		return string(text)
	}
	for _, c := range []struct {
		store, path string
		call        *call
	}{
		{url(all[0]), "/?format=json", nil},
		{url(all[0]) + " " + url(all[1]), "/1/?format=json", nil},
	} {
		c.call = begin(t, c.store, "serve", "-listen", "127.0.0.1:0", "-prefix", "job/")
		await(t, "the lock is on the page", func() bool { return strings.Contains(get(c.call, c.path), `"holder":"me"`) })
		if len(strings.Fields(c.store)) == 2 && !strings.Contains(get(c.call, "/"), `href="2/"`) {
			t.Error("the second node has no link")
		}
		_ = c.call.Process.Signal(syscall.SIGTERM)
		if code := c.call.code(); code != 0 {
			t.Errorf("exit %d: %s", code, c.call.err.String())
		}
	}
}

// What is a name in one URL of a quorum makes no password of another one.
func TestTheCommandKeepsAStoreWithoutAPassword(t *testing.T) {
	nodes := redistest.StartN(t, 3)
	for _, s := range nodes {
		s.Do("ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all")
	}
	for with, want := range map[string]bool{"": true, ":hunter2": false} {
		store := fmt.Sprintf("redis://%s redis://app@%s redis://app%s@%s", nodes[0].Addr(), nodes[1].Addr(), with, nodes[2].Addr())
		out := must(t, store, "run", "-strategy", "redlock", "-max-ttl", "1s", "-ttl", "990ms", "-w", "1m", "-keep-going", "a", "--", "sh", "-c", "env; exit 0")
		if strings.Contains(out, "LOCKSTEP_STORE="+store+"\n") != want {
			t.Errorf("password %q: the command has %s", with, out)
		}
	}
}

// A list without a prefix tells the locks among other data, and how much other data there is.
func TestAListWithoutAPrefixPassesOverOtherData(t *testing.T) {
	s := redistest.Start(t)
	s.Do("SET", "cache", "value", "PX", "600000")
	if code, _, err := run(t, url(s), "list"); code != 0 || !strings.Contains(err, "of Lockstep: 1 key; -prefix") {
		t.Errorf("list beside one other key = %d: %s", code, err)
	}
	s.Do("DEL", "cache")
	s.Do("EVAL", `for i = 1, ARGV[1] do
		redis.call('SET', 'cache/' .. i, 'value ' .. i, 'PX', 600000)
		redis.call('SET', 'page/' .. i, string.rep('a', 26))
		redis.call('HSET', 'user/' .. i, 'name', i)
		redis.call('ZADD', 'score/' .. i, i, 'player')
		redis.call('RPUSH', 'jobs/' .. i, i)
	end`, "0", others(t))
	total, _ := strconv.Atoi(others(t))
	must(t, url(s), "acquire", "-ttl", "10m", "-max-ttl", "10m", "-holder", "me", "deploy")
	must(t, url(s), "-strategy", "semaphore", "-permits", "2", "acquire", "-ttl", "10m", "-max-ttl", "10m", "-holder", "we", "permits")
	began := time.Now()
	code, out, err := run(t, url(s), "list")
	t.Logf("%d keys in %v", 5*total+2, time.Since(began))
	if code != 0 || !strings.Contains(out, "deploy") || !strings.Contains(out, "permits") || strings.Count(out, "\n") != 3 ||
		!strings.Contains(err, fmt.Sprintf("%d keys", 5*total)) {
		t.Errorf("list = %d: %s%s", code, out, err)
	}
	if code, out, err := run(t, url(s), "list", "-json"); code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(err, "passed over") {
		t.Errorf("list -json = %d: %s%s", code, out, err)
	}
	if out := must(t, url(s), "top"); !strings.Contains(out, "2 locks") || !strings.Contains(out, fmt.Sprintf("passed over %d other keys", 5*total)) {
		t.Errorf("top: %s", out)
	}
	if code, out, err := run(t, url(s), "list", "-prefix", "cache/1"); code != 0 || !strings.Contains(out, "other software") || strings.Contains(err, "passed") {
		t.Errorf("list -prefix = %d: %s%s", code, out, err)
	}
}

// others is how many keys of other software there are of each kind.
func others(testing.TB) string {
	if full.Size() {
		return "100000"
	}
	return "300"
}

// The token of a script is one word, whatever the label is, so that a script may forget the quotes.
func TestTheTokenOfAScriptIsOneWord(t *testing.T) {
	s := redistest.Start(t)
	for _, holder := range []string{"", "script", "a job of ann", "50%/x"} {
		args := []string{"acquire", "-ttl", "29s", "k"}
		if holder != "" {
			args = append(args, "-holder", holder)
		}
		token := must(t, url(s), args...)
		if len(strings.Fields(token)) != 1 {
			t.Errorf("holder %q: the token is %q", holder, token)
		}
		if k := inspect(t, url(s), "k"); holder != "" && k.Holds[0].Holder != holder {
			t.Errorf("%q holds it, not %q", k.Holds[0].Holder, holder)
		}
		for _, call := range [][]string{{"extend", "-ttl", "29s", "k"}, {"release", "-token-file", "-", "k"}} {
			c := prepare(t, url(s), call...)
			c.Stdin = strings.NewReader(strings.TrimSpace(token))
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if code := c.code(); code != 0 {
				t.Errorf("holder %q: %s = %d: %s", holder, call[0], code, c.err.String())
			}
		}
	}
	// A token of an earlier version.
	c := prepare(t, url(s), "extend", "k")
	c.Stdin = strings.NewReader("me " + strings.Repeat("A", 26))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if code := c.code(); code != 74 {
		t.Errorf("extend with an old token = %d: %s", code, c.err.String())
	}
}

func TestVersion(t *testing.T) {
	if out := must(t, "", "version"); !strings.HasPrefix(out, "lockstep ") || !strings.Contains(out, "  go1.") {
		t.Errorf("version: %s", out)
	}
	var b struct{ Version, Go string }
	if err := json.Unmarshal([]byte(must(t, "", "version", "-json")), &b); err != nil || b.Version == "" || b.Go == "" {
		t.Errorf("version -json: %+v, %v", b, err)
	}
}

// The wait ends with -w although the server does not answer. The lease is ten minutes: an attempt that the
// wait does not end would come back after all tests. How soon after the limit it ends is a sentence of lockertest.
func TestAWaitEndsAlsoIfTheServerDies(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("SET", "held", "x", "PX", "600000")
	c := begin(t, url(s), "run", "-ttl", "10m", "-max-ttl", "10m", "-w", "4s", "held", "--", "true")
	await(t, "it waits", func() bool { return inspect(t, url(s), "held").Waiting == 1 || c.ended() })
	s.Pause()
	await(t, "it ends", c.ended)
	if code := c.code(); code != 69 && code != 75 {
		t.Errorf("exit %d: %s", code, c.err.String())
	}
}
