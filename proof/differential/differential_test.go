package differential

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-go/lockstep/proof/full"
)

var (
	seedFlag       = flag.Uint64("seed", 0, "of the first sequence; the next ones follow it; 0: any")
	operationsFlag = flag.Int("operations", 0, "how many are performed on each store; 0: 3,000, or 50,000 with LOCKSTEP_TORTURE=1")
)

// seed is printed by each failure.
func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64N(1_000_000_000) + 1
}

// sequence is the number of operations that begin with an empty store. Many short sequences reach
// more situations than a long one, whose counters only rise.
const sequence = 250

func TestAllStoresAnswerAlike(t *testing.T) {
	operations := *operationsFlag
	switch {
	case operations > 0:
	case full.Size():
		operations = 50_000
	default:
		operations = 3_000
	}
	first := seed()
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			if !s.fake {
				t.Parallel()
			}
			tr := newTrial(t, s)
			for done, seed := 0, first; done < operations; done, seed = done+sequence, seed+1 {
				if f := tr.run(t, draw(seed, min(sequence, operations-done))); f != nil {
					length := len(f.steps)
					f = tr.shorten(t, f)
					t.Fatalf("seed %d: %d operations are enough of %d:\n%s      again: go test -C proof/differential -run '%s$' -seed %d -operations %d",
						seed, len(f.steps), length, f, t.Name(), seed, sequence)
				}
			}
		})
	}
}
