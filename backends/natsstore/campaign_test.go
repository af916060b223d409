package natsstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/goclock"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"github.com/nats-io/nats.go"
)

// The campaigns of NATS: rivals want the same locks while servers, connections and holders fail. A
// part of each runs in every test, and all of it with LOCKSTEP_TORTURE=1. The clocks need it.
//
//	go test -run Campaign -v .

// openFor opens a store for a rival.
func openFor(_ context.Context, addr string) (backends.Store, func() error, error) {
	conn, err := nats.Connect(addr, slices.Concat(connecting, fastPings)...)
	if err != nil {
		return nil, nil, err
	}
	return natsstore.New(conn), func() error { conn.Close(); return nil }, nil
}

// campaign gives each rival a server of its own. A client stays with a server that is cut off from the
// others, and gets no lock meanwhile. If all rivals were there, nobody would.
func campaign(c *cluster, faults ...rivals.Fault) rivals.Campaign {
	n := 0
	return rivals.Campaign{
		Where: "NATS", Setting: "sync always", Module: "backends/natsstore", Open: openFor, TTL: 2 * time.Second, Faults: faults,
		Addr: func(via func(server string) string) string {
			m := c.members[n%len(c.members)]
			n++
			return "nats://" + via(m.client.Addr())
		},
	}
}

// failing is a fault of the leader of the stream, with some grants before it heals.
func failing(t *testing.T, cluster *cluster, name string, fail, heal func(leader *member)) rivals.Fault {
	return rivals.Fault{Name: name, Strike: func(c *rivals.Crew) {
		c.Holder()
		leader := cluster.leader(t)
		fail(leader)
		c.More(2)
		heal(leader)
	}}
}

func TestCampaignOfServersThatFail(t *testing.T) {
	rivals.TwoAtOnce(t)
	c := start(t, 3, always)
	campaign(c,
		rivals.None,
		failing(t, c, "leader killed", (*member).kill, func(m *member) { m.start(t) }),
		failing(t, c, "leader stopped", func(m *member) { m.pause(t) }, (*member).resume),
		// clients still reach it
		failing(t, c, "leader cut off", func(m *member) { c.partition(m, true) }, func(m *member) { c.partition(m, false) }),
	).Run(t)
}

func TestCampaignOfConnectionsThatFail(t *testing.T) {
	rivals.TwoAtOnce(t)
	campaign(start(t, 3, always), rivals.HoldersCutOff, rivals.ConnectionsReset).Run(t)
}

// The wall clock of the leader ends a lock. Each strike moves the clock of the server that leads then.
func TestCampaignOfClocks(t *testing.T) {
	full.Only(t) // it builds the server with the standard library
	program := goclock.Build(t, ".", "test", "-c", ".")
	t.Run("ahead", func(t *testing.T) {
		c := startProgram(t, program, 3, always)
		ahead := campaign(c, rivals.ServerClockAhead(leaderClock{t, c}))
		ahead.Violated, ahead.Kept, ahead.TTL, ahead.Grants = true, true, 15*time.Second, 1
		ahead.Run(t)
	})
	t.Run("back", func(t *testing.T) {
		c := startProgram(t, program, 3, always)
		campaign(c, rivals.ServerClockBack(leaderClock{t, c})).Run(t)
	})
}

type leaderClock struct {
	t *testing.T
	c *cluster
}

func (l leaderClock) MoveClock(by time.Duration) {
	l.c.leader(l.t).moveClock(by)
	eventually(l.t, "the leader sees its clock", func() bool {
		info := stream(l.t, l.c.conn)
		return info != nil && time.Until(info.TimeStamp.Add(-by)).Abs() < 15*time.Second
	})
}

func TestCampaignOfHoldersThatFail(t *testing.T) {
	rivals.TwoAtOnce(t)
	c := campaign(start(t, 3, always), rivals.HoldersKilled, rivals.HoldersStopped)
	c.Processes = true
	c.Run(t)
}
