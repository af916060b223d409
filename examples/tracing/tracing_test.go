package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

const programEnv = "LOCKSTEP_TRACING_TEST_PROGRAM"

// The test binary is the program as well, so that what it runs is built with the race detector if the tests are.
func TestMain(m *testing.M) {
	if isChild() || os.Getenv(programEnv) != "" {
		main()
		return
	}
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // or each of the processes takes a second to exit
	os.Exit(redistest.Main(m))
}

// patientTTL lets a machine stand still for four seconds before the one loss has another reason than it should.
const patientTTL = 6 * time.Second

func program(t *testing.T, addr string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(t.Context(), os.Args[0], append([]string{"-ttl", patientTTL.String()}, args...)...)
	cmd.Env = append(os.Environ(), programEnv+"=1", "REDIS_ADDR="+addr)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

func TestTheProgramInAPipe(t *testing.T) {
	for _, name := range []string{"with its own server", "with a real one"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := ""
			if name == "with a real one" {
				server := redistest.Start(t)
				addr = server.Addr()
				defer func() {
					if n, err := server.Do("DBSIZE"); err != nil || n != int64(0) {
						t.Errorf("%v keys are left, %v", n, err)
					}
				}()
			}
			picture := filepath.Join(t.TempDir(), "waterfall.svg")
			cmd, stdout, stderr := program(t, addr, "-requests", "4", "-work", "20ms", "-width", "120", "-svg", picture)
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, stdout, stderr)
			}
			if stderr.Len() > 0 {
				t.Errorf("stderr: %s", stderr)
			}
			text := stdout.String()
			if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
				t.Errorf("control character %q in a pipe", text[i])
			}
			waterfalls, _, _ := strings.Cut(text, "\nThe metrics")
			for line := range strings.Lines(waterfalls) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 120 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			for _, want := range []string{
				"\n7 requests to two processes", "timeout ×", "busy ×1", "lost: stolen", "lock renew (linked)", "   5 holds\n",
				"lock.losses            lock.lost.reason=stolen", "leads to trace ",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
			svg, err := os.ReadFile(picture)
			if err != nil {
				t.Fatal(err)
			}
			wellFormed(t, svg)
		})
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	requests, seen, err := play(t.Context(), server.Addr(), plan{requests: 2, work: 20 * time.Millisecond, ttl: patientTTL})
	if err != nil {
		t.Fatal(err)
	}
	if err := check(requests, seen); err != nil {
		t.Fatalf("nothing is wrong, but check says: %v", err)
	}

	without := func(wrong func(s span) bool) func(*telemetry) {
		return func(seen *telemetry) { seen.Spans = slices.DeleteFunc(seen.Spans, wrong) }
	}
	named := func(name string) func(s span) bool { return func(s span) bool { return s.Name == name } }
	set := func(name, attribute, value string) func(*telemetry) {
		return func(seen *telemetry) {
			for _, s := range seen.Spans {
				if s.Name == name && s.Attributes[attribute] != "" {
					s.Attributes[attribute] = value
				}
			}
		}
	}
	each := func(name string, change func(p *point)) func(*telemetry) {
		return func(seen *telemetry) {
			for i := range seen.Points {
				if seen.Points[i].Name == name {
					change(&seen.Points[i])
				}
			}
		}
	}
	for _, c := range []struct {
		sentence string
		spoil    func(*telemetry)
		says     string
	}{
		{"a request has no root", without(named("request 1")), `request 1 has 0 spans "request 1"`},
		{"the trace does not reach the process", without(named("POST /")), `0 spans "POST /"`},
		{"an orphan", func(seen *telemetry) { seen.Spans = append(seen.Spans, span{ID: "x", Parent: "y"}) }, "1 spans are below one that is missing"},
		{"no acquire", without(named("lock acquire")), `0 spans "lock acquire"`},
		{"an attempt is missing", without(func(s span) bool {
			return s.Name == "lock acquire" && s.Attributes["lock.outcome"] == "busy" && s.Attributes["lock.contended"] == "true" &&
				slices.ContainsFunc(seen.Spans, func(p span) bool { return p.ID == s.Parent && p.Name == s.Name })
		}), "spans of attempts"},
		{"no hold", without(named("lock hold")), `0 spans "lock hold"`},
		{"the work is not under the hold", without(named("work")), `0 spans "work" below "lock hold"`},
		{"no release", without(named("lock release")), `0 spans "lock release"`},
		{"no renew", without(named("lock renew")), "no lock renew is linked"},
		{"another outcome", set("lock acquire", "lock.outcome", "error"), `the outcome is "error", want timeout`},
		{"another loss", set("lock hold", "lock.lost.reason", "expired"), `it was "expired", want stolen`},
		{"another answer", set("POST /", "http.response.status_code", "418"), "was answered by"},
		{"a hold begins too soon", func(seen *telemetry) {
			w := arrange(seen.Spans)
			for i := range seen.Spans {
				if s := &seen.Spans[i]; s.Name == "lock hold" && s.From.After(w.holds[0].from) {
					s.From = w.holds[0].to.Add(-1)
				}
			}
		}, "holds overlap"},
		{"a Lock is not counted", each(acquireDuration, func(p *point) { p.Count-- }), "lock.acquire.duration{lock.outcome=busy} is 0, want 1"},
		{"a hold is not counted", each("lock.hold.duration", func(p *point) { p.Count-- }), "lock.hold.duration{} is"},
		{"a loss is counted twice", each("lock.losses", func(p *point) { p.Value++ }), "lock.losses{} is 2, want 1"},
		{"a lock is held for ever", each("lock.held", func(p *point) { p.Value++ }), "lock.held{} is"},
		{"one waits for ever", each("lock.waiting", func(p *point) { p.Value++ }), "lock.waiting{} is"},
		{"no metrics", func(seen *telemetry) { seen.Points = nil }, "lock.held{} is 0"},
		{"exemplars of nothing", each(acquireDuration, func(p *point) { p.Exemplars = nil }), "leads to no trace"},
	} {
		spoiled := telemetry{Spans: slices.Clone(seen.Spans), Points: slices.Clone(seen.Points)}
		for i := range spoiled.Spans {
			spoiled.Spans[i].Attributes = maps.Clone(spoiled.Spans[i].Attributes)
		}
		c.spoil(&spoiled)
		if err := check(requests, spoiled); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: check says %v, want %q", c.sentence, err, c.says)
		}
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	const nobody = "127.0.0.1:1" // not a port that was free a moment ago: servers of other tests start beside
	cmd, _, stderr := program(t, nobody)
	exit := (*exec.ExitError)(nil)
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit status 1", err)
	}
	if want := "tracing: no server at " + nobody; !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("stderr is %q, want %q", stderr, want)
	}
}

// A child must not outlive a parent that was killed: all it has of it then is pipes that end.
func TestAChildEndsWithItsPipesInTheMiddleOfARequest(t *testing.T) {
	for name, killed := range map[string]bool{"the parent listens": false, "the parent is gone, and its server": true} {
		t.Run(name, func(t *testing.T) {
			server, err := embedded.Start()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			p, err := start(t.Context(), task{Service: "app-1", Addr: server.Addr(), Key: "key", TTL: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer p.stop()
			d := newDriver(t.Context())
			r := &request{name: "request", to: p, order: order{UntilTold: true}, answer: http.StatusInternalServerError, held: make(chan struct{})}
			done := make(chan error, 1)
			go func() { done <- d.post(r) }()
			d.wait(r.held)
			watchdog := time.AfterFunc(endLimit/2, func() { p.cmd.Process.Kill() })
			var seen telemetry
			if killed {
				server.Close()
				p.pipe.Close()
				p.stdin.Close()
				p.cmd.Wait()
			} else {
				seen, err = p.finish()
			}
			ended := <-done
			if !watchdog.Stop() {
				t.Fatal("it did not end by itself")
			}
			if killed {
				return
			}
			if err != nil || ended != nil {
				t.Errorf("%v; the request: %v", err, ended)
			}
			if !slices.ContainsFunc(seen.Spans, func(s span) bool { return s.Name == "lock hold" }) {
				t.Errorf("no hold in %v", seen.Spans)
			}
		})
	}
}

func TestASpanSurvivesThePipe(t *testing.T) {
	want := fixture()[3]
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got span
	if err := json.Unmarshal(text, &got); err != nil || !got.From.Equal(want.From) || got.Attributes["lock.outcome"] != "acquired" || got.ID != want.ID {
		t.Errorf("%+v is %+v, %v", want, got, err)
	}
}

// wellFormed also finds what a picture must not have.
func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok {
			if !slices.Contains([]string{"svg", "title", "desc", "style", "rect", "line", "text"}, e.Name.Local) {
				t.Errorf("there is a %s in it", e.Name.Local)
			}
			for _, a := range e.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || a.Name.Local == "href" {
					t.Errorf("%s has %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
}
