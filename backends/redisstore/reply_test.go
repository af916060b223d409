package redisstore

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

func TestAcquiredReadsTheReplyOfTheScript(t *testing.T) {
	for _, c := range []struct {
		reply any
		want  backends.Result
		bad   bool
	}{
		{reply: []any{int64(1), int64(0)}, want: backends.Result{OK: true}},
		{reply: []any{int64(0), int64(1500)}, want: backends.Result{Left: 1500 * time.Millisecond}},
		{reply: []any{int64(0), int64(-1)}, want: backends.Result{Foreign: true}},
		{reply: []any{int64(0), int64(-2)}, want: backends.Result{}}, // expired within the script's millisecond
		{reply: []any{int64(0), int64(0)}, want: backends.Result{}},
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
		for _, reply := range []any{[]any{a, b}, []any{a, s}, []any{s, b}, a, s, []any{a, b, a}} {
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

func TestReplyErrorsSayWhetherRepeatingHelps(t *testing.T) {
	for _, c := range []struct {
		text, code string
		refused    bool
		wrongType  bool
	}{
		{text: "NOPERM this user has no permissions to run the 'set' command", code: "NOPERM", refused: true},
		{text: "ERR Error running script (call to f_1): @user_script:1: -NOPERM this user", code: "NOPERM", refused: true},
		{text: "ERR The user executing the script can't publish to the channel mentioned in the command script: f", code: "NOPERM", refused: true},
		{text: "ERR ACL failure in script: User u has no permissions to run the 'del' command script: f, on @user_script:7.", code: "NOPERM", refused: true},
		{text: "ERR Error running script (call to f_1): @user_script:7: @user_script: 7: The user executing the script can't run this", code: "NOPERM", refused: true},
		{text: "WRONGTYPE Operation against a key holding the wrong kind of value", code: "WRONGTYPE", refused: true, wrongType: true},
		{text: "ERR Error running script (call to f_1): @user_script:8: WRONGTYPE Operation against", code: "WRONGTYPE", refused: true, wrongType: true},
		{text: "NOAUTH Authentication required.", code: "NOAUTH", refused: true},
		{text: "WRONGPASS invalid username-password pair or user is disabled.", code: "WRONGPASS", refused: true},
		{text: "READONLY You can't write against a read only replica.", code: "READONLY"},
		{text: "LOADING Redis is loading the dataset in memory", code: "LOADING"},
		{text: "OOM command not allowed when used memory > 'maxmemory'.", code: "OOM"},
		{text: "NOSCRIPT No matching script.", code: "NOSCRIPT"},
		{text: "", code: ""},
	} {
		e := &ReplyError{Text: c.text}
		if e.Code() != c.code || e.Permanent() != c.refused || errors.Is(e, backends.ErrWrongType) != c.wrongType {
			t.Errorf("%q: code %s, refused %v, wrong type %v", c.text, e.Code(), e.Permanent(), errors.Is(e, backends.ErrWrongType))
		}
	}
}

func TestParseInfo(t *testing.T) {
	got := parseInfo("# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:12\r\n\r\n# Replication\r\nrole:master\r\nslave0:ip=1.2.3.4,port=1\r\nnonsense\r\n")
	want := map[string]string{"redis_version": "7.0.15", "uptime_in_seconds": "12", "role": "master", "slave0": "ip=1.2.3.4,port=1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parseInfo = %v, want %v", got, want)
	}
}

// FuzzParseInfo: of a text that is no INFO at all, nothing is read that is not there, one more line is found behind it, and
// the strict form of quarantine and the report read the same.
func FuzzParseInfo(f *testing.F) {
	f.Add("# Server\r\nuptime_in_seconds:12\r\n", "role", "master")
	f.Add("uptime_in_seconds:7200\nuptime_in_seconds:1", "#role", "a:b")
	f.Add("uptime_in_seconds:-1", " ", "")
	f.Fuzz(func(t *testing.T, text, field, value string) {
		for name, value := range parseInfo(text) {
			if !strings.Contains(text, name+":"+value) || strings.HasPrefix(name, "#") || strings.ContainsAny(name+value, "\n") {
				t.Errorf("%q is %q, in %q", name, value, text)
			}
		}
		line := field + ":" + value
		if plain := !strings.ContainsAny(line, "\n#") && !strings.Contains(field, ":") && strings.TrimSpace(line) == line; plain {
			if got, found := parseInfo(text + "\n" + line)[field]; !found || got != value {
				t.Errorf("%q behind %q is read as %q, %v", line, text, got, found)
			}
		}

		r := Report{Uptime: -1}
		r.read(parseInfo(text))
		r.judge(time.Hour)
		young := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Problem == ProblemRestarted })
		unknown := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Problem == ProblemUptime })
		q := NewQuarantine()
		q.attach(time.Hour, time.Hour)
		err := q.Saw("", text, nil)
		mine := parseInfo(text)
		if master := mine["role"] == "" || mine["role"] == "master"; !master || mine["redis_mode"] == "sentinel" {
			return
		}
		if refused := young || unknown; (err != nil) != refused || unknown != (r.Uptime < 0) || young && unknown {
			t.Errorf("up for %v, young: %v, unknown: %v; the strict form says %v", r.Uptime, young, unknown, err)
		}
	})
}

func TestAReplyThatQuotesTheArgumentsDoesNotShowTheToken(t *testing.T) {
	e := &ReplyError{Text: "ERR unknown command 'EVALSHA', with args beginning with: 'f00' '1' 'key' 'S3CRET' "}
	if got := e.Error(); got != "ERR unknown command 'EVALSHA'" {
		t.Errorf("Error = %q", got)
	}
}

func TestErrorsSayWhatTheyAreInAWord(t *testing.T) {
	for err, want := range map[interface {
		error
		ErrorType() string
	}]string{
		refusal("ttl 0s is under the limit"):           "invalid",
		&QuarantineError{Until: time.Now()}:            "quarantined",
		&replicaError{"host:1", "slave"}:               "replica",
		&untoldError{"host:1", nil}:                    "quarantined",
		&ReplicasError{Acknowledged: 1, Needed: 2}:     "replicas",
		&ReplyError{Text: "NOPERM this user has none"}: "redis_noperm",
	} {
		if got := err.ErrorType(); got != want || err.Error() == "" {
			t.Errorf("%T: %q is of type %q, want %q", err, err, got, want)
		}
	}
	if got := (&ReplicasError{Acknowledged: 1, Needed: 2}).Error(); got != "1 of 2 replicas acknowledged in time" {
		t.Errorf("Error = %q", got)
	}
}
