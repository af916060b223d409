package natsstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
	"github.com/lockstep-go/lockstep/internal/printed"
)

// Report is what a server and the stream say of themselves that matters to locks.
type Report struct {
	Version   string // of the server that the connection is to
	Cluster   string // its name; empty: the server is alone
	Leader    string // of the stream
	Replicas  int
	ClockSkew time.Duration // the wall clock of the leader minus ours, known to half of RoundTrip
	RoundTrip time.Duration

	Findings backends.Findings
}

// String is one line for the stream, and one for each finding, the unsafe ones marked.
func (r Report) String() string {
	return fmt.Sprintf("NATS %s, %s, leader of the stream %s, %s, clock off by %v, round trip %v",
		r.Version, cmp.Or(r.Cluster, "no cluster"), cmp.Or(r.Leader, "unknown"), printed.Count(r.Replicas, "replica"), r.ClockSkew, r.RoundTrip.Round(time.Microsecond)) + r.Findings.String()
}

// Err is nil unless a finding is unsafe and its problem not among those allowed.
func (r Report) Err(allowed ...backends.Problem) error { return r.Findings.Err(allowed...) }

// The kinds of findings.
const (
	ProblemVersion     backends.Problem = "version"
	ProblemInstall     backends.Problem = "install"
	ProblemSettings    backends.Problem = "settings"
	ProblemPersistence backends.Problem = "persistence"
	ProblemSync        backends.Problem = "sync"
	ProblemReplicas    backends.Problem = "replicas"
	ProblemSpace       backends.Problem = "space"
	ProblemClock       backends.Problem = "clock"
)

const maxSkew = 500 * time.Millisecond // more than NTP leaves

// Check asks for the stream and says what each finding means. The error is not nil only if
// JetStream did not answer. One finding is always there: no client can see whether the servers call
// fsync before they acknowledge.
func (s *Store) Check(ctx context.Context) (r Report, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	if err := s.ready(ctx, ""); err != nil {
		return r, fmt.Errorf("lockstep: check: %w", err)
	}
	before := time.Now()
	info, err := s.info(ctx)
	r.RoundTrip = time.Since(before)
	version := make(chan string, 1)
	if soon(ctx, func() { version <- s.conn.ConnectedServerVersion() }) {
		r.Version = <-version
	}
	if tooOld(r.Version) {
		r.find(ProblemVersion, true, "it knows no TTL of a message, so a lock would never end: use 2.11 or later", "the server is NATS %s", r.Version)
	}
	if code(err) == codeNoStream {
		r.find(ProblemInstall, true, "no lock can be taken: call Install once", "there is no stream %s", s.config.stream)
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", err)
	}
	r.Cluster, r.Leader, r.Replicas = info.Cluster.Name, info.Cluster.Leader, info.Config.Replicas
	for _, why := range s.wrong(info.Config) {
		r.find(ProblemSettings, true, "change it with nats stream edit, or make another stream by Install", "the stream %s is not fit for locks: %s", s.config.stream, why)
	}
	if info.Config.Storage == "memory" {
		r.find(ProblemPersistence, true, "a restart forgets locks that are held, of all replicas together at the latest", "the stream %s is in memory", s.config.stream)
	} else {
		r.find(ProblemSync, false, "with the default, a power cut makes a server forget up to two minutes of grants: set sync_interval: always on each",
			"whether the servers sync before they acknowledge is unknown, since no client can see it")
	}
	r.limit(info.Config.MaxBytes, "max_bytes", s.config.stream)
	r.limit(info.Config.MaxMsgs, "max_msgs", s.config.stream)
	if r.Replicas < 3 {
		r.find(ProblemReplicas, false, "locks stop while a server is down, and a lost disk forgets all: use three in a cluster",
			"the stream %s has %s", s.config.stream, printed.Count(r.Replicas, "replica"))
	}
	for _, replica := range info.Cluster.Replicas {
		if replica.Offline || !replica.Current {
			r.find(ProblemReplicas, false, "the others must not lose another one of the majority", "the replica %s is offline or behind by %d", replica.Name, replica.Lag)
		}
	}
	r.ClockSkew = info.Time.Sub(before.Add(r.RoundTrip / 2).Round(0)).Round(time.Microsecond)
	if r.ClockSkew.Abs() > maxSkew+r.RoundTrip/2 {
		r.find(ProblemClock, false, "a change of the leader, or a clock that is set, ends locks early or late: set the clocks of all servers",
			"the clock of %s differs from ours by %v", r.Leader, r.ClockSkew)
	}
	return r, nil
}

// limit is about a stream that may be full. The server counts a renewal as one more message, or as a bigger one,
// although it takes the place of another.
func (r *Report) limit(most int64, name, stream string) {
	if most > 0 {
		r.find(ProblemSpace, false, "when it is full, no lock can be renewed, and those that are held end: set it to -1, or far above what all locks need",
			"%s of the stream %s is %d", name, stream, most)
	}
}

// tooOld tells that a version has no TTL of a message.
func tooOld(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major < 2 || major == 2 && minor < 11
}

func (r *Report) find(p backends.Problem, unsafe bool, consequence, detail string, args ...any) {
	r.Findings = append(r.Findings, backends.Finding{Problem: p, Detail: fmt.Sprintf(detail, args...), Consequence: consequence, Unsafe: unsafe})
}
