package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/daemon"
)

// TestMain checks that all tests together leave no goroutine and no server behind. It also runs in
// the process that dies in TestServersDieWithTheTestProcess.
func TestMain(m *testing.M) {
	code := Main(m)
	if code == 0 && !poll(func() bool { return len(ownGoroutines()) == 0 }) {
		fmt.Fprintf(os.Stderr, "FAIL: goroutines left:\n%s\n", strings.Join(ownGoroutines(), "\n\n"))
		code = 1
	}
	os.Exit(code)
}

func ownGoroutines() []string {
	buf := make([]byte, 1<<20)
	var own []string
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if (strings.Contains(stack, "/redistest.") || strings.Contains(stack, "/daemon.")) && !strings.Contains(stack, "redistest.TestMain") {
			own = append(own, stack)
		}
	}
	return own
}

// poll waits for a condition that must come true within seconds.
func poll(cond func() bool) bool {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if cond() {
			return true
		}
	}
	return false
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if !poll(cond) {
		t.Fatalf("waited in vain: %s", what)
	}
}

func want(t *testing.T, s *Server, wanted any, args ...string) {
	t.Helper()
	got, err := s.Do(args...)
	if err != nil || !reflect.DeepEqual(got, wanted) {
		t.Fatalf("%q = %#v, %v; want %#v", args, got, err, wanted)
	}
}

// refuses reports whether nothing listens on addr, which also holds for a zombie.
func refuses(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return true
	}
	conn.Close()
	return false
}

func TestDoReturnsEveryKindOfReply(t *testing.T) {
	s := Start(t)
	want(t, s, "PONG", "PING")
	want(t, s, nil, "GET", "k")
	want(t, s, "OK", "SET", "k", "line\r\nline")
	want(t, s, "line\r\nline", "GET", "k")
	want(t, s, int64(1), "DEL", "k")
	want(t, s, []any{int64(1), nil, "x", Error("ERR y"), []any{}}, "EVAL", "return {1, false, 'x', {err='ERR y'}, {}}", "0")
	_, err := s.Do("EVALSHA", "00", "0")
	if e, ok := errors.AsType[Error](err); !ok || !strings.HasPrefix(e.Error(), "NOSCRIPT ") {
		t.Errorf("EVALSHA of an unknown script: %v", err)
	}
}

func TestServersAreIndependentAndEndWithTheTest(t *testing.T) {
	var servers []*Server
	t.Run("while they run", func(t *testing.T) {
		servers = StartN(t, 3)
		for i, s := range servers {
			want(t, s, "OK", "SET", "k", fmt.Sprint(i))
		}
		for i, s := range servers {
			want(t, s, fmt.Sprint(i), "GET", "k")
		}
		servers[1].Pause() // must not hinder the cleanup
	})
	for i, s := range servers {
		if s.Alive() || !refuses(s.Addr()) {
			t.Errorf("server %d still runs after its test", i)
		}
		s.Restart()
		if s.Alive() {
			t.Errorf("server %d was restarted after its test", i)
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []Option
		kept any
	}{
		{"with an fsynced AOF the data is kept", []Option{WithArgs("--appendonly", "yes", "--appendfsync", "always")}, "v"},
		{"by default the data is lost", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := Start(t, tc.opts...)
			addr, pid := s.Addr(), s.PID()
			want(t, s, "OK", "SET", "k", "v")
			s.Kill()
			if !refuses(addr) {
				t.Error("a killed server still listens")
			}
			if _, err := s.Do("PING"); err == nil || isReply(err) {
				t.Errorf("Do on a killed server: %v", err)
			}
			s.Kill() // does nothing the second time
			s.Restart()
			if s.Addr() != addr || s.PID() == pid {
				t.Errorf("restarted at %s with pid %d; was at %s with pid %d", s.Addr(), s.PID(), addr, pid)
			}
			want(t, s, tc.kept, "GET", "k")
		})
	}
}

func TestStopIsGraceful(t *testing.T) {
	s := Start(t, WithArgs("--save", "3600 1000"))
	want(t, s, "OK", "SET", "k", "v")
	s.Pause()
	s.Stop()
	if log := logOf(s); !strings.Contains(log, "bye bye") {
		t.Errorf("the server did not say goodbye:\n%s", log)
	}
	s.Restart()
	want(t, s, "v", "GET", "k") // saved at the end
}

func TestPausedServerIsSilentUntilResumed(t *testing.T) {
	s := Start(t)
	c := dial(t, s.Addr())
	for range 20 {
		s.Pause()
		if !daemon.StandsStill(s.PID()) {
			t.Fatal("Pause returned while the process was running")
		}
		c.send("PING")
		c.hearNothing(5 * time.Millisecond)
		s.Resume()
		c.wantReply("PONG")
	}
	s.Pause()
	s.Kill()
	s.Restart()
	want(t, s, "PONG", "PING")
}

// reported starts a server and returns it with what it reports.
func reported(t *testing.T) (*Server, *recorder) {
	t.Helper()
	Require(t)
	report := &recorder{TB: t}
	s, err := launch(report, t.TempDir(), config{})
	if err != nil {
		t.Fatal(err)
	}
	return s, report
}

func logOf(s *Server) (log string) {
	s.With(func(p *daemon.Process) error {
		log = p.Log()
		return nil
	})
	return log
}

func TestPauseOfADeadServerFails(t *testing.T) {
	s, report := reported(t)
	s.Kill()
	s.Pause()
	if !strings.Contains(report.text, "process already finished") {
		t.Errorf("reported: %q", report.text)
	}
}

func TestRestartOfARunningServerFails(t *testing.T) {
	s, report := reported(t)
	s.Restart()
	if !strings.Contains(report.text, "not stopped") {
		t.Errorf("reported: %q", report.text)
	}
}

func TestMethodsFromManyGoroutines(t *testing.T) {
	s := Start(t)
	var all sync.WaitGroup
	all.Go(func() {
		for range 5 {
			s.Kill()
			s.Restart()
			s.Pause()
		}
	})
	for range 3 {
		all.Go(func() {
			for range 50 {
				s.Resume()
				s.PID()
				_, _ = s.call(time.Millisecond, "PING")
			}
		})
	}
	all.Wait()
	s.Resume()
	want(t, s, "PONG", "PING")
}

func TestPassword(t *testing.T) {
	s := Start(t, WithPassword("secret"))
	want(t, s, "PONG", "PING")
	dial(t, s.Addr()).ask(Error("NOAUTH Authentication required."), "PING")
}

func TestFillWaitsForClientsThatLeave(t *testing.T) {
	s := Start(t)
	last := dial(t, s.Addr())
	last.ask("PONG", "PING")
	filled := make(chan struct{})
	go func() { s.Fill(); close(filled) }()
	await(t, "Fill is turned away", func() bool {
		last.send("INFO", "stats")
		stats, _ := last.receive(10 * time.Second)
		return !strings.Contains(stats.(string), "rejected_connections:0")
	})
	last.Close()
	<-filled
	if v, err := s.Do("PING"); err == nil || !strings.Contains(err.Error(), "max number of clients") {
		t.Errorf("the server is full and answers %v, %v", v, err)
	}
}

func TestRequire(t *testing.T) {
	Require(t)
	for _, tc := range []struct{ path, strict, want string }{
		{os.Getenv("PATH"), "1", ""},
		{t.TempDir(), "", "skip: LEFT OUT: redis-server is not installed"},
		{t.TempDir(), "0", "skip: LEFT OUT: redis-server is not installed"},
		{t.TempDir(), "1", "fatal: redis-server is not installed, and LOCKSTEP_REQUIRE_REDIS=1 forbids to leave the test out"},
	} {
		t.Setenv("PATH", tc.path)
		t.Setenv("LOCKSTEP_REQUIRE_REDIS", tc.strict)
		r := &recorder{TB: t}
		Require(r)
		leftOut = tally{} // no test is really left out here
		if !strings.HasPrefix(r.text, tc.want) || (tc.want == "") != (r.text == "") {
			t.Errorf("PATH=%s LOCKSTEP_REQUIRE_REDIS=%s: %q, want %q", tc.path, tc.strict, r.text, tc.want)
		}
	}
}

// A recorder records failures and skips in place of the test.
type recorder struct {
	testing.TB
	text string
}

func (r *recorder) Skipf(format string, args ...any) {
	r.text = "skip: " + fmt.Sprintf(format, args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.text = "fatal: " + fmt.Sprintf(format, args...)
}
func (r *recorder) Errorf(format string, args ...any) {
	r.text = "error: " + fmt.Sprintf(format, args...)
}
