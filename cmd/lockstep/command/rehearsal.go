package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// rehearse goes through the life of a lock.
func (d *doctor) rehearse(ctx context.Context, stores []*Store) error {
	if len(stores) > 1 && d.strategy == "" {
		d.strategy = "redlock" // redlock-fenced leaves a counter for ever
	}
	switch d.strategy { // a second holder at once must be one too many
	case "semaphore":
		d.permits = min(d.permits, 1)
	case "rw-readers":
		d.strategy = "rw-writers"
	}
	l, _, err := d.locker(ctx, stores)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	if d.key == "" {
		d.key = "lockstep-doctor/" + host
	}
	r := &rehearsal{doctor: d, locker: l}
	r.run(ctx)
	if r.err != nil {
		d.find("", true, "rehearsal", "a step of the rehearsal went wrong: "+r.err.Error(), "locks do not work as they should with these flags and permissions",
			remedies(stores, r.err))
	}
	return nil
}

// remedies is what to do against an error of the stores, once for nodes that need the same.
func remedies(stores []*Store, err error) string {
	var all []string
	add := func(s *Store, err error) {
		if problem, remedy := s.advise(err); problem != problemUnreachable && !slices.Contains(all, remedy) {
			all = append(all, remedy)
		}
	}
	var votes *redlock.QuorumError
	if errors.As(err, &votes) && len(votes.Votes) == len(stores) {
		for i, v := range votes.Votes {
			if v.Outcome == redlock.Failed {
				add(stores[i], v.Err)
			}
		}
	}
	if len(stores) == 1 {
		add(stores[0], err)
	}
	if len(all) == 0 { // a lock was granted twice, or an answer came too late
		return "look at the error of the step; docs/security.md of Lockstep lists the permissions"
	}
	return strings.Join(all, "; ")
}

// rehearsal is the life of a lock, step by step.
type rehearsal struct {
	*doctor
	locker locker.Locker
	err    error // of the step that failed
	trips  []time.Duration
}

// rehearsalTTL is the TTL of the leases of the rehearsal.
func (d *doctor) rehearsalTTL() time.Duration {
	return min(5*time.Second, d.longestTTL()/2).Truncate(time.Millisecond)
}

// longestTTL is the longest TTL that the stores accept.
func (d *doctor) longestTTL() time.Duration { return max(d.maxTTL, d.ttl) }

// step does one step under a limit. After a failure, it does no more.
func (r *rehearsal) step(ctx context.Context, name string, do func(ctx context.Context) error) {
	if r.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	s := step{Step: name, OK: err == nil, US: time.Since(began).Microseconds()}
	if err != nil {
		s.Error, r.err = r.reworded(err.Error()), err
	}
	r.result.Rehearsal = append(r.result.Rehearsal, s)
}

func (r *rehearsal) request(ttl time.Duration) contract.Request {
	return contract.Request{Key: r.key, Token: contract.NewToken(), TTL: ttl}
}

// timed measures a call.
func (r *rehearsal) timed(call func() error) error {
	began := time.Now()
	err := call()
	r.trips = append(r.trips, time.Since(began))
	return err
}

func (r *rehearsal) run(ctx context.Context) {
	var lease contract.Lease
	r.step(ctx, "grant", func(ctx context.Context) (err error) {
		if lease, err = r.locker.Acquire(ctx, r.request(r.rehearsalTTL())); errors.Is(err, locker.ErrHeld) {
			r.key += "/" + fmt.Sprint(os.Getpid()) // another doctor is at work
			lease, err = r.locker.Acquire(ctx, r.request(r.rehearsalTTL()))
		}
		return err
	})
	r.step(ctx, "refusal", func(ctx context.Context) error {
		second, err := r.locker.Acquire(ctx, r.request(r.rehearsalTTL()))
		if err == nil {
			_ = r.locker.Release(ctx, second)
			return errors.New("a lock that is held was granted again")
		}
		if errors.Is(err, locker.ErrHeld) {
			return nil
		}
		return err
	})
	r.step(ctx, "extension", func(ctx context.Context) (err error) {
		lease, err = r.locker.Extend(ctx, lease, 2*r.rehearsalTTL())
		return err
	})
	r.step(ctx, "release and wake-up", func(ctx context.Context) error { return r.wake(ctx, lease) })
	r.step(ctx, "round trips", func(context.Context) error { return r.measure(ctx) })
	if least := r.leastTTL(); least <= r.longestTTL() { // a shorter lease may end before its answer comes
		ttl := min(max(200*time.Millisecond, least), r.longestTTL())
		r.step(ctx, "end of a lease", func(context.Context) error { return r.expire(ctx, ttl) })
	}
	r.judge()
}

// wake releases the lease while somebody watches.
func (r *rehearsal) wake(ctx context.Context, lease contract.Lease) error {
	woken := make(chan struct{}, 1)
	err := r.locker.Watch(ctx, r.key, "", func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err := r.locker.Release(ctx, lease); err != nil {
		return err
	}
	if err != nil {
		r.find("", false, "wake-ups", "this store wakes nobody", "waiters poll", "-allow wake-ups; another store if many wait for one lock")
		return nil
	}
	limit := time.NewTimer(2 * time.Second)
	defer limit.Stop()
	select {
	case <-woken:
	case <-limit.C:
		r.find("", false, "wake-ups", "a release woke nobody within 2s", "waiters poll, so a lock stays free for a moment before the next has it",
			"look at the permissions for channels, and whether a proxy or pooler stands in between")
	}
	return nil
}

// measure takes, extends and releases the lock again and again.
func (r *rehearsal) measure(ctx context.Context) error {
	for len(r.trips) < r.rounds {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		var lease contract.Lease
		err := r.timed(func() (err error) {
			lease, err = r.locker.Acquire(ctx, r.request(r.rehearsalTTL()))
			return err
		})
		if err == nil {
			err = r.timed(func() (err error) {
				lease, err = r.locker.Extend(ctx, lease, 2*r.rehearsalTTL())
				return err
			})
		}
		if err == nil {
			err = r.timed(func() error { return r.locker.Release(ctx, lease) })
		}
		cancel()
		if err != nil {
			return err
		}
	}
	slices.Sort(r.trips)
	p99 := r.trips[len(r.trips)*99/100]
	r.result.P50US, r.result.P99US = r.trips[len(r.trips)/2].Microseconds(), p99.Microseconds()
	r.result.LeastTTLMS = leastTTL(p99).Milliseconds()
	return nil
}

// leastTTL is the shortest TTL whose lease, without its margin, has room for ten slow round trips.
func leastTTL(p99 time.Duration) time.Duration {
	need := 10 * p99
	start := time.Now()
	ttl := max(need, contract.MinTTL).Truncate(time.Millisecond)
	for contract.Until(start, ttl).Sub(start) < need || ttl < contract.MinTTL {
		ttl += time.Millisecond
	}
	return ttl
}

// expire takes the lock, and waits for the end of the lease.
func (r *rehearsal) expire(ctx context.Context, ttl time.Duration) error {
	lease, err := r.locker.Acquire(ctx, r.request(ttl))
	if err != nil {
		return err
	}
	for limit := time.Now().Add(2*ttl + 10*time.Second); ; { // some stores keep whole seconds
		next, err := r.locker.Acquire(ctx, r.request(ttl))
		switch {
		case err == nil:
			_ = r.locker.Release(ctx, next)
			if !lease.Ended() {
				return fmt.Errorf("the lock was granted again %v before its lease ended", time.Until(lease.Expires))
			}
			return nil
		case !errors.Is(err, locker.ErrHeld):
			return err
		case time.Now().After(limit):
			return fmt.Errorf("the lock is not free %v after its lease ended", time.Since(lease.Expires).Round(time.Millisecond))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// leastTTL is what measure has found; 0 before.
func (r *rehearsal) leastTTL() time.Duration {
	return time.Duration(r.result.LeastTTLMS) * time.Millisecond
}

func (r *rehearsal) judge() {
	if least := r.leastTTL(); least > r.ttl {
		r.find("", false, "ttl", fmt.Sprintf("a TTL of %v is short for round trips of %v (99th percentile)", r.ttl, time.Duration(r.result.P99US)*time.Microsecond),
			"locks are lost when the network is a little slower", fmt.Sprintf("use a TTL of %v or more", least))
	}
}
