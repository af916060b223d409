package legacy_test

import (
	"flag"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
)

// TestMain runs more tests at once than there are processors: on real servers they mostly sleep.
func TestMain(m *testing.M) {
	flag.Parse()
	if n, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String()); err == nil && n < 16 {
		_ = flag.Set("test.parallel", "16")
	}
	os.Exit(redistest.Main(m))
}

func TestContract(t *testing.T) {
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			beneath.Run(t, lockertest.Harness{NoWatch: true, NoTransfer: true, NoEvict: true, NoLeft: r.noLeft, Resolution: r.coarse, Except: r.except}, r.disturbed)
		})
	}
}

// TestContractOfStampsThatAreCutOff begins late in a second, since a stamp in seconds cuts off the
// rest of the second. Fake time begins with a whole second.
func TestContractOfStampsThatAreCutOff(t *testing.T) {
	for _, r := range recipes {
		if r.coarse == 0 {
			continue
		}
		lockertest.Run(t, lockertest.Harness{
			Bubble: true, NoWatch: true, NoTransfer: true, NoEvict: true, Resolution: r.coarse, Except: r.except,
			New: func(t *testing.T) (locker.Locker, lockertest.Disturber) {
				time.Sleep(900 * time.Millisecond)
				return r.disturbed(beneath.Memory(t))
			},
		})
	}
}

// plain returns the plain commands of a store.
func plain(store any) backends.LegacyStore {
	if s, ok := store.(*memory.Store); ok {
		return s.Legacy()
	}
	return store.(backends.LegacyStore)
}
