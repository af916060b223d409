package laboratory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/table"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// The second table: what is no plain lock, each beside recipes for the same.

// permits is the limit of the semaphores.
const permits = 2

// anyNumber is the limit of the readers.
const anyNumber = -1

var togetherRows = slices.Concat(ofSeveral(), []Row{
	pair("semaphore-counter", "INCR for a permit, DECR to give it back", permits, func(_ *redisstore.Store, c *redis.Client) (beside, alone locker.Locker) {
		l := counterSemaphore{client: c, permits: permits}
		return l, l
	}),
	pair("semaphore-clocks", "the sorted set of Redis in Action, 6.3.1: whoever asks removes those that asked longer ago than its own timeout, by its own clock", permits, func(_ *redisstore.Store, c *redis.Client) (beside, alone locker.Locker) {
		l := clockSemaphore{client: c, permits: permits}
		return l, l
	}),
	pair("rwlock-set", "a set of readers with one TTL for all, and SET NX PX for the writer", anyNumber, func(_ *redisstore.Store, c *redis.Client) (beside, alone locker.Locker) {
		return readerSet{client: c}, setWriter{client: c}
	}),
	job(one("cron", setNX), "package single with locker.WithMinHold", locker.WithMinHold(long)),
	job(one("cron-setnx", setNX), "package single alone: SET NX PX, and DEL when the job is done"),
	leads(one("election", func(s *redisstore.Store) locker.Locker { return fenced.New(s) }), "package election over package fenced", elected),
	leads(one("election-setnx", setNX), "a loop over SET NX PX that resigns as soon as it is told to stop", releasedFirst),
})

// ofSeveral are the rows of the table that admit several holders.
func ofSeveral() (all []Row) {
	for _, r := range table.Of(table.Laboratory) {
		about, most := fmt.Sprintf("package %s with %d permits", r.Name, permits), permits
		switch {
		case r.RW:
			about, most = "package "+r.Name+": two hold it as readers, and then a writer asks", anyNumber
		case !r.Limited:
			continue
		}
		l := pair(r.Name, about, most, func(s *redisstore.Store, _ *redis.Client) (beside, alone locker.Locker) {
			setup := table.Setup{Permits: permits}
			alone, setup.Reads = table.Over(r, s, setup), true
			return table.Over(r, s, setup), alone
		})
		l.Promises = r.Promises
		all = append(all, l)
	}
	return all
}

func setNX(s *redisstore.Store) locker.Locker { return single.New(s) }

func pair(name, about string, most int, build func(*redisstore.Store, *redis.Client) (beside, alone locker.Locker)) Row {
	return Row{Name: name, About: about, servers: 1, quorum: 1, most: most, pair: build}
}

func job(r Row, about string, opts ...locker.Option) Row {
	r.About, r.isJob, r.job = about, true, opts
	return r
}

func leads(r Row, about string, run run) Row {
	r.About, r.run = about, run
	return r
}

var togetherScenarios = []Scenario{
	{"crash", "the process of one of two holders is killed with SIGKILL, while the other one goes on; or that of a leader", oneOfTwoCrashes, ifHeld},
	{"shorter", "a caller with a shorter timeout comes", shorter, ifTogether},
	{"clock", "a client whose clock is an hour ahead asks; or a host whose clock is behind comes to a job that is done", clocksApart, ifAsked},
	{"stop", "a leader is told to stop, and its work takes a while to end", toldToStop, ifLed},
}

func ifTogether(r Row) string {
	if r.pair == nil {
		return "it has one holder"
	}
	return ""
}

func ifHeld(r Row) string {
	if r.isJob {
		return "it is as with its strategy"
	}
	return ""
}

func ifAsked(r Row) string {
	if r.run != nil {
		return "it is as with its strategy"
	}
	return ""
}

func ifLed(r Row) string {
	if r.run == nil {
		return "it has no leader"
	}
	return ""
}

// oneOfTwoCrashes kills one of two who hold the lock together. When its lease is over, someone asks
// who could have it then.
func oneOfTwoCrashes(ctx context.Context, s *stage) error {
	if s.row.run != nil {
		return leaderCrashes(ctx, s)
	}
	alice, err := s.start(ctx, "Alice", task{TTL: s.of(ttl), Extend: true})
	if err != nil {
		return err
	}
	said, err := alice.hears(sayHolds)
	if err != nil {
		return err
	}
	hers := s.holdsSince(alice, said)
	s.Holds[hers].With = s.row.most
	bob, err := s.enter("Bob")
	if err != nil {
		return err
	}
	his, err := s.mustJoin(ctx, bob, locker.WithTTL(s.of(ttl)))
	if err != nil {
		return err
	}
	if err := pause(ctx, together); err != nil {
		return err
	}
	dies := time.Now()
	s.Holds[hers].Until, s.Holds[hers].Works = dies, dies
	s.tell("Alice", "is killed with SIGKILL")
	alice.stop()
	if err := pause(ctx, s.of(2*ttl)); err != nil {
		return err
	}
	s.believe(his)
	carol, err := s.enter("Carol")
	if err != nil {
		return err
	}
	left, until := time.Now(), his.Lease().Expires
	if err := his.Context().Err(); err != nil {
		return fmt.Errorf("%w: the lease of Bob has ended", errSlow)
	}
	if s.row.most == anyNumber { // a writer has to wait for living readers
		if err := his.Unlock(ctx); err != nil {
			return err
		}
		s.Holds[his.at].Until, s.Holds[his.at].Works = left, left
		s.tell("Bob", "releases the lock")
	}
	c, err := s.asksAlone(ctx, carol, locker.WithTTL(s.of(ttl)))
	if err != nil {
		return err
	}
	if c != nil {
		if s.row.most == anyNumber && c.from.After(until) {
			return fmt.Errorf("%w: what Bob has renewed may have ended before Carol asked", errSlow)
		}
		s.next = gotIt
		return s.goOn(ctx, his, c)
	}
	if time.Since(left) > s.of(ttl)/4 {
		return fmt.Errorf("%w: it can't tell a lease from none", errSlow)
	}
	endless, err := s.hasNoExpiry(ctx)
	if err != nil {
		return err
	}
	if s.next = keptByTheDead; endless {
		return s.neverFree(ctx)
	}
	return nil
}

// errSlow is why a take is repeated with more time.
var errSlow = errors.New("the machine was too slow")

// shorter lets two hold the lock, one of them for a short time. When that is over, two more ask, for
// a short time too.
func shorter(ctx context.Context, s *stage) error {
	alice, err := s.enter("Alice")
	if err != nil {
		return err
	}
	hers, err := s.mustJoin(ctx, alice, locker.WithTTL(long), locker.WithoutRenewal())
	if err != nil {
		return err
	}
	bob, err := s.enter("Bob")
	if err != nil {
		return err
	}
	his, err := s.mustJoin(ctx, bob, locker.WithTTL(s.of(brief)), locker.WithoutRenewal())
	if err != nil {
		return err
	}
	<-his.Context().Done()
	s.Holds[his.at].Until = time.Now()
	s.Holds[his.at].Works = s.Holds[his.at].Until
	s.tell("Bob", "had it for a shorter time, which is over")
	// Alice has it for longer than the others ask for.
	if err := pause(ctx, time.Until(hers.from.Add(s.of(ttl)+4*moment))); err != nil {
		return err
	}
	s.believe(hers)
	var all []*holder
	for _, name := range []string{"Carol", "Dave"} {
		a, err := s.enter(name)
		if err != nil {
			return err
		}
		h, err := s.asksAlone(ctx, a, locker.WithTTL(s.of(ttl)), locker.WithoutRenewal())
		if err != nil {
			return err
		}
		all = append(all, h)
	}
	if err := s.goOn(ctx, append(all, hers)...); err != nil {
		return err
	}
	if all[0] == nil && s.row.most == permits { // there is one hold only
		return s.neverFree(ctx)
	}
	return nil
}

// clocksApart is clockAhead where the lock is full, or two hosts with a job.
func clocksApart(ctx context.Context, s *stage) error {
	if s.row.isJob {
		return jobOfTwoHosts(ctx, s)
	}
	var in []*holder
	for _, name := range []string{"Alice", "Bob"} {
		a, err := s.enter(name)
		if err != nil {
			return err
		}
		h, err := s.mustJoin(ctx, a, locker.WithTTL(long), locker.WithoutRenewal())
		if err != nil {
			return err
		}
		in = append(in, h)
	}
	carol, err := s.enter("Carol")
	if err != nil {
		return err
	}
	carol.wire.ahead = time.Hour
	s.tell("Carol", "has a clock that is an hour ahead")
	if err := s.goOn(ctx, in...); err != nil {
		return err
	}
	c, err := s.asksAlone(ctx, carol, locker.WithTTL(long), locker.WithoutRenewal())
	if err != nil {
		return err
	}
	return s.goOn(ctx, append(in, c)...)
}

// jobOfTwoHosts lets a host come to a job when another one has done it.
func jobOfTwoHosts(ctx context.Context, s *stage) error {
	for _, name := range []string{"Alice", "Bob"} {
		a, err := s.enter(name)
		if err != nil {
			return err
		}
		if name == "Bob" {
			s.tell(name, "has a clock that is behind, and comes to the same job now")
		}
		h, err := s.asks(ctx, a, s.row.job...)
		if err != nil {
			return err
		}
		if h == nil {
			s.ran = once
			return nil
		}
		if err := pause(ctx, moment); err != nil {
			return err
		}
		if err := h.Unlock(ctx); err != nil {
			return err
		}
		done := time.Now()
		s.Holds[h.at].Until, s.Holds[h.at].Works = done, done
		s.tell(name, "has done the job")
		if err := pause(ctx, together); err != nil {
			return err
		}
	}
	s.ran = twice
	return nil
}

// mustJoin is for those who hold the lock together in the beginning.
func (s *stage) mustJoin(ctx context.Context, a *actor, opts ...locker.Option) (*holder, error) {
	h, err := s.asks(ctx, a, opts...)
	if err == nil && h == nil {
		err = fmt.Errorf("%s was refused", a.name)
	}
	if err == nil {
		s.Holds[h.at].With = s.row.most
	}
	return h, err
}

// asksAlone asks once more for a permit, or for the side that admits one holder.
func (s *stage) asksAlone(ctx context.Context, a *actor, opts ...locker.Option) (*holder, error) {
	if s.row.most == anyNumber {
		s.tell(a.name, "wants to write")
	}
	h, err := s.ask(a, func() (*locker.Lock, error) { return a.alone.TryLock(ctx, s.key, opts...) })
	if h != nil && s.row.most != anyNumber {
		s.Holds[h.at].With = s.row.most
	}
	return h, err
}
