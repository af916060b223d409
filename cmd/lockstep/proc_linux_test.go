package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// living are the processes with some text in their environment that are no zombies.
func living(t testing.TB, text string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if env, err := os.ReadFile(file); err != nil || !strings.Contains("\x00"+string(env), "\x00"+text) {
			continue // a zombie has none
		}
		pids = append(pids, strings.Split(file, "/")[2])
	}
	return pids
}

// stubborn ignores TERM, forks, and writes down when it was alive, in microseconds.
const stubborn = `beat() { trap '' TERM INT HUP; while :; do echo ${EPOCHREALTIME/[.,]/} >> %[1]s.$1; sleep 0.02; done; }
beat 1 & beat 2`

func beats(t *testing.T, file string) (last time.Time) {
	for _, f := range []string{file + ".1", file + ".2"} {
		text, _ := os.ReadFile(f)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		for _, line := range lines {
			var us int64
			if _, err := fmt.Sscan(line, &us); err == nil && time.UnixMicro(us).After(last) {
				last = time.UnixMicro(us)
			}
		}
	}
	return last
}

var leaseEnd = regexp.MustCompile(`the lease ends at (\S+)`)

// end is the last end of a lease that run -v has told.
func (c *call) end() (at time.Time) {
	for _, m := range leaseEnd.FindAllStringSubmatch(c.err.String(), -1) {
		if t, err := time.Parse(time.RFC3339Nano, m[1]); err == nil && t.After(at) {
			at = t
		}
	}
	return at
}

// ended tells whether the process has ended, before anybody waits for it.
func (c *call) ended() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}

func TestTheCommandIsKilledBeforeTheLeaseEnds(t *testing.T) {
	var inTime atomic.Int32
	t.Cleanup(func() {
		if inTime.Load() == 0 && !t.Failed() {
			t.Error("in no case did the command end before the lease")
		}
	})
	for _, fault := range []struct {
		name   string
		strike func(s *redistest.Server, p *redistest.Proxy)
	}{
		{"server stopped", func(s *redistest.Server, _ *redistest.Proxy) { s.Pause() }},
		{"network cut", func(_ *redistest.Server, p *redistest.Proxy) { p.BlackHole(true) }},
		{"connections reset", func(s *redistest.Server, p *redistest.Proxy) { s.Kill(); p.CutAll() }},
		{"key deleted", func(s *redistest.Server, _ *redistest.Proxy) { s.Do("DEL", "k") }},
		{"key stolen", func(s *redistest.Server, _ *redistest.Proxy) { s.Do("SET", "k", "thief", "PX", "60000") }},
		{"permission withdrawn", func(s *redistest.Server, _ *redistest.Proxy) {
			s.Do("ACL", "SETUSER", "worker", "-@all", "+hello", "+auth", "+ping")
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			s.Do("ACL", "SETUSER", "worker", "on", "nopass", "~*", "&*", "+@all")
			p := redistest.NewProxy(t, s.Addr())
			file := filepath.Join(t.TempDir(), "beats")
			holder := fmt.Sprintf("fault-%d", rand.Uint64())
			c := begin(t, "redis://worker:any@"+p.Addr(), "run", "-v", "-json", "-ttl", "10s", "-grace", "2s", "-holder", holder, "k", "--",
				"bash", "-c", fmt.Sprintf(stubborn, file))
			await(t, "it was renewed", func() bool {
				return strings.Count(c.err.String(), "the lease ends at") >= 2 && !beats(t, file).IsZero()
			})
			fault.strike(s, p)
			if code := c.code(); code != 74 {
				t.Errorf("exit %d: %s", code, c.err.String())
			}
			await(t, "nothing lives", func() bool { return len(living(t, "LOCKSTEP_HOLDER="+holder)) == 0 })
			if late := beats(t, file).Sub(c.end()); late < 0 {
				inTime.Add(1)
			} else if full.Size() {
				t.Errorf("the command lived for %v after the lease: %s", late, c.err.String())
			}
			if !strings.Contains(c.err.String(), `"exit":74`) {
				t.Errorf("-json: %s", c.err.String())
			}
		})
	}
}

// TestTheCommandHasItsGraceBeforeTheLeaseEnds: the guard alone would kill it without TERM.
func TestTheCommandHasItsGraceBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := begin(t, url(s), "run", "-v", "-ttl", "15s", "-grace", "7s", "k", "--",
		"sh", "-c", "trap 'echo cleaned; exit 0' TERM; echo started; while :; do sleep 0.02; done")
	await(t, "it runs", func() bool { return strings.Contains(c.out.String(), "started") })
	s.Pause()
	if code := c.code(); code != 74 || !strings.Contains(c.out.String(), "cleaned") {
		t.Errorf("exit %d: %s%s", code, c.out.String(), c.err.String())
	}
}

func TestKeepGoingOnlyReports(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "go")
	c := begin(t, url(s), "run", "-keep-going", "-ttl", "9s", "k", "--", "sh", "-c", "while ! [ -e "+file+" ]; do sleep 0.02; done; echo done")
	await(t, "it holds", func() bool { return inspect(t, url(s), "k").Held })
	s.Do("DEL", "k")
	await(t, "it says so", func() bool { return strings.Contains(c.err.String(), "goes on") })
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.code(); code != 74 || !strings.Contains(c.out.String(), "done") {
		t.Errorf("exit %d: %s%s", code, c.out.String(), c.err.String())
	}
}

// TestNothingOutlivesTheLease kills lockstep at any moment, or stops it.
func TestNothingOutlivesTheLease(t *testing.T) {
	rounds, ttl := 200, "900ms"
	if !full.Size() {
		t.Parallel()
		rounds, ttl = 12, "6s" // the grace ends long before the lease, unless lockstep is stopped
	}
	s := redistest.Start(t)
	ran := 0
	for i := range rounds {
		file := filepath.Join(t.TempDir(), fmt.Sprint("beats", i))
		holder := fmt.Sprintf("round-%d-%d", i, rand.Uint64())
		c := begin(t, url(s), "run", "-v", "-ttl", ttl, "-grace", "200ms", "-holder", holder, fmt.Sprint("k", i), "--",
			"bash", "-c", fmt.Sprintf(stubborn, file))
		if i%2 == 0 { // else at any moment, also while it starts
			await(t, "it runs, or has lost its lock before it could", func() bool { return !beats(t, file).IsZero() || c.ended() })
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // not to settle: the moment is part of the test
		sig := syscall.SIGKILL
		if i%6 == 4 {
			sig = syscall.SIGSTOP
		}
		_ = c.Process.Signal(sig)
		await(t, "nothing lives", func() bool { return len(living(t, "LOCKSTEP_HOLDER="+holder)) == 0 })
		if sig == syscall.SIGSTOP {
			_ = c.Process.Signal(syscall.SIGCONT)
		}
		code := c.code()
		if sig == syscall.SIGSTOP && code != 74 {
			t.Errorf("round %d: exit %d: %s", i, code, c.err.String())
		}
		last := beats(t, file)
		if last.IsZero() {
			continue // it was killed before the command ran
		}
		ran++
		if end := c.end(); !last.Before(end) && (full.Size() || sig == syscall.SIGKILL) {
			t.Errorf("round %d: the command lived for %v after the lease: %s", i, last.Sub(end), c.err.String())
		}
	}
	t.Logf("the command ran in %d of %d rounds", ran, rounds)
	if ran < rounds/3 {
		t.Errorf("the command ran in %d of %d rounds only", ran, rounds)
	}
}

// TestAGuardIsReplaced kills the guard, and then lockstep.
func TestAGuardIsReplaced(t *testing.T) {
	s := redistest.Start(t)
	guards := func(parent int) (pids []int) {
		all, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, f := range all {
			text, _ := os.ReadFile(f)
			var pid, ppid int
			var name, state string
			_, _ = fmt.Sscan(string(text), &pid, &name, &state, &ppid)
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if ppid == parent && strings.HasPrefix(string(line), "lockstep-guard") {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	holder := fmt.Sprintf("guarded-%d", rand.Uint64())
	c := begin(t, url(s), "run", "-ttl", "29s", "-holder", holder, "k", "--", "sh", "-c", "echo started; exec sleep 600")
	// Without a guard that watches, nothing would start.
	await(t, "the command runs", func() bool { return strings.Contains(c.out.String(), "started") })
	await(t, "a guard", func() bool { return len(guards(c.Process.Pid)) == 1 })
	first := guards(c.Process.Pid)[0]
	_ = syscall.Kill(first, syscall.SIGKILL)
	await(t, "another guard", func() bool { now := guards(c.Process.Pid); return len(now) == 1 && now[0] != first })
	_ = c.Process.Kill()
	_ = c.Wait()
	await(t, "nothing lives", func() bool { return len(living(t, "LOCKSTEP_HOLDER="+holder)) == 0 })
}
