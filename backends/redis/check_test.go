package redis

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// talks is a server that has its own answer to each command, a *ReplyError where it has none.
type talks struct {
	Executor
	answers map[string]any
}

func (s talks) Do(_ context.Context, args ...any) (any, error) {
	if reply, known := s.answers[args[0].(string)]; known {
		return reply, nil
	}
	return nil, &ReplyError{Text: "ERR unknown command"}
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
