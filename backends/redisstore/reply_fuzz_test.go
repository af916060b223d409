package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/info"
	"github.com/lockstep-go/lockstep/internal/turns"
)

// replyFrom makes a reply of bytes: their first says which, and every reply can be made.
func replyFrom(data *[]byte, depth int) any {
	take := func(n int) string {
		n = min(n, len(*data))
		taken := string((*data)[:n])
		*data = (*data)[n:]
		return taken
	}
	kind := take(1)
	if kind == "" {
		return nil
	}
	switch kind[0] % 8 {
	case 0:
		return nil
	case 1, 2: // the numbers that scripts reply
		return int64(kind[0]/8) - 3
	case 3:
		n, _ := strconv.ParseInt(fmt.Sprintf("%x", take(8)), 16, 64)
		return n
	case 4:
		return take(int(kind[0] / 8))
	case 5:
		return strconv.Itoa(int(kind[0]/8) - 3)
	case 6:
		return &driver.ReplyError{Text: take(int(kind[0] / 8))}
	}
	list := make([]any, int(kind[0]/8)%13)
	if depth > 0 {
		list = list[:min(len(list), 3-depth)]
	}
	for i := range list {
		list[i] = replyFrom(data, depth+1)
	}
	return list
}

// granting says by hand what acquire.lua and number.lua may reply; refused: how long what is there
// still lives, and the label of its holder.
func granting(reply any) (r backends.Result, told any, good bool) {
	list, _ := reply.([]any)
	switch {
	case len(list) == 2 && list[0] == int64(1):
		return backends.Result{OK: true}, list[1], true
	case len(list) == 3 && list[0] == int64(0):
		n, isInt := list[1].(int64)
		holder, isText := list[2].(string)
		if isInt && isText {
			return backends.Result{Left: inMilliseconds(n), Foreign: n == -1, Holder: labelOf(holder)}, nil, true
		}
	}
	return r, nil, false
}

// queueing says the same of enqueue.lua, which tells the place as well.
func queueing(reply any) (r backends.Result, good bool) {
	list, _ := reply.([]any)
	switch {
	case len(list) == 3 && list[0] == int64(1):
		return backends.Result{OK: true}, true
	case len(list) == 4 && list[0] == int64(0):
		n, isLeft := list[1].(int64)
		place, isPlace := list[2].(int64)
		holder, isText := list[3].(string)
		if isLeft && isPlace && isText {
			return backends.Result{Left: inMilliseconds(n), Foreign: n == -1, Position: int(max(place, 0)), Holder: labelOf(holder)}, true
		}
	}
	return r, false
}

// entering says the same of enter.lua, for any number of holds.
func entering(reply any) (r backends.Result, good bool) {
	list, _ := reply.([]any)
	switch {
	case len(list) == 4 && list[0] == int64(1):
		slot, isSlot := list[3].(int64)
		if holds, _ := list[1].(int64); holds > 0 && isSlot {
			return backends.Result{OK: true, Holds: int(holds), Room: -1, Slot: int(max(slot, 0))}, true
		}
	case len(list) == 5 && list[0] == int64(0):
		n, isLeft := list[1].(int64)
		holds, isHolds := list[2].(int64)
		place, isPlace := list[3].(int64)
		holder, isText := list[4].(string)
		if isLeft && isHolds && isPlace && isText {
			return backends.Result{
				Left: inMilliseconds(n), Foreign: n == -1, Holds: int(max(holds, 0)), Position: int(max(place, 0)), Holder: labelOf(holder),
			}, true
		}
	}
	return r, false
}

// labelOf is what a call tells of the label in a reply.
func labelOf(text string) string {
	if backends.ValidHolder(text) {
		return text
	}
	return ""
}

// inMilliseconds is not negative, and at most what a duration can be.
func inMilliseconds(n int64) time.Duration {
	if n >= 0 {
		n = max(n-1, 1) // see lifeOfKey
	}
	return time.Duration(max(min(n, (1<<63-1)/int64(time.Millisecond)), 0)) * time.Millisecond
}

// FuzzReplies: whatever a server answers, a call takes it for what the script or the command can
// have meant by it, or it is an error. Nothing else is a grant.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x1a", "\x21", "\x19", "\x13\x00\x00\x00\x00\x00\x00\x05\xdc", "\x17\x21\x25", "\x17\x21\x21", "\x1f\x1a\x13\x7f\xff\xff\xff\xff\xff\xff\xff\x0cx",
		"\x1f\x1a\x11\x0cx", "\x1f\x1a\x09\x04", "\x17\x1a\x11", "\x14OK", "\x13\x7f\xff\xff\xff\xff\xff\xff\xff", "\x17\x21\x849007199254740992", "\x17\x21\x849007199254740991", "\x0f\x21", "\x3eNOPERM ",
		"\x1f\x21\x1a\x1a", "\x27\x1a\x31\x29\x0cx", "\x27\x1a\x11\x1a\x04", "\x27\x1a\x31\x11\x04", "\x27\x1a\x31\x0cx\x04", "\x27\x1a\x0cx\x29\x04",
		"\x2f\x1a\x31\x29\x31\x0cx", "\x27\x21\x21\x1a\x11", "\x27\x21\x21\x1a\x29", "\x27\x21\x21\x1a\x04", "\x2f\x1a\x31\x29\x0cx\x0cx", "\x2f\x1a\x11\x11\x11\x04",
		"\x67\x34string\x31\x0cv\x07\x1a\x04\x1a\x1a\x07\x1a\x04\x2c12345", "\x67\x34string\x31\x0cv\x07\x1a\x04\x1a\x11\x07\x1a\x04\x2c12345",
		"\x67\x24zset\x31\x04\x17\x0cv\x2c12345\x21\x0cv\x1a\x1a\x07\x1a\x04\x2c12345", "\x67\x24zset\x31\x04\x0f\x0cv\x21\x0cv\x1a\x1a\x07\x1a\x04\x2c12345",
		"\x67\x24zset\x31\x04\x07\x21\x04\x1a\x1a\x07\x1a\x04\x2c12345"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reply := replyFrom(&data, 0)
		if _, isError := reply.(error); isError {
			return // the executor gives it as the error
		}
		ctx, s := t.Context(), New(&answers{reply: reply})
		for name, call := range map[string]func() (bool, error){
			"ExpireIf":     func() (bool, error) { return s.ExpireIf(ctx, "k", "v", time.Second) },
			"DeleteIf":     func() (bool, error) { return s.DeleteIf(ctx, "k", "v") },
			"RaiseFence":   func() (bool, error) { return s.RaiseFence(ctx, "k", "v", 1) },
			"Renew":        func() (bool, error) { return s.Renew(ctx, "k", "v", time.Second) },
			"Leave":        func() (bool, error) { return s.Leave(ctx, "k", "v") },
			"SetNXForever": func() (bool, error) { return s.SetNXForever(ctx, "k", "v") },
			"Expire":       func() (bool, error) { return s.Expire(ctx, "k", time.Second) },
			"Delete":       func() (bool, error) { return s.Delete(ctx, "k") },
			"GetBit":       func() (bool, error) { return s.GetBit(ctx, "k", 0) },
			"SetBit":       func() (bool, error) { return s.SetBit(ctx, "k", 0, true) },
		} {
			ok, err := call()
			done := reply == int64(1) || reply == int64(2) && name == "DeleteIf" // 2: nobody was in the queue
			if good := done || reply == int64(0); ok != done || good != (err == nil) {
				t.Errorf("%s of %#v = %v, %v", name, reply, ok, err)
			}
		}

		isText, isString := reply.(string)
		value, found, err := s.Get(ctx, "k")
		if value != isText || found != isString || (err == nil) != (reply == nil || isString) {
			t.Errorf("Get of %#v = %q, %v, %v", reply, value, found, err)
		}

		n, isInt := reply.(int64)
		left, found, err := s.Left(ctx, "k")
		wanted := inMilliseconds(n)
		if isInt && n == 0 {
			wanted = time.Millisecond // it has an expiry
		}
		if good := isInt && n >= -2; good != (err == nil) || good && (left != wanted || found != (n != -2)) {
			t.Errorf("Left of %#v = %v, %v, %v; want %v", reply, left, found, err, wanted)
		}

		want, told, good := granting(reply)
		r, err := acquired(reply, nil)
		if r != want || good != (err == nil) {
			t.Errorf("acquired(%#v) = %+v, %v; want %+v", reply, r, err, want)
		}

		text, _ := told.(string)
		number, failed := strconv.ParseUint(text, 10, 53)
		numbers := good && (!want.OK || failed == nil && number > 0)
		want.Fence = number
		r, err = s.SetNXFenced(ctx, "k", "v", time.Second)
		if numbers != (err == nil) || numbers && r != want || !numbers && r != (backends.Result{}) {
			t.Errorf("SetNXFenced of %#v = %+v, %v; want %+v", reply, r, err, want)
		}

		entered, good := entering(reply)
		r, err = s.Enter(ctx, "k", "v", time.Second, backends.Admission{})
		if r != entered || good != (err == nil) {
			t.Errorf("Enter of %#v = %+v, %v; want %+v", reply, r, err, entered)
		}

		queued, good := queueing(reply)
		for _, asks := range []backends.Turn{{Waiter: "w"}, {Waiter: "w", InOrder: true}, {InOrder: true}} {
			s := New(&answers{reply: reply})
			s.turns.Add(&turns.Turn{Key: "k", Waiter: "w"})
			r, err = s.SetNXQueued(ctx, "k", "v", time.Second, asks)
			if r != queued || good != (err == nil) {
				t.Errorf("SetNXQueued of %#v for %+v = %+v, %v; want %+v", reply, asks, r, err, queued)
			}
		}

		set := &setReply{reply: reply}
		r, err = New(set).SetNX(ctx, "k", "v", time.Second)
		switch {
		case reply == "OK": // and nothing else is a grant
			if r != (backends.Result{OK: true}) || err != nil {
				t.Errorf("SetNX of %#v = %+v, %v", reply, r, err)
			}
		case reply == nil:
			if !set.asked {
				t.Errorf("SetNX of %#v = %+v, %v, and no script was asked why", reply, r, err)
			}
		case err == nil:
			t.Errorf("SetNX of %#v = %+v", reply, r)
		}

		state, err := s.Inspect(ctx, "k")
		list, _ := reply.([]any)
		if err == nil && (len(list) != 12 || state.Holding < 0 || state.Waiting < 0 || state.Reserved < 0 || state.Foreign && state.Holding > 0 ||
			len(state.Holds) != min(state.Holding, backends.MaxListed)) {
			t.Errorf("Inspect of %#v = %+v", reply, state)
		}
		for _, h := range state.Holds {
			if h.Left < 0 {
				t.Errorf("Inspect of %#v = %+v", reply, state)
			}
		}

		keys, _, err := s.scanned(reply, place{last: lastSlot}, "")
		if err == nil && (len(list) != 2 || len(keys) > len(list[1].([]any))) {
			t.Errorf("SCAN of %#v = %q", reply, keys)
		}
		if last, err := together(reply, place{last: lastSlot}); err == nil && (last < 0 || last > lastSlot) {
			t.Errorf("CLUSTER SLOTS of %#v = %d", reply, last)
		}
		if ok, err := s.Evict(ctx, "k", "print", backends.Eviction{}); ok != (reply == int64(1)) || (err == nil) != (reply == int64(0) || reply == int64(1)) {
			t.Errorf("Evict of %#v = %v, %v", reply, ok, err)
		}

		report, err := s.Check(ctx) // must not panic
		if err == nil && report.RoundTrip < 0 {
			t.Errorf("Check of %#v = %+v", reply, report)
		}
	})
}

// setReply answers SET, and then the script that is asked why it was refused.
type setReply struct {
	driver.Executor
	reply any
	asked bool
}

func (s *setReply) Once(_ context.Context, args ...any) (any, error) {
	if args[0] == "SET" {
		return s.reply, nil
	}
	s.asked = true
	return []any{int64(0), int64(1), ""}, nil
}

// FuzzTransactions: what comes back of a transaction is an answer only if it has the form of one.
func FuzzTransactions(f *testing.F) {
	f.Add([]byte("\x24v"))
	f.Add([]byte("\x17\x14OK\x34QUEUED\x34QUEUED\x17\x0cv\x21"))
	f.Add([]byte("\x17\x21\x21"))
	f.Fuzz(func(t *testing.T, data []byte) {
		exec := replyFrom(&data, 0)
		s := New(&transaction{exec: exec}, WithoutScripts())
		list, _ := exec.([]any)
		for name, call := range map[string]func() (bool, error){
			"TxDeleteIf": func() (bool, error) { return s.TxDeleteIf(t.Context(), "k", "v") },
			"TxExpireIf": func() (bool, error) { return s.TxExpireIf(t.Context(), "k", "v", time.Second) },
			"ExpireIf":   func() (bool, error) { return s.ExpireIf(t.Context(), "k", "v", time.Second) },
		} {
			ok, err := call()
			if ok && (err != nil || len(list) != 1 || list[0] == nil || list[0] == int64(0)) {
				t.Errorf("%s when EXEC answers %#v = %v, %v", name, exec, ok, err)
			}
			if _, isError := exec.(error); isError && err == nil {
				t.Errorf("%s when EXEC answers %#v = %v, %v", name, exec, ok, err)
			}
		}
	})
}

// transaction is a connection on which key holds v with a second to live, and whose EXEC answers as it likes.
type transaction struct {
	driver.Executor
	exec any
}

func (c *transaction) Pinned(_ context.Context, _ string, fn func(driver.Conn) error) error {
	return fn(c)
}

func (c *transaction) Pipeline(_ context.Context, commands ...[]any) ([]any, error) {
	replies := make([]any, len(commands))
	for i, command := range commands {
		replies[i] = map[any]any{"GET": "v", "PTTL": int64(1), "EXEC": c.exec}[command[0]]
		if replies[i] == nil && command[0] != "EXEC" {
			replies[i] = "OK"
		}
	}
	if len(commands) > 2 && commands[1][0] == "EXEC" { // MULTI and EXEC with nothing in between
		replies[1] = []any{}
	}
	return replies, nil
}

// FuzzInfo: a report says what the server has said, and nothing that it has not.
func FuzzInfo(f *testing.F) {
	f.Add("abc", "master", "noeviction", 2, int64(7200), true, true)
	f.Add("", "slave", "allkeys-lru", -1, int64(-5), false, false)
	f.Fuzz(func(t *testing.T, id, role, eviction string, replicas int, up int64, aof, crlf bool) {
		for _, s := range []*string{&id, &role, &eviction} {
			*s = strings.TrimSpace(strings.Map(func(r rune) rune {
				if r == '\n' || r == '\r' {
					return -1
				}
				return r
			}, *s))
		}
		up = max(min(up, 1<<33), -1<<33)
		end := "\n"
		if crlf {
			end = "\r\n"
		}
		lines := []string{
			"# Server", "redis_version:7.0.15", "run_id:" + id, "# Memory", "maxmemory_policy:" + eviction, "", "role:" + role,
			fmt.Sprint("connected_slaves:", replicas), fmt.Sprint("uptime_in_seconds:", up), fmt.Sprint("aof_enabled:", map[bool]int{true: 1}[aof]),
		}
		r := Report{Uptime: -1}
		r.read(info.Parse(strings.Join(lines, end)))
		r.judge(time.Hour)
		want := Report{RunID: id, Version: "7.0.15", Role: role, Eviction: eviction, Replicas: replicas, AOF: aof, Uptime: time.Duration(max(up, 0)) * time.Second}
		problems := map[Problem]bool{}
		for _, finding := range r.Findings {
			problems[finding.Problem] = true
		}
		r.Findings = nil
		if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) {
			t.Errorf("%+v; want %+v", r, want)
		}
		for problem, is := range map[Problem]bool{
			ProblemRole: role != "master" && role != "", ProblemRestarted: up < 3601, ProblemEviction: eviction != "noeviction" && eviction != "",
			ProblemPersistence: !aof, ProblemReplicas: replicas > 0, ProblemUptime: false,
		} {
			if problems[problem] != is {
				t.Errorf("finding %s: %v; want %v", problem, problems[problem], is)
			}
		}
	})
}
