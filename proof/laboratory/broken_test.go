package laboratory

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/table"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// broken are strategies with a fault each, which the program must find.
var broken = []Row{
	one("broken-grants-to-all", func(s *redisstore.Store) locker.Locker { return grantsToAll{single.New(s)} }),
	one("broken-without-expiry", func(s *redisstore.Store) locker.Locker { return setsForEver{single.New(s), s, false} }),
	one("broken-without-repair", func(s *redisstore.Store) locker.Locker { return setsForEver{single.New(s), s, true} }),
	one("broken-believes-too-long", func(s *redisstore.Store) locker.Locker { return believesTooLong{single.New(s)} }),
	one("broken-numbers-repeat", func(s *redisstore.Store) locker.Locker { return numbersRepeat{fenced.New(s)} }),
	one("broken-numbers-fall", func(s *redisstore.Store) locker.Locker { return numbersFall{fenced.New(s)} }),
	named("broken-looks-first", onOne(table.Named("legacy-getbit"))),
	pair("broken-grants-beside", "", anyNumber, func(s *redisstore.Store, _ *redis.Client) (beside, alone locker.Locker) {
		rw := rwlock.New(s)
		return rw.Readers(), grantsToAll{rw.Writers()}
	}),
	named("broken-quorum", quorum(table.Named("redlock"), 5, 3)),
}

func named(name string, r Row) Row {
	r.Name = name
	return r
}

type grantsToAll struct{ locker.Locker }

func (g grantsToAll) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	_, _ = g.Locker.Acquire(ctx, req)
	now := time.Now()
	return contract.Lease{Key: req.Key, Token: req.Token, Granted: now, Expires: contract.Until(now, req.TTL)}, nil
}

// setsForEver is the recipe of SETNX, with EXPIRE or without, and nobody repairs what a dead process leaves.
type setsForEver struct {
	locker.Locker
	store   *redisstore.Store
	expires bool
}

func (s setsForEver) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	now := time.Now()
	set, err := s.store.SetNXForever(ctx, req.Key, req.Token)
	if err == nil && !set {
		err = &locker.HeldError{Key: req.Key}
	}
	if err == nil && s.expires {
		_, err = s.store.Expire(ctx, req.Key, req.TTL)
	}
	return contract.Lease{Key: req.Key, Token: req.Token, Granted: now, Expires: contract.Until(now, req.TTL)}, err
}

type believesTooLong struct{ locker.Locker }

func (b believesTooLong) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := b.Locker.Acquire(ctx, req)
	lease.Expires = lease.Expires.Add(time.Hour)
	return lease, err
}

type numbersRepeat struct{ locker.Locker }

func (n numbersRepeat) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := n.Locker.Acquire(ctx, req)
	lease.Fence = 1
	return lease, err
}

type numbersFall struct{ locker.Locker }

func (n numbersFall) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := n.Locker.Acquire(ctx, req)
	lease.Fence = 1<<60 - lease.Fence
	return lease, err
}

// starved are rows on a machine that gives a call no CPU for a while, too long for the first take.
var starved = []Row{
	pair("starved-rwlock-set", "", anyNumber, func(_ *redisstore.Store, c *redis.Client) (beside, alone locker.Locker) {
		return readerSet{client: c}, late{setWriter{client: c}, ttl * 19 / 20, 0}
	}),
	leads(one("starved-election", func(s *redisstore.Store) locker.Locker { return late{fenced.New(s), 0, ttl * 3 / 4} }), "", elected),
}

type late struct {
	locker.Locker
	acquire, extend time.Duration
}

func (l late) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	time.Sleep(l.acquire)
	return l.Locker.Acquire(ctx, req)
}

func (l late) Extend(ctx context.Context, lease contract.Lease, d time.Duration) (contract.Lease, error) {
	time.Sleep(l.extend)
	return l.Locker.Extend(ctx, lease, d)
}

// TestASlowMachineChangesNoCell: a lease that ends since the machine was too slow shows nothing, so
// the scenario is played again with more time.
func TestASlowMachineChangesNoCell(t *testing.T) {
	for _, c := range []struct{ like, column string }{{"rwlock-set", "crash"}, {"election", "stop"}} {
		t.Run(c.like+" "+c.column, func(t *testing.T) {
			t.Parallel()
			r := starved[slices.IndexFunc(starved, func(r Row) bool { return r.Name == "starved-"+c.like })]
			sc, _ := scenarioNamed(togetherScenarios, c.column)
			cell := playAlone(t, r, sc)
			if want := Expected[c.like][c.column]; cell.Outcome != want {
				t.Errorf("%s (%s); want %s", cell.Outcome, cell.Detail, want)
			}
		})
	}
}

// playAlone plays a scenario on embedded servers of its own.
func playAlone(t *testing.T, r Row, sc Scenario) Cell {
	t.Helper()
	p, err := openPark(Options{Servers: "embedded"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}()
	servers, err := p.take(r.servers)
	if err != nil {
		t.Fatal(err)
	}
	return play(t.Context(), p, r, servers, sc)
}

// TestABrokenStrategyIsReported: each is expected to do as the strategy that it breaks.
func TestABrokenStrategyIsReported(t *testing.T) {
	for _, c := range []struct{ row, like, column, says string }{
		{"broken-grants-to-all", "single", "clock", "two hold (Bob had a lease for "},
		{"broken-grants-to-all", "redlock-5/4", "restart", "two hold (Bob had a lease for "},
		{"broken-without-expiry", "single", "crash", "for ever (the value under the key has no expiry"},
		{"broken-without-repair", "legacy-expire", "killed", "for ever (the value under the key has no expiry"},
		{"broken-believes-too-long", "single", "pause", "not told (the lease had ended"},
		{"broken-numbers-repeat", "fenced", "pause", "two work (Bob worked for "},
		{"broken-numbers-repeat", "fenced", "restart", "two hold (Bob had a lease for "},
		{"broken-numbers-fall", "fenced", "restart", "two hold (Bob had a lease for "},
		{"broken-looks-first", "single", "loser", "two hold ("},
		{"broken-quorum", "redlock-5/4", "restart", "two hold (Bob had a lease for "},
		{"semaphore-counter", "semaphore", "crash", "for ever (the value under the key has no expiry"},
		{"semaphore-clocks", "semaphore", "shorter", "too many (Dave had a lease for "},
		{"semaphore-clocks", "semaphore", "clock", "too many (Carol had a lease for "},
		{"rwlock-set", "rwlock", "crash", "late (the lease of the dead owner had ended"},
		{"rwlock-set", "rwlock", "shorter", "two hold (Carol had a lease for "},
		{"broken-grants-beside", "rwlock", "clock", "two hold (Carol had a lease for "},
		{"cron-setnx", "cron", "clock", "ran twice (the second host found the lock free again"},
		{"election-setnx", "election", "stop", "two work (Bob worked for "},
	} {
		t.Run(c.row+" "+c.column, func(t *testing.T) {
			t.Parallel()
			r, found := rowNamed(c.row)
			if !found {
				r = broken[slices.IndexFunc(broken, func(r Row) bool { return r.Name == c.row })]
			}
			all := scenarios
			if r.pair != nil || r.isJob || r.run != nil {
				all = togetherScenarios
			}
			sc, _ := scenarioNamed(all, c.column)
			// On a busy machine the processes may miss the moment in which the strategy is wrong, or come
			// too late for it.
			want, err := c.row+", "+c.column+": "+c.says, error(nil)
			for range 3 {
				cell := playAlone(t, r, sc)
				report := Report{Tables: []Table{{Results: []Result{{Row: r, Cells: []Cell{cell}}}}}}
				if err = report.fault(Matrix{c.row: Expected[c.like]}); err != nil && cell.Outcome != NotProduced {
					break
				}
				t.Logf("played again: %s (%s)", cell.Outcome, cell.Detail)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		})
	}
}
