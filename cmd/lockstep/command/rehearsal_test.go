package command

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// problems are the kinds of what doctor has found.
func (d *doctor) problems() (all []string) {
	for _, f := range d.result.Findings {
		all = append(all, f.Problem)
	}
	return all
}

// steps are the names of the steps of the rehearsal.
func (d *doctor) steps() (all []string) {
	for _, s := range d.result.Rehearsal {
		all = append(all, s.Step)
	}
	return all
}

// Also one that admits several holders at once.
func TestAHealthyStoreIsFitUnderEachStrategy(t *testing.T) {
	for _, strategy := range append(usable(), "") {
		if slices.Contains([]string{"redlock", "redlock-fenced"}, strategy) { // it needs several stores
			continue
		}
		t.Run(strategy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &doctor{cli: &cli{strategy: strategy, maxTTL: defaultMaxTTL, timeout: defaultTimeout}, ttl: locker.DefaultTTL, rounds: 10}
				if strategy == "semaphore" {
					d.permits = 2
				}
				err := d.rehearse(t.Context(), []*Store{{Backend: memory.New()}})
				if err != nil || len(d.steps()) != 6 || len(d.problems()) > 0 {
					t.Errorf("%v, %v after the steps %v: %+v", err, d.problems(), d.steps(), d.result.Findings)
				}
			})
		})
	}
}

// slow is a Locker whose store is far away.
type slow struct {
	locker.Locker
	trip time.Duration
}

func (s slow) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	time.Sleep(s.trip)
	return s.Locker.Acquire(ctx, req)
}

// The longest TTL of the store may be shorter than that of the rehearsal. If it is too short for the round
// trips, that is a warning.
func TestARehearsalKeepsToTheLongestTTL(t *testing.T) {
	for _, row := range []struct {
		trip     time.Duration
		steps    int
		problems []string
	}{
		{time.Millisecond, 6, nil},
		{30 * time.Millisecond, 5, []string{"ttl"}}, // a lease that lasts ten of them is too long for the store
	} {
		t.Run(row.trip.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 100 * time.Millisecond
				d := &doctor{cli: &cli{maxTTL: limit, timeout: defaultTimeout}, ttl: limit, rounds: 10, key: "k"}
				r := &rehearsal{doctor: d, locker: slow{single.New(memory.New(memory.WithMaxTTL(limit))), row.trip}}
				r.run(t.Context())
				if r.err != nil || len(d.steps()) != row.steps || !slices.Equal(d.problems(), row.problems) {
					t.Errorf("%v, %v after the steps %v", r.err, d.problems(), d.steps())
				}
			})
		})
	}
}
