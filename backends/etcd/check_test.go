package etcd_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

func check(t *testing.T, client *clientv3.Client) etcd.Report {
	t.Helper()
	r, err := etcd.New(client).Check(trial.Patient(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantProblems(t *testing.T, r etcd.Report, want ...backends.Problem) {
	t.Helper()
	var found []backends.Problem
	for _, f := range r.Findings {
		found = append(found, f.Problem)
	}
	if !slices.Equal(found, want) {
		t.Errorf("%v\nwant the problems %v", r, want)
	}
}

func TestCheck(t *testing.T) {
	c := etcdtest.Start(t, 3, etcdtest.Fast)
	_, client, err := etcd.Open(clientv3.Config{Endpoints: c.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	r := check(t, client)
	wantProblems(t, r)
	if r.Cluster == "" || r.Members != 3 || !slices.Equal(r.Versions, []string{"3.7.3"}) {
		t.Errorf("Report = %+v; want a cluster of 3 members, all of version 3.7.3", r)
	}
	if same := check(t, dial(t, c.Endpoints()[:1])); same.Cluster != r.Cluster || same.Members != 3 {
		t.Errorf("Report through one member = %+v; want that of the cluster", same)
	}

	c.Members[0].Kill()
	r = check(t, client)
	if wantProblems(t, r, etcd.ProblemMembers); !strings.Contains(r.String(), "connection refused") {
		t.Errorf("%v; want why a member does not answer", r)
	}
	c.Members[0].Restart()

	join(t, c, func(ctx context.Context, peers []string) error {
		_, err := client.MemberAddAsLearner(ctx, peers)
		return err
	})
	wantProblems(t, check(t, client), etcd.ProblemMembers)
}

func TestCheckFindsAClusterWithinAnother(t *testing.T) {
	one := etcdtest.Start(t, 1, etcdtest.Fast, "--initial-cluster-token", "one")
	other := etcdtest.Start(t, 1, etcdtest.Fast, "--initial-cluster-token", "other", "--election-timeout", "5000", "--heartbeat-interval", "500")
	r := check(t, dial(t, slices.Concat(one.Endpoints(), other.Endpoints())))
	wantProblems(t, r, etcd.ProblemMembers, etcd.ProblemCluster)
	if r.Err() == nil || r.Err(etcd.ProblemCluster) != nil {
		t.Errorf("Err = %v, and %v if it is allowed", r.Err(), r.Err(etcd.ProblemCluster))
	}

	store := etcd.New(dial(t, other.Endpoints()))
	for _, token := range []string{"one", "two"} { // the second takes the spare of the first
		if r, err := store.SetNX(t.Context(), "k", token, 3e9); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		if ok, err := store.DeleteIf(t.Context(), "k", token); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	r, err := store.Check(trial.Patient(t))
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, r, etcd.ProblemMembers, etcd.ProblemLease)
}

func TestMembersOfAClusterAreOneNode(t *testing.T) {
	c := etcdtest.Start(t, 3, etcdtest.Fast)
	_, apart := one(t)
	err := backends.CheckNodes(trial.Patient(t), etcd.New(dial(t, c.Endpoints()[:1])), etcd.New(dial(t, c.Endpoints()[1:2])), etcd.New(apart))
	nodes, ok := err.(*backends.NodesError)
	if !ok || !slices.Equal(nodes.Same, [][2]int{{0, 1}}) || len(nodes.Followers)+len(nodes.Unreachable) > 0 {
		t.Errorf("CheckNodes = %v; want the first two the same", err)
	}
}

// A proxy or another version may show less. What Check could not see is a finding.
func TestCheckSaysWhatItWasNotShown(t *testing.T) {
	c, _ := one(t)
	p := new(tap)
	client := dial(t, c.Endpoints(), p.option())
	p.set(func(method string, call func() error) error {
		if method == "MemberList" || method == "Alarm" {
			return rpctypes.ErrGRPCPermissionDenied
		}
		return call()
	})
	r := check(t, client)
	wantProblems(t, r, etcd.ProblemPermission, etcd.ProblemPermission)
	if !slices.Equal(r.Versions, []string{"3.7.3"}) {
		t.Errorf("Report = %+v; want the version of the member of the client", r)
	}
	p.set(func(string, func() error) error { return rpctypes.ErrGRPCPermissionDenied })
	if r, err := etcd.New(client).Check(trial.Patient(t)); err == nil {
		t.Errorf("Check = %v of a cluster that shows nothing; want an error", r)
	}
}
