package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// talks is a server that has its own answer to each command, a *ReplyError where it has none.
type talks struct {
	driver.Executor
	answers map[string]any
}

func (s talks) Do(_ context.Context, args ...any) (any, error) {
	if reply, known := s.answers[args[0].(string)]; known {
		return reply, nil
	}
	return nil, &driver.ReplyError{Text: "ERR unknown command"}
}

const sound = "run_id:1\r\nrole:master\r\nuptime_in_seconds:99999\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"

func TestCheckFindsWhatAServerDoesNotTell(t *testing.T) {
	now := func() any { return []any{"1", "0"} }
	for name, c := range map[string]struct {
		answers map[string]any
		says    string
	}{
		"it knows no INFO":     {map[string]any{"TIME": now()}, "INFO is refused (ERR unknown command)"},
		"it knows no CONFIG":   {map[string]any{"INFO": sound, "TIME": now()}, "CONFIG GET is refused (ERR unknown command)"},
		"it has no such field": {map[string]any{"INFO": sound, "CONFIG": []any{}, "TIME": now()}, "the server tells no appendfsync"},
		"it knows no TIME":     {map[string]any{"INFO": sound, "CONFIG": []any{"appendfsync", "always"}}, "TIME is refused (ERR unknown command)"},
	} {
		r, err := New(talks{answers: c.answers}).Check(t.Context())
		if err != nil {
			t.Errorf("%s: Check = %v", name, err)
		}
		if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
			return f.Problem == ProblemUnknown && !f.Unsafe && strings.HasPrefix(f.String(), c.says+": ")
		}) {
			t.Errorf("%s: findings %v, want one that says %s", name, r.Findings, c.says)
		}
	}
}

// A reply that every command gets says nothing about INFO.
func TestCheckReturnsAReplyThatEveryCommandGets(t *testing.T) {
	for _, text := range []string{"ERR max number of clients reached", "DENIED Redis is running in protected mode because", "LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script"} {
		reply := &driver.ReplyError{Text: text}
		if r, err := New(driver.Refuse(reply)).Check(t.Context()); !errors.Is(err, reply) || len(r.Findings) > 0 {
			t.Errorf("%s: Check = %v, %v", text, r.Findings, err)
		}
	}
}

func TestAServerThatTellsNoINFOIsUnsafeForWhoeverCountsOnQuarantine(t *testing.T) {
	for unsafe, opts := range map[bool][]Option{
		false: nil,
		true:  {Observed("", new(driver.Quarantine))},
	} {
		r, err := New(talks{answers: map[string]any{"TIME": []any{"1", "0"}}}, opts...).Check(t.Context())
		if err != nil || (r.Err() != nil) != unsafe {
			t.Errorf("Check = %v, %v; want an unsafe finding: %v", r, err, unsafe)
		}
	}
}

func TestCheckRefusesWhatItCannotAsk(t *testing.T) {
	for want, check := range map[string]func() (Report, error){
		"lockstep: check: ctx is nil; use context.Background()": func() (Report, error) {
			return New(talks{}).Check(nil) //nolint:staticcheck // this is the case
		},
		"lockstep: check: the Store was not made by New or Open of an adapter": func() (Report, error) {
			return new(Store).Check(t.Context())
		},
	} {
		if _, err := check(); err == nil || err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

func TestAReportReadsWell(t *testing.T) {
	for _, c := range []struct {
		report Report
		want   string
	}{
		{Report{
			RunID: "0f1e2d", Version: "7.0.15", Role: "master", Uptime: 90 * time.Minute, Eviction: "noeviction", AOF: true, Fsync: "always",
			ClockSkew: 1500 * time.Microsecond, RoundTrip: 240*time.Microsecond + 17,
		}, "master 7.0.15, up 1h30m0s, maxmemory-policy noeviction, append-only file synced always, 0 replicas, clock off by 1.5ms, round trip 240µs; nothing found"},
		{Report{
			Version: "7.0.15", Role: "master", Uptime: 5 * time.Second, Eviction: "allkeys-lru", Replicas: 1, RoundTrip: time.Millisecond,
			Findings: []Finding{
				{Problem: ProblemEviction, Detail: "maxmemory-policy is allkeys-lru", Consequence: "under memory pressure it deletes locks that are held, and grants them again", Unsafe: true},
				{Problem: ProblemPersistence, Detail: "no append-only file is kept", Consequence: "a restart forgets locks that are held", Unsafe: false},
			},
		}, "master 7.0.15, up 5s, maxmemory-policy allkeys-lru, 1 replica, clock off by 0s, round trip 1ms\n" +
			"- UNSAFE: maxmemory-policy is allkeys-lru: under memory pressure it deletes locks that are held, and grants them again\n" +
			"- no append-only file is kept: a restart forgets locks that are held"},
		{Report{Uptime: -1}, "server of unknown role of unknown version, 0 replicas, clock off by 0s, round trip 0s; nothing found"},
	} {
		if got := fmt.Sprintf("%v", c.report); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}
