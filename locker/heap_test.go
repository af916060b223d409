package locker

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// BenchmarkScheduler is what the scheduler does for one renewal of 100,000 locks: it takes the task
// that is due first from its heap, and puts it back a third of the TTL later.
func BenchmarkScheduler(b *testing.B) {
	const n, third = 100_000, 10 * time.Second
	c := &Client{}
	s := &c.renewals
	now := time.Now()
	s.origin = now
	for range n {
		now = now.Add(third / n)
		h := &hold{client: c, parent: b.Context(), terms: terms{ttl: 3 * third, renewed: true}, lease: grant{Lease: contract.Lease{Key: "key", Expires: contract.Until(now, 3*third)}}}
		s.due.push(&h.entry, s.since(h.firstLook(now)))
	}
	b.ReportAllocs()
	for b.Loop() {
		e := s.due.pop()
		now = now.Add(third / n)
		s.due.push(e, s.since(now.Add(third)))
	}
}
