package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/info"
	"github.com/lockstep-go/lockstep/internal/printed"
)

// Report is what a server says of itself that matters to locks.
type Report struct {
	RunID     string        // changes with every start; empty: unknown
	Version   string        // of the server, with "Valkey" before it if it is one; empty: unknown
	Role      string        // master or slave; empty: unknown
	Uptime    time.Duration // since its last start, whole seconds by its own clock; negative: unknown
	Eviction  string        // maxmemory-policy; empty: unknown
	AOF       bool          // whether it keeps an append-only file
	Fsync     string        // appendfsync; empty: unknown
	Replicas  int           // connected to it
	ClockSkew time.Duration // its wall clock minus ours, known to half of RoundTrip
	RoundTrip time.Duration

	Findings backends.Findings
}

// String is one line for the server, and one for each finding, the unsafe ones marked.
func (r Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s", cmp.Or(r.Role, "server of unknown role"), cmp.Or(r.Version, "of unknown version"))
	if r.Uptime >= 0 {
		fmt.Fprintf(&text, ", up %v", r.Uptime)
	}
	if r.Eviction != "" {
		fmt.Fprintf(&text, ", maxmemory-policy %s", r.Eviction)
	}
	switch {
	case r.AOF && r.Fsync != "":
		fmt.Fprintf(&text, ", append-only file synced %s", r.Fsync)
	case r.AOF:
		text.WriteString(", append-only file")
	}
	fmt.Fprintf(&text, ", %s, clock off by %v, round trip %v", printed.Count(r.Replicas, "replica"), r.ClockSkew, r.RoundTrip.Round(time.Microsecond))
	if len(r.Findings) == 0 {
		text.WriteString("; nothing found")
	}
	text.WriteString(r.Findings.String())
	return text.String()
}

// Finding is one thing that is not as a lock would have it.
type Finding = backends.Finding

// Problem names a kind of finding, for Report.Err to allow.
type Problem = backends.Problem

// The kinds of findings.
const (
	ProblemRole        Problem = "role"
	ProblemRestarted   Problem = "restarted"
	ProblemUptime      Problem = "uptime"
	ProblemEviction    Problem = "eviction"
	ProblemPersistence Problem = "persistence"
	ProblemReplicas    Problem = "replicas"
	ProblemClock       Problem = "clock"
	ProblemPermission  Problem = "permission"
	ProblemUnknown     Problem = "unknown"
)

// Err is nil unless a finding is unsafe and its problem not among those allowed.
func (r Report) Err(allowed ...Problem) error { return r.Findings.Err(allowed...) }

// maxSkew is what clocks may differ by before it is worth a finding: more than NTP leaves.
const maxSkew = 500 * time.Millisecond

// Check asks the server what it is and how it is set up, and says what each finding means. What it
// is not permitted to ask is a finding too. The error is not nil only if the server did not answer, did
// not accept the connection, the user or the password, or is not able to answer at the moment.
// With a cluster client one node answers.
func (s *Store) Check(ctx context.Context) (Report, error) {
	return reading(ctx, s, func(ctx context.Context) (Report, error) { return s.report(ctx) })
}

func (s *Store) report(ctx context.Context) (Report, error) {
	r := Report{Uptime: -1}
	switch {
	case ctx == nil:
		return r, errors.New("lockstep: check: ctx is nil; use context.Background()")
	case s == nil || s.exec == nil:
		return r, errors.New("lockstep: check: the Store was not made by New or Open of an adapter")
	}
	fields, err := s.info(ctx, &r)
	if fields != nil {
		r.read(fields)
		r.judge(s.config.maxTTL)
	}
	if err == nil {
		err = s.fsync(ctx, &r)
	}
	if err == nil {
		err = s.clock(ctx, &r)
	}
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", err)
	}
	return r, nil
}

func (r *Report) find(p Problem, unsafe bool, consequence, detail string, args ...any) {
	r.Findings = append(r.Findings, Finding{Problem: p, Detail: fmt.Sprintf(detail, args...), Consequence: consequence, Unsafe: unsafe})
}

// tolerate makes a reply that refuses this command a finding. It returns any other error, and a reply that
// every command gets: about the password, or from a server that has too many clients or is busy.
func (r *Report) tolerate(err error, command, consequence string) error {
	var reply *driver.ReplyError
	switch {
	case !errors.As(err, &reply), reply.Code() == "NOAUTH", reply.Code() == "WRONGPASS", reply.Code() == "DENIED",
		reply.Connecting, reply.Unsent():
		return err
	case reply.Code() == "NOPERM":
		r.find(ProblemPermission, false, consequence, "%s is not permitted", command)
	default:
		r.find(ProblemUnknown, false, consequence, "%s is refused (%v)", command, reply)
	}
	return nil
}

// info returns the fields of INFO, or nil and a finding.
func (s *Store) info(ctx context.Context, r *Report) (map[string]string, error) {
	reply, err := s.look(ctx, "INFO")
	if err != nil {
		if err = r.tolerate(err, "INFO",
			"a restart or a promotion that made it forget locks is not noticed: there is no quarantine; role, uptime, eviction and persistence can't be checked",
		); err == nil {
			_, none := s.guard.(unguarded)
			r.Findings[len(r.Findings)-1].Unsafe = !none // the program counts on quarantine
		}
		return nil, err
	}
	text, _ := reply.(string)
	return info.Parse(text), nil
}

func (r *Report) read(fields map[string]string) {
	r.RunID, r.Version, r.Role = fields["run_id"], info.Version(fields), fields["role"]
	r.Eviction = fields["maxmemory_policy"]
	r.AOF = fields["aof_enabled"] == "1"
	r.Replicas, _ = strconv.Atoi(fields["connected_slaves"])
	if up, ok := info.Uptime(fields); ok {
		r.Uptime = up
	}
}

func (r *Report) judge(maxTTL time.Duration) {
	if r.Role != "master" && r.Role != "" {
		r.find(ProblemRole, true, "what it holds may be behind its master, and a lock can't be taken on it",
			"the server is a replica (role %s)", r.Role)
	}
	switch {
	case r.Uptime < 0:
		r.find(ProblemUptime, false, "a restart that made it forget locks can't be noticed", "the server tells no uptime")
	case r.Uptime < maxTTL+info.UptimeError:
		r.find(ProblemRestarted, true, "a lock granted before the restart may be granted again while its holder still believes in it",
			"the server was started %v ago, less than the longest TTL of %v", r.Uptime, maxTTL)
	}
	switch {
	case r.Eviction == "":
		r.find(ProblemUnknown, false, "locks may be evicted while they are held", "the server tells no eviction policy")
	case r.Eviction != "noeviction":
		r.find(ProblemEviction, true, "under memory pressure it deletes locks that are held, and grants them again",
			"maxmemory-policy is %s", r.Eviction)
	}
	if !r.AOF {
		r.find(ProblemPersistence, false, "a restart forgets locks that are held; only quarantine keeps them from being granted again",
			"no append-only file is kept")
	}
	if r.Replicas > 0 {
		r.find(ProblemReplicas, false, "replication is asynchronous: a lock granted just before a failover may be granted again after it",
			"it has %s", printed.Count(r.Replicas, "replica"))
	}
}

// fsync asks how often the append-only file is synced, if there is one.
func (s *Store) fsync(ctx context.Context, r *Report) error {
	if !r.AOF {
		return nil
	}
	reply, err := s.look(ctx, "CONFIG", "GET", "appendfsync")
	if err != nil {
		return r.tolerate(err, "CONFIG GET", "whether a power cut makes it forget locks that are held is unknown")
	}
	r.Fsync = configValue(reply)
	switch r.Fsync {
	case "always":
	case "":
		r.find(ProblemUnknown, false, "whether a power cut makes it forget locks that are held is unknown", "the server tells no appendfsync")
	default:
		r.find(ProblemPersistence, false, "a power cut makes it forget the locks of the last second or more",
			"appendfsync is %s", r.Fsync)
	}
	return nil
}

// configValue reads the reply of CONFIG GET for one parameter.
func configValue(reply any) string {
	if pair, _ := reply.([]any); len(pair) == 2 {
		value, _ := pair[1].(string)
		return value
	}
	return ""
}

// clock compares the server's wall clock with ours.
func (s *Store) clock(ctx context.Context, r *Report) error {
	before := time.Now()
	reply, err := s.look(ctx, "TIME")
	if err != nil {
		return r.tolerate(err, "TIME", "the skew of its clock is unknown")
	}
	r.RoundTrip = time.Since(before)
	server, ok := serverTime(reply)
	if !ok {
		return unexpected(reply)
	}
	r.ClockSkew = server.Sub(before.Add(r.RoundTrip / 2).Round(0)).Round(time.Microsecond)
	if r.ClockSkew.Abs() > maxSkew+r.RoundTrip/2 {
		r.find(ProblemClock, false, "leases do not depend on it, but a clock that is set while locks are held ends them early or late",
			"its clock differs from ours by %v", r.ClockSkew)
	}
	return nil
}

func serverTime(reply any) (time.Time, bool) {
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		return time.Time{}, false
	}
	s, errS := strconv.ParseInt(fmt.Sprint(pair[0]), 10, 64)
	us, errU := strconv.ParseInt(fmt.Sprint(pair[1]), 10, 64)
	return time.UnixMicro(s*1e6 + us), errS == nil && errU == nil
}
