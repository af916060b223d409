package etcd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// The campaigns of etcd: rivals want the same locks while members, connections and holders fail. A
// part of each runs in every test, and all of it with LOCKSTEP_TORTURE=1. The clocks need it.
//
//	go test -run Campaign -v .

// openFor opens a store for a rival, which knows all members.
func openFor(_ context.Context, addr string) (backends.Store, func() error, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Fields(addr), Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		return nil, nil, err
	}
	return etcd.New(client), client.Close, nil
}

func campaign(c *etcdtest.Cluster, faults ...rivals.Fault) rivals.Campaign {
	return rivals.Campaign{
		Where: "etcd", Module: "backends/etcd", Open: openFor, TTL: 2 * time.Second, Faults: faults,
		Brief: []rivals.Strategy{rivals.Fenced, rivals.Semaphore},
		Addr: func(via func(server string) string) string {
			var all []string
			for _, m := range c.Members {
				all = append(all, via(m.Addr()))
			}
			return strings.Join(all, " ")
		},
	}
}

// failing is a fault of the leader, with some grants before it heals.
func failing(t *testing.T, cluster *etcdtest.Cluster, name string, fail, heal func(old *etcdtest.Member)) rivals.Fault {
	client := dial(t, cluster.Endpoints())
	return rivals.Fault{Name: name, Strike: func(c *rivals.Crew) {
		c.Holder()
		old := leader(t, cluster, client, nil)
		fail(old)
		leader(t, cluster, client, old)
		c.More(2)
		heal(old)
	}}
}

func TestCampaignOfMembersThatFail(t *testing.T) {
	rivals.TwoAtOnce(t)
	c := etcdtest.Start(t, 3, etcdtest.Fast)
	campaign(c,
		rivals.None,
		failing(t, c, "leader killed", (*etcdtest.Member).Kill, (*etcdtest.Member).Restart),
		failing(t, c, "leader stopped", (*etcdtest.Member).Pause, (*etcdtest.Member).Resume),
		// clients still reach it
		failing(t, c, "leader cut off", c.Isolate, func(*etcdtest.Member) { c.Heal() }),
	).Run(t)
}

// A new member takes the place of the leader, for the cluster and for the rivals.
func TestCampaignOfMembersThatAreReplaced(t *testing.T) {
	rivals.TwoAtOnce(t)
	cluster := etcdtest.Start(t, 3, etcdtest.Fast)
	campaign(cluster, rivals.Fault{Name: "leader replaced", Strike: func(c *rivals.Crew) {
		client := dial(t, cluster.Endpoints())
		next := join(t, cluster, func(ctx context.Context, peers []string) error {
			_, err := client.MemberAdd(ctx, peers)
			return err
		})
		old := leader(t, cluster, client, nil)
		c.Holder()
		remove(t, client, old)
		leader(t, cluster, client, old)
		cluster.Removed(old)
		c.Lead(old.Addr(), next.Addr())
	}}).Run(t)
}

// remove takes a member out. The cluster refuses it until its newest member is up.
func remove(t *testing.T, client *clientv3.Client, m *etcdtest.Member) {
	t.Helper()
	state, err := client.Status(t.Context(), m.URL())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, m.Name+" is removed", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := client.MemberRemove(ctx, state.Header.MemberId)
		return err == nil || strings.Contains(err.Error(), "not found")
	})
}

func TestCampaignOfConnectionsThatFail(t *testing.T) {
	rivals.TwoAtOnce(t)
	campaign(etcdtest.Start(t, 3, etcdtest.Fast, etcdtest.Steady), rivals.HoldersCutOff, rivals.ConnectionsReset).Run(t)
}

// A lease ends by the monotonic clock of the leader. Each strike moves the wall clock of the member that
// leads then.
func TestCampaignOfClocks(t *testing.T) {
	full.Only(t) // it builds etcd with the standard library
	c := etcdtest.StartWithMovableClocks(t, 3, etcdtest.Fast)
	clock := leaderClock{t, c, dial(t, c.Endpoints())}
	campaign(c, rivals.ServerClockAhead(clock), rivals.ServerClockBack(clock)).Run(t)
}

type leaderClock struct {
	t      *testing.T
	c      *etcdtest.Cluster
	client *clientv3.Client
}

func (l leaderClock) MoveClock(by time.Duration) { leader(l.t, l.c, l.client, nil).MoveClock(by) }

func TestCampaignOfHoldersThatFail(t *testing.T) {
	rivals.TwoAtOnce(t)
	c := campaign(etcdtest.Start(t, 3, etcdtest.Fast, etcdtest.Steady), rivals.HoldersKilled, rivals.HoldersStopped)
	c.Processes = true
	c.Run(t)
}
