package redisstore

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
)

// answers is an Executor that answers everything alike, and keeps what it was sent last.
type answers struct {
	driver.Executor
	reply any
	sent  []any
}

func (a *answers) Do(_ context.Context, args ...any) (any, error) {
	a.sent = args
	return a.reply, nil
}

func (a *answers) Once(ctx context.Context, args ...any) (any, error) { return a.Do(ctx, args...) }

func (a *answers) Pinned(_ context.Context, _ string, fn func(driver.Conn) error) error { return fn(a) }

// Pipeline has the replies in a list.
func (a *answers) Pipeline(context.Context, ...[]any) ([]any, error) {
	list, _ := a.reply.([]any)
	return list, nil
}

func TestGrantsTellTheirNumber(t *testing.T) {
	for _, c := range []struct {
		reply any
		want  backends.Result // zero: an error
	}{
		{[]any{int64(0), int64(8), "ann"}, backends.Result{Left: 7 * time.Millisecond, Holder: "ann"}},
		{[]any{int64(0), int64(-1), ""}, backends.Result{Foreign: true}},
		{[]any{int64(1), "9007199254740991"}, backends.Result{OK: true, Fence: 1<<53 - 1}},
		{[]any{int64(1), int64(2)}, backends.Result{}},
		{[]any{int64(1), "0"}, backends.Result{}},
		{[]any{int64(1), "1e9"}, backends.Result{}},
		{[]any{int64(1), nil}, backends.Result{}},
		{[]any{int64(0), "7", ""}, backends.Result{}},
		{[]any{int64(0), int64(7), nil}, backends.Result{}},
		{[]any{int64(1)}, backends.Result{}},
		{"OK", backends.Result{}},
		{nil, backends.Result{}},
	} {
		s := New(&answers{reply: c.reply})
		if got, err := s.SetNXNumbered(t.Context(), "a", "token", time.Second, backends.Turn{}); got != c.want || (err == nil) == (c.want == backends.Result{}) {
			t.Errorf("SetNXNumbered of %v = %+v, %v; want %+v", c.reply, got, err, c.want)
		}
	}
}

func TestEnterTellsTheHolds(t *testing.T) {
	for _, c := range []struct {
		reply          any
		want, numbered backends.Result // zero: an error
	}{
		{[]any{int64(0), int64(8), int64(2), int64(3), "ann"}, backends.Result{Left: 7 * time.Millisecond, Holds: 2, Position: 3, Holder: "ann"},
			backends.Result{Left: 7 * time.Millisecond, Holds: 2, Position: 3, Holder: "ann"}},
		{[]any{int64(0), int64(-1), int64(0), int64(0), ""}, backends.Result{Foreign: true}, backends.Result{Foreign: true}},
		{[]any{int64(1), int64(2), int64(0), int64(-1)}, backends.Result{OK: true, Holds: 2, Room: 3}, backends.Result{}},
		{[]any{int64(1), int64(2), int64(0), int64(4)}, backends.Result{OK: true, Holds: 2, Room: 3, Slot: 4}, backends.Result{}},
		{[]any{int64(1), int64(2), int64(0), nil}, backends.Result{}, backends.Result{}},
		{[]any{int64(1), int64(7), "12", int64(-1)}, backends.Result{OK: true, Holds: 7}, backends.Result{OK: true, Holds: 7, Fence: 12}},
		{[]any{int64(1), int64(0), int64(0), int64(-1)}, backends.Result{}, backends.Result{}},
		{[]any{int64(1), int64(2)}, backends.Result{}, backends.Result{}},
		{[]any{int64(0), "7", int64(1), int64(1), ""}, backends.Result{}, backends.Result{}},
		{[]any{int64(0), int64(7), nil, int64(1), ""}, backends.Result{}, backends.Result{}},
		{[]any{int64(0), int64(7), int64(1), int64(1), nil}, backends.Result{}, backends.Result{}},
		{"OK", backends.Result{}, backends.Result{}},
		{nil, backends.Result{}, backends.Result{}},
	} {
		for _, numbered := range []bool{false, true} {
			want := c.want
			if numbered {
				want = c.numbered
			}
			s := New(&answers{reply: c.reply})
			got, err := s.Enter(t.Context(), "a", "token", time.Second, backends.Admission{Limit: 5, Numbered: numbered})
			if got != want || (err == nil) == (want == backends.Result{}) {
				t.Errorf("Enter of %v (numbered: %v) = %+v, %v; want %+v", c.reply, numbered, got, err, want)
			}
		}
	}
}

// A message of admit.lua names a member of the queue and a key, whatever is in them.
func TestAMessageOfAReservationIsReadBack(t *testing.T) {
	for _, c := range []struct{ rest, member, key string }{
		{"3@w@1a", "w@1", "a"},
		{"0@a", "", "a"},
		{"4@w@1@@b@", "w@1@", "@b@"},
	} {
		if member, key, ok := admitted(c.rest); !ok || member != c.member || key != c.key {
			t.Errorf("admitted(%q) = %q, %q, %v", c.rest, member, key, ok)
		}
	}
	for _, bad := range []string{"", "@", "x@y", "-1@a", "9@short"} {
		if member, key, ok := admitted(bad); ok {
			t.Errorf("admitted(%q) = %q, %q; want no answer", bad, member, key)
		}
	}
}

func TestLeftOfAKeyWithExpiryIsNeverZero(t *testing.T) {
	for _, c := range []struct {
		reply any
		left  time.Duration
		found bool
		bad   bool
	}{
		{reply: int64(-2)},
		{reply: int64(-1), found: true},
		{reply: int64(0), left: time.Millisecond, found: true},
		{reply: int64(1501), left: 1500 * time.Millisecond, found: true},
		{reply: int64(-3), bad: true},
		{reply: "1", bad: true},
		{bad: true},
	} {
		left, found, err := New(&answers{reply: c.reply}).Left(t.Context(), "a")
		if left != c.left || found != c.found || (err != nil) != c.bad {
			t.Errorf("Left of %v = %v, %v, %v", c.reply, left, found, err)
		}
	}
}

func TestTextReadsAStringOrNothing(t *testing.T) {
	for _, c := range []struct {
		reply any
		value string
		found bool
		bad   bool
	}{
		{reply: "", found: true}, {reply: "x", value: "x", found: true}, {}, {reply: int64(1), bad: true}, {reply: []any{}, bad: true},
	} {
		value, found, err := New(&answers{reply: c.reply}).GetSet(t.Context(), "a", "new")
		if value != c.value || found != c.found || (err != nil) != c.bad {
			t.Errorf("GetSet of %v = %q, %v, %v", c.reply, value, found, err)
		}
	}
}

// What a library or a server answers that is none, or an error in some place, must be an error of
// the call, not a refusal.
func TestRepliesOfATransactionAreReadWithCare(t *testing.T) {
	denied := &driver.ReplyError{Text: "NOPERM no"}
	type list = []any
	for name, c := range map[string]struct {
		replies list
		want    error
	}{
		"none":                           {replies: nil},
		"too few":                        {replies: list{"OK", "QUEUED"}},
		"EXEC refused":                   {replies: list{"OK", "QUEUED", "QUEUED", denied}, want: denied},
		"a command refused":              {replies: list{"OK", "QUEUED", denied, &driver.ReplyError{Text: "EXECABORT"}}, want: denied},
		"MULTI refused":                  {replies: list{denied, "x", int64(1), &driver.ReplyError{Text: "ERR EXEC without MULTI"}}, want: denied},
		"an error of ours in the list":   {replies: list{"OK", "QUEUED", "QUEUED", list{denied, int64(1)}}, want: denied},
		"an error of theirs in the list": {replies: list{"OK", "QUEUED", "QUEUED", list{errors.New("WRONGTYPE x"), int64(1)}}, want: backends.ErrWrongType},
		"a short list":                   {replies: list{"OK", "QUEUED", "QUEUED", list{"value"}}},
		"no list":                        {replies: list{"OK", "QUEUED", "QUEUED", "x"}},
		"no number":                      {replies: list{"OK", "QUEUED", "QUEUED", list{"value", "x"}}},
	} {
		s := New(&answers{reply: nil}, WithoutScripts())
		_, _, err := transactional{scripted{s}}.look(t.Context(), &pinned{Conn: &answers{reply: c.replies}}, "a")
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	s := New(&answers{}, WithoutScripts())
	value, left, err := transactional{scripted{s}}.look(t.Context(), &pinned{Conn: &answers{reply: list{"OK", "QUEUED", "QUEUED", list{"value", int64(7)}}}}, "a")
	if value != "value" || left != 7 || err != nil {
		t.Errorf("%v, %v, %v", value, left, err)
	}
}

func TestAWaitThatIsNotAnsweredByANumberIsNoAcknowledgement(t *testing.T) {
	for _, reply := range []any{nil, "1", &driver.ReplyError{Text: "ERR WAIT cannot be used with replica instances"}} {
		exec := &answers{reply: []any{"OK", reply}}
		r, err := New(exec, WithReplicas(1, time.Second)).SetNX(t.Context(), "a", "token", time.Second)
		if r.OK || err == nil {
			t.Errorf("SetNX when WAIT answers %v = %+v, %v", reply, r, err)
		}
	}
	if r, err := New(&answers{reply: []any{"OK", int64(1)}}, WithReplicas(1, time.Second)).SetNX(t.Context(), "a", "token", time.Second); !r.OK || err != nil {
		t.Errorf("SetNX = %+v, %v", r, err)
	}
}

func TestScriptsNameTheirKeysAndShareNothingBetweenCalls(t *testing.T) {
	exec := &answers{reply: []any{int64(1), "1"}}
	s := New(exec, WithPrefix("app:"))
	if _, err := s.SetNXFenced(t.Context(), "a", "token", 1500*time.Microsecond); err != nil {
		t.Fatal(err)
	}
	want := []any{"EVALSHA", scripts.Number.Digest, 2, "app:a", "{app:a}:\x00fence", "token", int64(3), ""}
	if !reflect.DeepEqual(exec.sent, want) {
		t.Errorf("sent %q", exec.sent)
	}
	first := exec.sent
	if _, err := s.SetNXNumbered(t.Context(), "b", "other", time.Second, backends.Turn{}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first, want) {
		t.Errorf("a later call has changed it to %q", first)
	}
}

// Whatever has a key has some ms left, and 0 says that it is not known.
func TestTheMsThatAKeyLivesLongerIsNotLeft(t *testing.T) {
	for pttl, want := range map[int64]time.Duration{-2: 0, 0: time.Millisecond, 1: time.Millisecond, 2: time.Millisecond, 10_001: 10 * time.Second} {
		if got := leftOf(pttl); got != want {
			t.Errorf("%v left of a PTTL of %d, want %v", got, pttl, want)
		}
	}
}
