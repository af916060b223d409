package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
	"github.com/lockstep-go/lockstep/internal/printed"
)

// Report is what a cluster says of itself that matters to locks.
type Report struct {
	Cluster  string   // its id, as etcdctl shows it
	Members  int      // learners too; 0: the user of the client may not list them
	Versions []string // of the members that have answered, each once

	Findings backends.Findings
}

// String is one line for the cluster, and one for each finding, the unsafe ones marked.
func (r Report) String() string {
	text := fmt.Sprintf("etcd cluster %s of %s, versions %s", r.Cluster, printed.Count(r.Members, "member"), strings.Join(r.Versions, ", "))
	if len(r.Findings) == 0 {
		text += "; nothing found"
	}
	return text + r.Findings.String()
}

// Err is nil unless a finding is unsafe and its problem not among those allowed.
func (r Report) Err(allowed ...backends.Problem) error { return r.Findings.Err(allowed...) }

// The kinds of findings.
const (
	ProblemVersion    backends.Problem = "version"
	ProblemAlarm      backends.Problem = "alarm"
	ProblemMembers    backends.Problem = "members"
	ProblemSpace      backends.Problem = "space"
	ProblemCluster    backends.Problem = "cluster"
	ProblemLease      backends.Problem = "lease"
	ProblemPermission backends.Problem = "permission"
)

const (
	memberPatience = 5 * time.Second // what Check waits for one member
	fullAt         = 80              // percent of the quota
)

// Check asks the members how they are, and says what each finding means. The error is not nil only if
// the cluster did not answer, or if the user of the client may not read the prefix of the store. If
// members or alarms are not shown to the user, a finding says so.
func (s *Store) Check(ctx context.Context) (_ Report, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	ctx = withTrace(ctx)
	var r Report
	if err := s.ready(ctx); err != nil {
		return r, fmt.Errorf("lockstep: check: %w", err)
	}
	got, err := s.client.Get(ctx, s.at(""), clientv3.WithCountOnly())
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", s.notDone(ctx, err))
	}
	r.Cluster = clusterID(got.Header)
	list, err := s.client.MemberList(ctx)
	if err != nil {
		r.hidden("members", err)
	} else {
		r.members(list.Members)
	}
	r.states(s.ask(ctx, r.endpoints(s.client.Endpoints(), list)))
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		r.hidden("alarms", err)
	} else {
		r.alarms(alarms.Alarms)
	}
	if least := s.spares.shortest(); least > shortestLease {
		r.find(ProblemLease, false, "a lock whose holder has died is kept as long: its election timeout is longer than the default",
			"the shortest lease of the cluster has %d seconds", least)
	}
	return r, nil
}

// hidden notes that the cluster does not show something.
func (r *Report) hidden(what string, err error) {
	r.find(ProblemPermission, false, "Check says nothing about them: run it as a user with the role root", "the %s can't be listed (%v)", what, err)
}

func (r *Report) members(all []*pb.Member) {
	r.Members = len(all)
	voters := 0
	for _, m := range all {
		if m.IsLearner {
			r.find(ProblemMembers, false, "it does not count for a majority: promote it, or remove it", "member %s is a learner", m.Name)
		} else {
			voters++
		}
	}
	if voters < 3 || voters%2 == 0 {
		r.find(ProblemMembers, false, "no lock can be taken while a majority is down: three or five members outlast one or two that are",
			"the cluster has %d voting members", voters)
	}
}

// endpoints are the addresses to ask: those of the client, and one of each member that is not among
// them.
func (r *Report) endpoints(of []string, list *clientv3.MemberListResponse) []string {
	all := slices.Clone(of)
	if list == nil {
		return all
	}
	for _, m := range list.Members {
		known := slices.ContainsFunc(m.ClientURLs, func(url string) bool {
			return slices.ContainsFunc(of, func(e string) bool { return host(e) == host(url) })
		})
		if !known && len(m.ClientURLs) > 0 {
			all = append(all, m.ClientURLs[0])
		}
	}
	return all
}

// host is an address without its scheme, which a client may leave out.
func host(endpoint string) string {
	if _, rest, ok := strings.Cut(endpoint, "://"); ok {
		return rest
	}
	return endpoint
}

// told is what one member has told of itself.
type told struct {
	endpoint string
	status   *clientv3.StatusResponse
	err      error
}

func (s *Store) ask(ctx context.Context, endpoints []string) []told {
	all := make([]told, len(endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(withTrace(ctx), memberPatience)
			defer cancel()
			status, err := s.client.Status(ctx, endpoint)
			if why := because(reason(ctx)); why != "" {
				err = fmt.Errorf("%w%s%s", err, why, hint(why))
			}
			all[i] = told{endpoint, status, err}
		})
	}
	wg.Wait()
	return all
}

// states judges the members one by one.
func (r *Report) states(all []told) {
	for _, m := range all {
		if m.err != nil {
			r.find(ProblemMembers, false, "if it is down, fewer others may fail before no lock can be taken", "the member at %s does not answer (%v)", m.endpoint, m.err)
			continue
		}
		if !slices.Contains(r.Versions, m.status.Version) {
			r.Versions = append(r.Versions, m.status.Version)
		}
		if id := clusterID(m.status.Header); id != r.Cluster {
			r.find(ProblemCluster, true, "each cluster has locks of its own, so two holders are possible: give the client the members of one cluster",
				"the member at %s is of another cluster, %s", m.endpoint, id)
		}
		if revokesTooEarly(m.status.Version) {
			r.find(ProblemVersion, true, "a leader that was replaced may end leases that are held (etcd issue 15247): use 3.4.31, 3.5.13 or later",
				"the member at %s is etcd %s", m.endpoint, m.status.Version)
		}
		if m.status.Leader == 0 {
			r.find(ProblemMembers, false, "it can grant nothing until it finds the others", "the member at %s has no leader", m.endpoint)
		}
		if quota := m.status.DbSizeQuota; quota > 0 && m.status.DbSize > quota/100*fullAt {
			r.find(ProblemSpace, false, "when it is full, no lock can be taken: compact and defragment it, and turn compaction on",
				"the database of the member at %s has %d of %d bytes", m.endpoint, m.status.DbSize, quota)
		}
	}
}

func (r *Report) alarms(all []*pb.AlarmMember) {
	for _, a := range all {
		if a.Alarm == pb.AlarmType_CORRUPT {
			r.find(ProblemAlarm, true, "the members do not agree about what they keep: replace the one that differs", "the alarm %s is on", a.Alarm)
			continue
		}
		r.find(ProblemAlarm, false, "no lock can be taken, and those that are held go on: compact and defragment the members, and disarm the alarm",
			"the alarm %s is on", a.Alarm)
	}
}

// revokesTooEarly tells that a version has the defect of issue 15247, which 3.4.31 and 3.5.13 mend. A
// version that can't be read has it: Check must not call safe what it does not know.
func revokesTooEarly(version string) bool {
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return true
	}
	switch {
	case major != 3:
		return major < 3
	case minor == 4:
		return patch < 31
	case minor == 5:
		return patch < 13
	}
	return minor < 4
}

func (r *Report) find(p backends.Problem, unsafe bool, consequence, detail string, args ...any) {
	r.Findings = append(r.Findings, backends.Finding{Problem: p, Detail: fmt.Sprintf(detail, args...), Consequence: consequence, Unsafe: unsafe})
}
