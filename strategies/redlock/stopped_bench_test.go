package redlock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// BenchmarkStoppedServers locks and unlocks one key after the other on five servers, of which some
// are stopped. Rounds with and without stopped servers alternate, so that both run in the same
// conditions. "/healthy" is the ratio of their medians.
func BenchmarkStoppedServers(b *testing.B) {
	for client, reach := range map[string]reach{"go-redis": byDefault["go-redis"], "redigo": keptConnections} {
		for _, stopped := range []int{0, 1, 2} {
			b.Run(fmt.Sprintf("%s/%d", client, stopped), func(b *testing.B) {
				healthy := newRounds(b, reach, 0)
				some := newRounds(b, reach, stopped)
				for b.Loop() {
					healthy.round(b)
					some.round(b)
				}
				p50, p99 := some.quantile(0.5), some.quantile(0.99)
				b.ReportMetric(0, "ns/op") // hides ns/op, which is about both kinds of rounds
				b.ReportMetric(float64(p50)/1e3, "p50-µs")
				b.ReportMetric(float64(p99)/1e3, "p99-µs")
				b.ReportMetric(float64(p50)/float64(healthy.quantile(0.5)), "/healthy")
				b.ReportMetric(float64(some.failed), "failed")
			})
		}
	}
}

// keptConnections keeps idle connections. Otherwise a pool of redigo dials for each command, and a
// benchmark runs out of ports.
func keptConnections(tb testing.TB, server *redistest.Server) backends.FencedStore {
	return pooled(tb, &redigolib.Pool{
		Dial:    func() (redigolib.Conn, error) { return redigolib.Dial("tcp", server.Addr()) },
		MaxIdle: 100,
	})
}

// rounds measures one quorum.
type rounds struct {
	*locker.Client
	took   []time.Duration
	failed int // rounds that failed: the machine was slower than the limit
}

func newRounds(b *testing.B, reach reach, stopped int) *rounds {
	servers := redistest.StartN(b, 5)
	l := reach.quorum(b, servers, plain, redlock.WithNodeLimit(redlock.DefaultNodeLimit))
	r := &rounds{Client: locker.New(l)}
	for range 100 { // connections
		r.round(b)
	}
	r.took, r.failed = nil, 0
	for _, s := range servers[:stopped] {
		s.Pause()
	}
	return r
}

func (r *rounds) round(b *testing.B) {
	began := time.Now()
	l, err := r.Lock(b.Context(), "key")
	if err == nil {
		err = l.Unlock(b.Context())
	}
	if err != nil {
		r.failed++
	}
	r.took = append(r.took, time.Since(began))
}

func (r *rounds) quantile(q float64) time.Duration {
	slices.Sort(r.took)
	return r.took[int(q*float64(len(r.took)-1))]
}
