package natsstore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Grants that nobody releases are forgotten when they have ended.
func TestTheMemoryOfGrantsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g grants
		for i := range 20 * firstSweep {
			g.put(fmt.Sprint(i), "token", &entry{seq: 1, ttl: 1})
			time.Sleep(time.Second / (firstSweep / 2)) // so about 500 are alive
		}
		if n := len(g.all); n > firstSweep {
			t.Errorf("%d grants are remembered; want %d at most", n, firstSweep)
		}
		g.put("k", "token", &entry{seq: 7, ttl: 1})
		if e := g.get("k", "token"); e == nil || e.seq != 7 {
			t.Errorf("get = %+v", e)
		}
	})
}

func TestServersBefore211AreTooOld(t *testing.T) {
	for version, old := range map[string]bool{"2.10.29": true, "2.9.1": true, "1.4.1": true, "2.11.0": false, "2.15.2": false, "3.0.0": false, "": false} {
		if tooOld(version) != old {
			t.Errorf("tooOld(%q) = %v", version, !old)
		}
	}
}
