package redistest

import (
	"fmt"
	"strings"
	"testing"
)

func TestClusterIsCompleteAndEndsWithTheTest(t *testing.T) {
	t.Parallel()
	Require(t)
	var c *Cluster
	t.Run("while it runs", func(t *testing.T) {
		c = StartCluster(t, 3, 0)
		if n := len(c.Masters()); n != 3 || len(c.Addrs()) != 3 {
			t.Errorf("%d masters at %v", n, c.Addrs())
		}
		for i, s := range c.Servers() {
			key := c.KeyOn(s, "key-%d")
			want(t, s, "OK", "SET", key, "v")
			other := c.Servers()[(i+1)%3]
			if _, err := other.Do("GET", key); err == nil || !strings.HasPrefix(err.Error(), "MOVED ") || !strings.HasSuffix(err.Error(), s.Addr()) {
				t.Errorf("GET on another master: %v", err)
			}
		}
	})
	for _, s := range c.Servers() {
		if !refuses(s.Addr()) {
			t.Errorf("%s is still there", s.Addr())
		}
	}
}

func TestASlotMoves(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 2, 0)
	from, to := c.Servers()[0], c.Servers()[1]
	var keys []string
	tag := c.KeyOn(from, "{%d}")
	for i := range 250 { // more than one MIGRATE takes
		keys = append(keys, fmt.Sprint(tag, i))
		want(t, from, "OK", "SET", keys[i], "v")
	}
	m := c.BeginMove(tag, to)
	want(t, from, "v", "GET", keys[0])
	if _, err := from.Do("GET", tag+"absent"); err == nil || !strings.HasPrefix(err.Error(), "ASK ") {
		t.Errorf("GET of a key that is not there: %v", err)
	}
	m.Keys()
	if _, err := from.Do("GET", keys[0]); err == nil || !strings.HasPrefix(err.Error(), "ASK ") {
		t.Errorf("GET of a key that was moved: %v", err)
	}
	if c.Master(tag) != from {
		t.Error("the slot has moved before Finish")
	}
	m.Finish()
	for _, key := range keys {
		want(t, to, "v", "GET", key)
	}
	if _, err := from.Do("GET", keys[0]); err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
		t.Errorf("GET on the old master: %v", err)
	}
	if c.Master(tag) != to {
		t.Error("nobody knows that the slot has moved")
	}
	c.MoveSlot(tag, from)
	want(t, from, "v", "GET", keys[249])
}

func TestAReplicaOfAClusterTakesOver(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 1)
	key := c.KeyOn(c.Servers()[1], "key-%d")
	want(t, c.Master(key), "OK", "SET", key, "v")
	replica := c.Servers()[4]
	await(t, "the value is replicated", func() bool {
		reply, err := replica.Do("DBSIZE")
		return err == nil && reply == int64(1)
	})
	dead := c.KillMaster(key)
	if dead != c.Servers()[1] {
		t.Errorf("killed %s", dead.Addr())
	}
	if m := c.AwaitFailover(key, dead); m != replica || c.Master(key) != m {
		t.Errorf("%s took over", m.Addr())
	}
	want(t, replica, "v", "GET", key)
}
