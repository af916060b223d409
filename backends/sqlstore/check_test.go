package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestReportString(t *testing.T) {
	finding := Report{Version: "SQLite 3.50", RoundTrip: 20 * time.Microsecond}
	finding.find(ProblemBusy, false, "calls fail", "busy_timeout is 0 ms")
	for want, r := range map[string]Report{
		"master PostgreSQL 17.1, up 1m0s, 2 standbys, wake-ups true, clock off by 1ms, round trip 2ms; nothing found": {
			Role: "master", Version: "PostgreSQL 17.1", Uptime: time.Minute, Standbys: 2, Wakes: true, ClockSkew: time.Millisecond, RoundTrip: 2 * time.Millisecond,
		},
		"SQLite 3.50, round trip 20µs; nothing found":                      {Version: "SQLite 3.50", RoundTrip: 20 * time.Microsecond},
		"SQLite 3.50, round trip 20µs" + finding.Findings.String():         finding,
		"no report: the server did not answer":                             {},
		"no report: the server did not answer" + finding.Findings.String(): {Findings: finding.Findings},
	} {
		if got := r.String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestACheckThatFailsHasNoReport(t *testing.T) {
	db := sql.OpenDB(&scripted{read: errors.New("the connection was reset")})
	defer func() { _ = db.Close() }()
	for name, check := range map[string]func(context.Context) (Report, error){
		"PostgreSQL": NewPostgreSQL(db).Check, "MySQL": NewMySQL(db).Check, "SQLite": NewSQLite(db).Check,
	} {
		if r, err := check(t.Context()); err == nil || !strings.HasPrefix(r.String(), "no report") {
			t.Errorf("Check of %s = %v, %v", name, r, err)
		}
	}
}
