package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
	"github.com/lockstep-go/lockstep/internal/printed"
)

// Report is what a database server says of itself that matters to locks.
type Report struct {
	Version   string        // of the server
	Role      string        // master, standby or replica; empty: a file of SQLite, which has none
	Uptime    time.Duration // since its last start
	Standbys  int           // connected to it, as far as the role may see
	Wakes     bool          // a release wakes waiters
	ClockSkew time.Duration // its wall clock minus ours, known to half of RoundTrip
	RoundTrip time.Duration

	Findings backends.Findings
}

// String is one line for the server, and one for each finding, the unsafe ones marked.
func (r Report) String() string {
	if r.Version == "" {
		return "no report: the server did not answer" + r.Findings.String()
	}
	text := r.Version
	if r.Role != "" {
		text = fmt.Sprintf("%s %s, up %v, %s, wake-ups %v, clock off by %v", r.Role, r.Version, r.Uptime, printed.Count(r.Standbys, "standby"), r.Wakes, r.ClockSkew)
	}
	text += fmt.Sprintf(", round trip %v", r.RoundTrip.Round(time.Microsecond))
	if len(r.Findings) == 0 {
		text += "; nothing found"
	}
	return text + r.Findings.String()
}

// Err is nil unless a finding is unsafe and its problem not among those allowed.
func (r Report) Err(allowed ...backends.Problem) error { return r.Findings.Err(allowed...) }

// The kinds of findings.
const (
	ProblemRole         backends.Problem = "role"
	ProblemClock        backends.Problem = "clock"
	ProblemPersistence  backends.Problem = "persistence"
	ProblemReplicas     backends.Problem = "replicas"
	ProblemIsolation    backends.Problem = "isolation"
	ProblemInstall      backends.Problem = "install"
	ProblemWakes        backends.Problem = "wakes"
	ProblemTransactions backends.Problem = "transactions"
	ProblemFile         backends.Problem = "file" // of SQLite
	ProblemBusy         backends.Problem = "busy" // of SQLite
	ProblemPool         backends.Problem = "pool"
)

const (
	maxSkew        = 500 * time.Millisecond // more than NTP leaves
	oldTransaction = 10 * time.Minute
	wakesLimit     = 5 * time.Second
)

// Check asks the server how it is set up, and says what each finding means. The error is not nil only if
// the server did not answer. A role that may not read the statistics of others sees fewer standbys and no
// old transactions.
func (s *PostgreSQL) Check(ctx context.Context) (_ Report, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	var r Report
	if err := s.config.ready(ctx); err != nil {
		return r, fmt.Errorf("lockstep: check: %w", err)
	}
	var server, commit, fsync, pages, isolation, readOnly, synchronous string
	var follows bool
	var up, oldest, now int64
	before := time.Now()
	err = s.exec.Row(ctx, checkStatement, nil,
		&server, &follows, &up, &commit, &fsync, &pages, &isolation, &readOnly, &synchronous, &r.Standbys, &oldest, &now)
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", s.explain(ctx, err))
	}
	r.RoundTrip = time.Since(before)
	r.Version, _, _ = strings.Cut(server, " on ")
	r.Role, r.Uptime = "master", duration(up).Round(time.Second)
	if follows {
		r.Role = "standby"
		r.find(ProblemRole, true, "a lock can't be taken on it, and what it shows may be behind", "the server is a standby")
	}
	for _, other := range []string{"Cockroach", "Yugabyte"} {
		if strings.Contains(server, other) {
			r.find(ProblemClock, true, "each of its nodes judges the end of a lease by its own clock", "the server is %s", r.Version)
		}
	}
	is, err := s.installed(ctx)
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", err)
	}
	version, err := s.version(ctx, is.parts)
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", err)
	}
	want := postgresqlParts(PostgreSQLSchema())
	r.install(postgresqlVersion, version, want, is.parts)
	if all := is.lacks(want); len(all) > 0 {
		r.find(ProblemInstall, true, "calls fail: give the role the rights that PostgreSQLGrants lists", "the role %s lacks %s", is.role, listed(all))
	}
	if len(is.hiding) > 0 {
		r.find(ProblemInstall, true, "a lock whose row is hidden can't be taken, or is granted twice: run ALTER TABLE … DISABLE ROW LEVEL SECURITY",
			"row security may hide rows from the role %s: %s", is.role, strings.Join(is.hiding, ", "))
	}
	if len(is.unlogged) > 0 {
		r.find(ProblemPersistence, true, "a crash empties it: locks and permits that are held are granted again, and numbers begin anew",
			"UNLOGGED: %s", strings.Join(is.unlogged, ", "))
	}
	if fsync != "on" || pages != "on" {
		r.find(ProblemPersistence, true, "a power cut makes it forget or damage locks that are held", "fsync is %s, full_page_writes is %s", fsync, pages)
	}
	if commit == "off" {
		r.find(ProblemPersistence, true, "a crash makes it forget the locks of the last moments", "synchronous_commit is off")
	}
	if r.Standbys > 0 && (synchronous == "" || commit == "local" || commit == "off") {
		r.find(ProblemReplicas, false, "a lock granted just before a failover may be granted again after it",
			"it has %s, and a commit waits for none", printed.Count(r.Standbys, "standby"))
	}
	if readOnly == "on" {
		r.find(ProblemRole, true, "no lock can be taken: set it to off for the role of the locks", "default_transaction_read_only is on")
	}
	if isolation != "read committed" {
		r.find(ProblemIsolation, false, "attempts that meet fail with a conflict, which ends a Lock without WithWait: set it to read committed for the role of the locks",
			"default_transaction_isolation is %s", isolation)
	}
	if age := duration(oldest); age > oldTransaction {
		r.find(ProblemTransactions, false, "the old rows of locks that change often can't be removed, so calls get slower",
			"a transaction is %v old", age.Round(time.Second))
	}
	r.clock(now, before)
	s.checkWakes(ctx, &r)
	r.checkPool(s.pool, s.own.open != nil)
	return r, nil
}

// clock compares the time of the server, in µs, with ours. The question was sent at the time before.
func (r *Report) clock(now int64, before time.Time) {
	r.ClockSkew = time.UnixMicro(now).Sub(before.Add(r.RoundTrip / 2).Round(0)).Round(time.Microsecond)
	if r.ClockSkew.Abs() > maxSkew+r.RoundTrip/2 {
		r.find(ProblemClock, false, "leases do not depend on it, but a clock that is set while locks are held ends them early or late",
			"its clock differs from ours by %v", r.ClockSkew)
	}
}

func (s *PostgreSQL) checkWakes(ctx context.Context, r *Report) {
	if s.wakes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, wakesLimit)
	defer cancel()
	leave, err := s.wakes.join(ctx)
	switch {
	case err == nil:
		r.Wakes = true
		leave()
	case errors.Is(err, errNoProbe):
		r.find(ProblemWakes, false, "waiters poll, and there is no order: give the listener a connection past the pooler",
			"a message through the pool does not reach the listener")
	default:
		r.find(ProblemWakes, false, "waiters poll until it can be opened", "the connection for wake-ups can't be opened (%v)", err)
	}
}

func (r *Report) find(p backends.Problem, unsafe bool, consequence, detail string, args ...any) {
	r.Findings = append(r.Findings, backends.Finding{Problem: p, Detail: fmt.Sprintf(detail, args...), Consequence: consequence, Unsafe: unsafe})
}

const checkStatement = `SELECT version(), pg_is_in_recovery(),
	(extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000000)::bigint,
	current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only'), current_setting('synchronous_standby_names'),
	(SELECT count(*)::int FROM pg_stat_replication),
	coalesce((SELECT (extract(epoch FROM clock_timestamp() - min(xact_start)) * 1000000)::bigint FROM pg_stat_activity WHERE xact_start IS NOT NULL), 0),
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
