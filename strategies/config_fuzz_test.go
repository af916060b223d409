package strategies_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/strategies"
)

// FuzzConfig: New accepts a configuration if and only if the documentation allows it. If not, it
// closes every store that it opened.
func FuzzConfig(f *testing.F) {
	f.Add(uint8(0), uint8(1), 0, 0.0, 0, false, false)
	f.Add(uint8(6), uint8(5), 3, 0.01, 0, false, false)
	f.Add(uint8(7), uint8(5), 6, 0.5, 0, false, false)
	f.Add(uint8(6), uint8(5), 2, 0.0, 0, false, false)
	f.Add(uint8(6), uint8(1), 1, 0.0, 0, false, false)
	f.Add(uint8(9), uint8(1), 0, 0.0, 0, false, false)
	f.Add(uint8(9), uint8(2), 0, 0.0, 0, false, false)
	f.Add(uint8(8), uint8(1), 0, 0.02, 0, false, false)
	f.Add(uint8(200), uint8(0), -1, -0.5, 0, false, false)
	f.Add(uint8(11), uint8(1), 0, 0.0, 0, false, false)
	f.Add(uint8(11), uint8(1), 0, 0.0, 3, false, false)
	f.Add(uint8(11), uint8(1), 0, 0.0, 2047, true, true)
	f.Add(uint8(11), uint8(1), 0, 0.0, 2048, true, true)
	f.Add(uint8(11), uint8(1), 0, 0.0, 2048, true, false)
	f.Add(uint8(12), uint8(1), 0, 0.0, 1, false, false)
	f.Add(uint8(12), uint8(1), 0, 0.0, 0, true, false)
	f.Add(uint8(12), uint8(1), 0, 0.0, 0, false, true)
	f.Fuzz(func(t *testing.T, choice, addrs uint8, quorum int, drift float64, permits int, order, slots bool) {
		names := append(strategies.Names(), "no such strategy")
		c := strategies.Config{
			Strategy: names[int(choice)%len(names)], Backend: "memory", Quorum: quorum, Drift: drift, Permits: permits, Order: order, Slots: slots,
		}
		n := int(addrs) % 9
		for i := range n {
			c.Addrs = append(c.Addrs, fmt.Sprint("node", i))
		}
		open := 0
		from := strategies.Backends{"memory": func(context.Context, string) (backends.Store, func() error, error) {
			open++
			return memory.New().Legacy(), func() error { open--; return nil }, nil
		}}
		want := n == 1 && quorum == 0 && drift == 0
		if strings.HasPrefix(c.Strategy, "redlock") {
			want = n > 1 && (quorum == 0 || quorum > n/2 && quorum <= n) && (drift == 0 || drift >= 0.01 && drift < 1)
		}
		if c.Strategy == "semaphore" {
			want = want && permits > 0 && (permits <= backends.MaxSlots || !slots)
		} else {
			want = want && permits == 0 && !order && !slots
		}
		want = want && slices.Contains(strategies.Names(), c.Strategy)

		l, closeStores, err := strategies.New(t.Context(), c, from)
		switch {
		case want && (err != nil || l == nil || open != n):
			t.Errorf("%+v: %v; %d are open", c, err, open)
		case !want && (err == nil || l != nil || open != 0):
			t.Errorf("%+v is taken, or left %d open: %v", c, open, err)
		case want:
			if err := closeStores(); err != nil || open != 0 {
				t.Errorf("%+v: %d are open when all are closed: %v", c, open, err)
			}
		case !strings.HasPrefix(err.Error(), "lockstep: "):
			t.Errorf("%+v: %v", c, err)
		}
	})
}
