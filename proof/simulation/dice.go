package simulation

import (
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"
)

// dice are seeded by the schedule and by their purpose, such as "the third SetNX of this token on
// node 2". So a draw does not depend on the order in which goroutines draw, and a replay is exact.
type dice struct{ *rand.Rand }

func throwFor(seed uint64, what ...string) dice {
	h := fnv.New64a()
	h.Write(strconv.AppendUint(nil, seed, 10))
	for _, w := range what {
		h.Write([]byte{0})
		h.Write([]byte(w))
	}
	return dice{rand.New(rand.NewPCG(h.Sum64(), seed))}
}

// chance is true with probability p.
func (d dice) chance(p float64) bool { return d.Float64() < p }

// between draws a duration to the nanosecond, so that no two things happen at one instant.
func (d dice) between(low, high time.Duration) time.Duration {
	return low + time.Duration(d.Int64N(int64(high-low)))
}

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }
