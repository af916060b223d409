package redisstore

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// restless is a key that others change whenever nobody looks: it is held when it is to be set, and
// free when it is read, or its transactions fail.
type restless struct {
	driver.Executor
	value any // that is read
	set   any // the reply to a SET on the connection of the call
	abort bool
	sent  [][]any
}

func (r *restless) Once(context.Context, ...any) (any, error) { return nil, nil } // SET NX finds it held

func (r *restless) Pinned(_ context.Context, _ string, fn func(driver.Conn) error) error {
	return fn(r)
}

func (r *restless) Pipeline(_ context.Context, commands ...[]any) ([]any, error) {
	replies, queued := make([]any, len(commands)), []any(nil)
	for i, command := range commands {
		r.sent = append(r.sent, command)
		switch command[0] {
		case "MULTI":
			queued = []any{}
		case "EXEC":
			replies[i], queued = queued, nil
			if r.abort && len(commands) > 1 && commands[0][0] == "MULTI" && commands[1][0] != "EXEC" {
				replies[i] = nil
			}
		case "GET":
			replies[i] = r.value
		case "PTTL", "DEL":
			replies[i] = int64(1)
		case "SET":
			replies[i] = r.set
		}
		if queued != nil && command[0] != "MULTI" {
			queued = append(queued, replies[i])
			replies[i] = "QUEUED"
		}
	}
	return replies, nil
}

func TestWithoutScriptsAKeyThatChangesAllTheTimeIsAnErrorInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		key *restless
		set bool // whether it may be set again
	}{
		"free when it is read, held when it is set": {&restless{}, true},
		"each look at it fails":                     {&restless{value: "token", abort: true}, false},
	} {
		got, err := New(c.key, WithoutScripts()).SetNX(t.Context(), "a", "token", time.Second)
		if got.OK || !errors.Is(err, errChanging) {
			t.Errorf("%s: SetNX = %+v, %v", name, got, err)
		}
		if set := slices.ContainsFunc(c.key.sent, func(command []any) bool { return command[0] == "SET" }); set != c.set {
			t.Errorf("%s: SET was sent again: %v", name, set)
		}
	}
	r := &restless{value: "token", abort: true}
	if ok, err := New(r, WithoutScripts()).DeleteIf(t.Context(), "a", "token"); ok || !errors.Is(err, errChanging) {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
}

// A key that has become free since the first SET is set again: the reply ends the call.
func TestWithoutScriptsTheSecondSetIsTheLastCommand(t *testing.T) {
	full := &driver.ReplyError{Text: "OOM command not allowed"}
	for _, c := range []struct {
		reply any
		want  backends.Result
		err   error
	}{{"OK", backends.Result{OK: true}, nil}, {full, backends.Result{}, full}} {
		r := &restless{set: c.reply}
		got, err := New(r, WithoutScripts()).SetNX(t.Context(), "a", "token", time.Second)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("SetNX = %+v, %v; want %+v, %v", got, err, c.want, c.err)
		}
		if last := r.sent[len(r.sent)-1]; last[0] != "SET" {
			t.Errorf("sent %q after the reply %v to SET", last, c.reply)
		}
	}
}

// In the queue or beside it: a number is drawn by a script.
func TestWithoutScriptsNoGrantIsNumbered(t *testing.T) {
	for name, turn := range map[string]backends.Turn{
		"beside the queue": {}, "in the queue": {Waiter: "waiter"}, "in order": {InOrder: true},
	} {
		r := &restless{}
		got, err := New(r, WithoutScripts()).SetNXNumbered(t.Context(), "a", "token", time.Second, turn)
		if got.OK || !backends.Permanent(err) || !strings.Contains(err.Error(), "need scripts") || len(r.sent) > 0 {
			t.Errorf("%s: SetNXNumbered = %+v, %v; sent %v", name, got, err, r.sent)
		}
	}
}

func TestWithoutScriptsAndWithoutWakesAReleasePublishesNothing(t *testing.T) {
	r := &restless{value: "token"}
	ok, err := New(r, WithoutScripts(), WithoutWakes()).DeleteIf(t.Context(), "a", "token")
	if !ok || err != nil {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	last := r.sent[len(r.sent)-3:]
	if want := [][]any{{"MULTI"}, {"DEL", "a"}, {"EXEC"}}; !reflect.DeepEqual(last, want) {
		t.Errorf("sent %q in the end, want %q", last, want)
	}
}
