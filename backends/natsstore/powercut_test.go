package natsstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// The server has no replicas.
func TestCampaignOfPowerCuts(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		setting, lines string
		violated       bool
	}{{"sync always", always, false}, {"sync by default", byDefault, true}} {
		t.Run(x.setting, func(t *testing.T) {
			rivals.TwoAtOnce(t)
			cluster := start(t, 1, x.lines)
			server := cluster.members[0]
			server.volatile(t)
			c := campaign(cluster, rivals.Fault{Name: "power cut", Strike: func(c *rivals.Crew) {
				c.Holder()
				server.cutPower(t)
				server.start(t)
			}})
			c.Setting, c.Violated = x.setting, x.violated
			if x.violated {
				c.Kept, c.TTL, c.Grants = true, 15*time.Second, 1
			}
			c.Run(t)
		})
	}
}

func TestAPowerCutForgetsGrantsAndNumbersUnlessEachWriteIsSynced(t *testing.T) {
	for _, x := range []struct {
		name, settings string
		members        int
		forgets        bool
	}{
		{"one server, by default", byDefault, 1, true},
		{"one server, sync always", always, 1, false},
		{"three servers that lose power together, by default", byDefault, 3, true},
		{"three servers that lose power together, sync always", always, 3, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, x.members, x.settings)
			for _, m := range c.members {
				m.volatile(t)
			}
			store := natsstore.New(c.conn, natsstore.WithMaxTTL(maxTTL))
			grant := func(key string) (number uint64) {
				t.Helper()
				eventually(t, "a grant", func() bool {
					r, err := store.SetNXNumbered(t.Context(), key, "token", 20*time.Minute, backends.Turn{})
					number = r.Fence
					return err == nil && r.OK
				})
				return number
			}
			var keys []string
			var last uint64
			for i := range 20 {
				keys = append(keys, fmt.Sprint("key", i))
				last = grant(keys[i])
			}
			for _, m := range c.members {
				m.cutPower(t)
			}
			for _, m := range c.members {
				m.start(t)
			}
			held := heldOf(t, c, keys)
			if want := map[bool]int{true: 0, false: len(keys)}[x.forgets]; held != want {
				t.Errorf("%d of %d keys are held after the power cut; want %d", held, len(keys), want)
			}
			if next := grant("next"); next <= last != x.forgets {
				t.Errorf("the number after %d is %d", last, next)
			}
		})
	}
}
