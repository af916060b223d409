package redisstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/info"
)

func TestAcquiredReadsTheReplyOfTheScript(t *testing.T) {
	for _, c := range []struct {
		reply any
		want  backends.Result
		bad   bool
	}{
		{reply: []any{int64(1), int64(0)}, want: backends.Result{OK: true}},
		{reply: []any{int64(0), int64(1501), "ann"}, want: backends.Result{Left: 1500 * time.Millisecond, Holder: "ann"}},
		{reply: []any{int64(0), int64(1501), "ann\xff"}, want: backends.Result{Left: 1500 * time.Millisecond}}, // other software wrote it
		{reply: []any{int64(0), int64(-1), ""}, want: backends.Result{Foreign: true}},
		{reply: []any{int64(0), int64(-2), ""}, want: backends.Result{}}, // expired within the script's millisecond
		{reply: []any{int64(0), int64(0), ""}, want: backends.Result{Left: time.Millisecond}},
		{reply: []any{int64(0), int64(0)}, bad: true},
		{reply: []any{int64(2), int64(0)}, bad: true},
		{reply: []any{"1", int64(0)}, bad: true},
		{reply: []any{int64(1)}, bad: true},
		{reply: "OK", bad: true},
		{reply: nil, bad: true},
	} {
		got, err := acquired(c.reply, nil)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("acquired(%v) = %+v, %v; want %+v, error: %v", c.reply, got, err, c.want, c.bad)
		}
	}
}

func FuzzAcquired(f *testing.F) {
	f.Add(int64(1), int64(0), "x", 2)
	f.Fuzz(func(t *testing.T, a, b int64, s string, n int) {
		for _, reply := range []any{[]any{a, b}, []any{a, s}, []any{s, b}, a, s, []any{a, b, a}, []any{a, b, s}} {
			if r, err := acquired(reply, nil); err == nil && r.Left < 0 {
				t.Errorf("acquired(%v) = %+v", reply, r)
			}
		}
	})
}

func TestYesReadsOneAndZero(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		reply any
		err   error
		want  bool
		bad   bool
	}{
		{int64(1), nil, true, false}, {int64(0), nil, false, false}, {int64(2), nil, false, true}, {"1", nil, false, true},
		{nil, nil, false, true}, {int64(1), broken, false, true},
	} {
		got, err := yes(c.reply, c.err)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("yes(%v, %v) = %v, %v", c.reply, c.err, got, err)
		}
	}
}

// FuzzParseInfo: of a text that is no INFO at all, nothing is read that is not there, one more line
// is found behind it, and the strict form of quarantine and the report read the same.
func FuzzParseInfo(f *testing.F) {
	f.Add("# Server\r\nuptime_in_seconds:12\r\n", "role", "master")
	f.Add("uptime_in_seconds:7200\nuptime_in_seconds:1", "#role", "a:b")
	f.Add("uptime_in_seconds:-1", " ", "")
	f.Fuzz(func(t *testing.T, text, field, value string) {
		for name, value := range info.Parse(text) {
			if !strings.Contains(text, name+":"+value) || strings.HasPrefix(name, "#") || strings.ContainsAny(name+value, "\n") {
				t.Errorf("%q is %q, in %q", name, value, text)
			}
		}
		line := field + ":" + value
		if plain := !strings.ContainsAny(line, "\n#") && !strings.Contains(field, ":") && strings.TrimSpace(line) == line; plain {
			if got, found := info.Parse(text + "\n" + line)[field]; !found || got != value {
				t.Errorf("%q behind %q is read as %q, %v", line, text, got, found)
			}
		}

		r := Report{Uptime: -1}
		r.read(info.Parse(text))
		r.judge(time.Hour)
		young := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Problem == ProblemRestarted })
		unknown := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Problem == ProblemUptime })
		q := driver.NewQuarantine()
		q.Attach(time.Hour, time.Hour)
		err := q.Saw("", text, nil)
		mine := info.Parse(text)
		if master := mine["role"] == "" || mine["role"] == "master"; !master || info.Mode(mine) == "sentinel" {
			return
		}
		if refused := young || unknown; (err != nil) != refused || unknown != (r.Uptime < 0) || young && unknown {
			t.Errorf("up for %v, young: %v, unknown: %v; the strict form says %v", r.Uptime, young, unknown, err)
		}
	})
}

// A client library may mix up the replies of a connection, so that of one call comes to another.
func TestAnUnexpectedReplyIsShownWithoutTokens(t *testing.T) {
	const token = "ann ANNANNANNANNANNANNANNANNAN"
	for _, reply := range []any{token, []any{int64(7), token}, []any{[]any{token}}} {
		ctx, s := t.Context(), New(&answers{reply: reply})
		_, set := s.SetNX(ctx, "k", "v", time.Second)
		_, expire := s.ExpireIf(ctx, "k", "v", time.Second)
		_, number := s.SetNXNumbered(ctx, "k", "v", time.Second, backends.Turn{})
		_, enter := s.Enter(ctx, "k", "v", time.Second, backends.Admission{})
		_, inspect := s.Inspect(ctx, "k")
		_, evict := s.Evict(ctx, "k", "print", backends.Eviction{})
		_, _, left := s.Left(ctx, "k")
		for i, err := range []error{set, expire, number, enter, inspect, evict, left} {
			if err == nil || strings.Contains(err.Error(), "ANN") || !strings.Contains(err.Error(), "30 bytes") {
				t.Errorf("call %d for the reply %v = %v", i, reply, err)
			}
		}
	}
}

func TestReplicasErrorsSayHowManyAcknowledged(t *testing.T) {
	e := &ReplicasError{Acknowledged: 1, Needed: 2}
	if e.Error() != "1 of 2 replicas acknowledged in time" || e.ErrorType() != "replicas" {
		t.Errorf("%q, of type %q", e, e.ErrorType())
	}
}
