package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/redis/go-redis/v9"
)

// elections is case (k). In the first table the leader is a process that is killed, or it resigns,
// and three candidates wait; the lease is 1 s. In the second table a leader leads and ten
// candidates wait, and nothing happens; the lease is 10 s.
func elections(b *bench) (*report, error) {
	takeover := newTable("Takeover, TTL 1 s, 3 candidates wait", "", []metric{
		{"killed: after the end of the lease, p50, ms", 1, false}, {"longest", 1, false},
		{"resigned: p50, ms", 2, false}, {"longest", 1, false},
	}, candidates...)
	err := b.everybody(takeover, b.half(), 2*b.patience(), func(t *turn) ([]float64, error) {
		killed, err := t.afterDeath(b.size(5, 1))
		if err != nil {
			return nil, err
		}
		resigned, err := t.afterResigning(b.size(10, 2))
		if err != nil {
			return nil, err
		}
		return []float64{
			lab.Quantile(killed, 50), lab.Quantile(killed, 100), lab.Quantile(resigned, 50), lab.Quantile(resigned, 100),
		}, nil
	})
	if err != nil {
		return nil, err
	}
	idle := newTable("A leader and 10 candidates, TTL 10 s, nothing happens", "", []metric{
		{"leader: commands sent/s", 2, false}, {"each candidate: commands sent/s", 2, false}, {"server: of a core, %", 2, false},
	}, candidates...)
	err = b.everybody(idle, b.third(), b.time(60*time.Second, 20*time.Second), func(t *turn) ([]float64, error) { return t.idle(10) })
	if err != nil {
		return nil, err
	}
	r := &report{tables: []*table{takeover, idle}, charts: []chart{{"election-resigned", takeover, 2}}}
	for _, c := range []struct{ name, says string }{judged[0], judged[2]} {
		r.musts = append(r.musts,
			atMost("killed, p50 after the end of the lease"+c.says, takeover.median(c.name, 0), 50, 10, "ms"),
			atMost("resigned, p50"+c.says, takeover.median(c.name, 2), 5, 1, "ms"),
			atMost("idle candidate, commands/s"+c.says, idle.median(c.name, 1), 0.5, 0.2, ""),
			atMost("idle leader, commands/s"+c.says, idle.median(c.name, 0), 0.5, 0.4, ""),
		)
	}
	return r, nil
}

var candidates = []contender{
	{plain, ours, "election.New(locker.New(fenced.New(goredis.New(redis.NewClient(Addr), WithMaxTTL)), WithTTL), key)", openElection},
	{plain + aa, reference, "the same code", openElection},
	{overRueidis, ours, "the same over rueidisstore.New", openElectionRueidis},
	{"SET NX loop", reference,
		"written for this table: each candidate sends SET NX PX every fifth of the TTL, the leader a script that compares and renews; " +
			"a leader that resigns deletes the key", openElectionLoop},
}

// elect campaigns until ctx ends, and calls lead at each term.
type elect func(ctx context.Context, key string, lead func(context.Context) error) error

func openElection(p place) (*locks, error) {
	c := p.goredis(0)
	client := locker.New(fenced.New(goredis.New(c, upToAnHour)), locker.WithTTL(p.ttl))
	return &locks{elect: electing(client), close: func() { _ = c.Close() }}, nil
}

func openElectionRueidis(p place) (*locks, error) {
	clients, end, err := p.rueidisEach()
	if err != nil {
		return nil, err
	}
	client := locker.New(fenced.New(rueidisstore.New(clients[0], upToAnHour)), locker.WithTTL(p.ttl))
	return &locks{elect: electing(client), close: end}, nil
}

func electing(client *locker.Client) elect {
	return func(ctx context.Context, key string, lead func(context.Context) error) error {
		return election.New(client, key).Run(ctx, func(ctx context.Context, _ election.Term) error { return lead(ctx) })
	}
}

// openElectionLoop is what many programs do. It trusts its lease for as long as renewals succeed.
func openElectionLoop(p place) (*locks, error) {
	c := p.goredis(0)
	renew := redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)
	release := redis.NewScript(releaseLua)
	serve := func(ctx context.Context, key, id string, lead func(context.Context) error) error {
		leads, cancel := context.WithCancel(ctx)
		defer cancel()
		var renewing sync.WaitGroup
		renewing.Go(func() {
			for wait(leads, p.ttl/5) {
				if ok, err := renew.Run(ctx, c, []string{key}, id, p.ttl.Milliseconds()).Bool(); err != nil || !ok {
					cancel()
				}
			}
		})
		err := lead(leads)
		cancel()
		renewing.Wait()
		return errors.Join(err, release.Run(context.WithoutCancel(ctx), c, []string{key}, id).Err())
	}
	return &locks{
		elect: func(ctx context.Context, key string, lead func(context.Context) error) error {
			id := contract.NewToken()
			for ok := true; ok; ok = wait(ctx, p.ttl/5) {
				set, err := c.SetNX(ctx, key, id, p.ttl).Result()
				if err == nil && set {
					err = serve(ctx, key, id, lead)
				}
				if err != nil {
					return err
				}
			}
			return ctx.Err()
		},
		close: func() { _ = c.Close() },
	}, nil
}

// wait reports whether ctx lives on.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

const waitingToLead = 3

// term is what a candidate tells of a term.
type term struct {
	candidate int
	began     time.Time
	resign    chan struct{} // closed to end it
}

// campaigns lets n candidates campaign, each with a client of its own, until stop is called. Each
// term is sent to led.
func (t *turn) campaigns(n int, key string, p place, led chan<- term) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	t.after(cancel)
	var running sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for i := range n {
		l, err := t.open(p)
		if err != nil {
			cancel()
			return nil, err
		}
		t.working.Add(1)
		running.Go(func() {
			defer t.working.Done()
			err := l.elect(ctx, key, func(leads context.Context) error {
				now := term{i, time.Now(), make(chan struct{})}
				select {
				case led <- now:
				case <-leads.Done():
					return nil
				}
				select {
				case <-now.resign:
				case <-leads.Done():
				}
				return nil
			})
			if ctx.Err() == nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	return func() error {
		cancel()
		running.Wait()
		mu.Lock()
		defer mu.Unlock()
		return failed
	}, nil
}

func (t *turn) leaseOfTakeover() time.Duration { return t.time(time.Second, 300*time.Millisecond) }

// afterDeath kills a process that leads.
func (t *turn) afterDeath(n int) (times []time.Duration, err error) {
	lease := t.leaseOfTakeover()
	for i := range n {
		key := fmt.Sprintf("%s:killed:%d", t.key, i)
		c, err := t.child(job{Kind: "lead", Contender: t.name, Addr: t.addrs(1)[0], Key: key, TTL: lease})
		if err != nil {
			return nil, err
		}
		if err := c.hear("leading", &struct{}{}); err != nil {
			return nil, err
		}
		led := make(chan term)
		stop, err := t.campaigns(waitingToLead, key, place{addrs: t.addrs(1), ttl: lease, waiters: waitingToLead}, led)
		if err != nil {
			return nil, err
		}
		time.Sleep(lease / 2) // until they have asked
		c.Kill()
		asked := time.Now()
		left, err := t.admins[0].PTTL(context.Background(), key).Result()
		if err != nil {
			return nil, err
		}
		next := <-led
		times = append(times, next.began.Sub(asked.Add(left)))
		if err := stop(); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// lead leads until it is killed.
func lead(j job, _ *bufio.Reader) error {
	l, err := openOf(candidates, j.Contender, place{addrs: []string{j.Addr}, ttl: j.TTL})
	if err != nil {
		return err
	}
	return l.elect(context.Background(), j.Key, func(ctx context.Context) error {
		say("leading", struct{}{})
		<-ctx.Done()
		return errors.New("the leadership was lost")
	})
}

// afterResigning lets the leader resign, again and again.
func (t *turn) afterResigning(n int) (times []time.Duration, err error) {
	key, lease := t.key+":resigned", t.leaseOfTakeover()
	led := make(chan term)
	stop, err := t.campaigns(waitingToLead+1, key, place{addrs: t.addrs(1), ttl: lease, waiters: waitingToLead}, led)
	if err != nil {
		return nil, err
	}
	leader := <-led
	for range n {
		hold(lease + holdFor) // after shorter terms, an Election pauses before it campaigns again
		resigned := time.Now()
		close(leader.resign)
		leader = <-led
		times = append(times, leader.began.Sub(resigned))
	}
	return times, stop()
}

// idle counts what a leader and n candidates send while nothing happens.
func (t *turn) idle(n int) ([]float64, error) {
	var byLeader atomic.Int64
	led := make(chan term, 1)
	p := place{addrs: t.addrs(1), ttl: ttl, waiters: n, sent: &byLeader}
	stopLeader, err := t.campaigns(1, t.key, p, led)
	if err != nil {
		return nil, err
	}
	<-led
	p.sent = &t.sent
	stop, err := t.campaigns(n, t.key, p, led)
	if err != nil {
		return nil, err
	}
	time.Sleep(t.time(8*time.Second, 50*time.Millisecond)) // a candidate asks more often at first
	before, err := t.counters()
	if err != nil {
		return nil, err
	}
	leader := byLeader.Load()
	time.Sleep(t.time(20*time.Second, 100*time.Millisecond)) // six renewals
	leader = byLeader.Load() - leader
	after, err := t.counters()
	if err != nil {
		return nil, err
	}
	select {
	case <-led:
		return nil, errTwo
	default:
	}
	used, took := after.since(before), after.at.Sub(before.at).Seconds()
	figures := []float64{
		float64(leader) / took, float64(used.sent) / took / float64(n), 100 * used.cpu.Seconds() / took,
	}
	return figures, errors.Join(stop(), stopLeader())
}
