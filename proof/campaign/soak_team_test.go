package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

const (
	members   = 3 // of a team, for each of its Clients; there is one for each client library
	idle      = 2 // connections of a pool
	contended = 3 // of the counters: those that goroutines add to
)

// A team adds to the same counters under locks of one strategy.
type team struct {
	strategy  string
	over      group
	build     func([]*redisstore.Store) (locker.Locker, error)
	guarded   bool   // the counters refuse numbers that fall
	nested    bool   // a holder takes the lock once more
	processes string // the strategy of its processes (see job.locker); empty: it has none
	tally     *tally

	bank        *bank
	connections []connection
	clients     []*locker.Client

	granted, extensions atomic.Int64

	mu       sync.Mutex
	began    time.Time
	holds    []history.Hold // of this period
	grants   []history.Grant
	greatest map[string]history.Grant // of earlier periods, by key
	broken   int
}

// keys are the names of the counters and their locks. Teams on one server have different ones. The
// processes use other names.
func (c *team) keys() (all []string) {
	for i := range counters {
		all = append(all, c.key(i))
	}
	return all
}

func (c *team) key(i int) string {
	if c.processes != "" {
		return fmt.Sprint("counter ", i)
	}
	return fmt.Sprint(c.strategy, " ", i)
}

// connect makes pools that keep few connections, so that a measurement at rest does not depend on
// the greatest number of connections before. There is no quarantine: few enough servers forget, or
// none.
func (c *team) connect(t *testing.T) {
	c.began, c.greatest = time.Now(), map[string]history.Grant{}
	for _, dial := range []func(addr string) connection{
		func(addr string) connection {
			o := &client.Options{Addr: addr, MaxIdleConns: idle, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10}
			store, c := goredis.Open(o, redisstore.WithoutQuarantine())
			return closing(t, store, c.Close)
		},
		func(addr string) connection {
			store, pool := redigo.Open(addr, nil, redisstore.WithoutQuarantine())
			pool.MaxIdle = idle
			return closing(t, store, pool.Close)
		},
	} {
		var stores []*redisstore.Store
		for _, site := range c.over {
			cn := dial(site.proxy.Addr())
			c.connections, stores = append(c.connections, cn), append(stores, cn.store)
		}
		l, err := c.build(stores)
		if err != nil {
			t.Fatal(err)
		}
		c.clients = append(c.clients, locker.New(counted{l, &c.extensions}, locker.WithTTL(leaseTTL)))
	}
}

// counted counts the extensions that succeed.
type counted struct {
	locker.Locker
	extensions *atomic.Int64
}

func (c counted) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	lease, err := c.Locker.Extend(ctx, lease, ttl)
	if err == nil {
		c.extensions.Add(1)
	}
	return lease, err
}

// A member is one goroutine of a team.
type member struct {
	*team
	t     *testing.T
	who   string
	locks *locker.Client
	dice  *rand.Rand
	until context.Context // the end of the period
}

func (m *member) work() {
	for m.until.Err() == nil {
		m.turn(m.key(m.dice.IntN(contended)))
		rivals.Rest(m.until, upTo(m.dice, 200*time.Millisecond))
	}
}

// turn asks for a lock, with or without patience, and adds to its counter.
func (m *member) turn(key string) {
	ctx, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	if m.nested {
		ctx = locker.ContextWithOwner(ctx, m.who)
	}
	var l *locker.Lock
	var err error
	asked := time.Now()
	switch way := m.dice.IntN(10); {
	case way < 2:
		l, err = m.locks.TryLock(ctx, key)
	case way < 4:
		timer := time.AfterFunc(upTo(m.dice, leaseTTL), giveUp)
		l, err = m.locks.Lock(ctx, key)
		timer.Stop() // otherwise it would end the hold
	default:
		l, err = m.locks.Lock(ctx, key, locker.WithWait(2*time.Second))
	}
	switch {
	case err == nil:
		m.hold(ctx, l, asked)
	case errors.Is(err, locker.ErrHeld):
		m.tally.add("refused")
	case errors.Is(err, locker.ErrLost):
		m.violated(m.t, "%s: lost, before it was granted: %v", m.who, err)
	case ctx.Err() != nil:
		m.tally.add("gave up")
	default:
		m.tally.add("failed")
	}
}

// hold adds to the counter, at once or after so long that the lease must be renewed. A lock was
// held until an instant if its context has not ended after that.
func (m *member) hold(ctx context.Context, l *locker.Lock, asked time.Time) {
	granted := time.Now()
	sure := granted
	held := func() bool {
		now := time.Now()
		if l.Context().Err() != nil {
			return false
		}
		sure = now
		return true
	}
	m.granted.Add(1)
	at := m.bank.read(message{Counter: l.Key(), Fence: l.Fence()})
	lasting := upTo(m.dice, 20*time.Millisecond)
	switch way := m.dice.IntN(10); {
	case way < 1:
		lasting = upTo(m.dice, 3*leaseTTL)
	case way < 3:
		lasting = upTo(m.dice, leaseTTL)
	}
	for end := granted.Add(lasting); held() && time.Now().Before(end) && m.until.Err() == nil; {
		rivals.Rest(m.until, min(time.Until(end), leaseTTL/4))
	}
	switch way := m.dice.IntN(10); {
	case way < 2 && m.nested:
		m.enterAgain(ctx, l, held)
	case way < 1:
		_ = l.Extend(ctx, 2*leaseTTL) // the lock may be lost, or the answer
	}
	m.deposit(m.t, at, l)
	held()
	m.note(l, m.who, asked, granted, sure)
	if errors.Is(context.Cause(l.Context()), locker.ErrLost) {
		m.tally.add("lost, and told")
	}
	if err := l.Unlock(context.Background()); err == nil {
		m.tally.add("released")
	}
}

// enterAgain takes the lock once more, which must not be held for its owner.
func (m *member) enterAgain(ctx context.Context, l *locker.Lock, held func() bool) {
	inner, err := m.locks.TryLock(ctx, l.Key())
	switch {
	case err == nil:
		m.tally.add("entered again")
		_ = inner.Unlock(context.Background()) // if it fails, the hold ends with its lease
	case errors.Is(err, locker.ErrHeld) && held():
		m.violated(m.t, "%s has %q, and is refused: %v", m.who, l.Key(), err)
	}
}

// deposit writes atomically. Without a guard it writes only while the lock is held. If the lock has
// ended after the write, deposit undoes the write before anybody has seen it: this process may
// pause between any two steps.
func (c *team) deposit(t *testing.T, m message, l *locker.Lock) {
	b := c.bank
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.values[m.Counter]
	if c.guarded && b.guard(m.Counter).Write(m.Fence, m.Value) != nil {
		b.gone++
		if l.Context().Err() == nil {
			c.violated(t, "%q: %d is late, and its lock was held", m.Counter, m.Fence)
		}
		return
	}
	b.values[m.Counter] = m.Value + 1
	if !c.guarded && l.Context().Err() != nil {
		b.values[m.Counter] = before
		return
	}
	b.updates++
	if before != m.Value {
		b.missed++
	}
}

func (c *team) note(l *locker.Lock, who string, asked, granted, sure time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := func(t time.Time) int64 { return int64(t.Sub(c.began)) }
	if sure.After(granted) {
		c.holds = append(c.holds, history.Hold{Key: l.Key(), Who: who, Start: at(granted), End: at(sure)})
	}
	if l.Fence() != 0 {
		c.grants = append(c.grants, history.Grant{Key: l.Key(), Who: who, Asked: at(asked), Answered: at(granted), Fence: l.Fence()})
	}
}

// violated is called with or without c.bank.mu.
func (c *team) violated(t *testing.T, format string, args ...any) {
	t.Errorf(c.strategy+": "+format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken++
}

// check checks the records of this period, and keeps only the greatest number of each key.
func (c *team) check(t *testing.T) {
	for _, o := range history.Overlaps(c.holds) {
		c.violated(t, "%v", o)
	}
	for key, g := range c.greatest {
		g.Who += ", in a period before"
		c.grants = append(c.grants, g)
		delete(c.greatest, key)
	}
	for _, i := range history.Inversions(c.grants) {
		c.violated(t, "%v", i)
	}
	for _, g := range c.grants {
		if g.Fence > c.greatest[g.Key].Fence {
			c.greatest[g.Key] = g
		}
	}
	if lost := c.bank.lost(); lost > 0 {
		t.Errorf("%s: %d updates were lost", c.strategy, lost)
	}
	c.holds, c.grants = nil, nil
}

func (c *team) report(t *testing.T, lasting time.Duration) {
	t.Logf("%s: %d locks of goroutines, %d extensions, %d updates of all, %d refused as late, %d lost", c.strategy, c.granted.Load(),
		c.extensions.Load(), c.bank.made(), c.bank.late(), c.bank.lost())
	if c.bank.made() == 0 {
		t.Errorf("%s: nobody has done anything", c.strategy)
		return
	}
	matrix.Cell{
		Strategy: c.strategy, Fault: "soak of mixed faults", Where: "redis-server", Trials: c.bank.made(), Violations: c.bank.lost() + c.broken,
		Command: matrix.Command("./proof/campaign", t.Name(), fmt.Sprintf("-v -soak %v -timeout %v", lasting, 2*lasting+10*time.Minute)),
	}.Report(t)
}

// An office has one process at work, and a new one when that is killed. A process looks at its
// context and writes a moment later. So only teams with a guard, which refuses late writes, have
// processes.
type office struct {
	team   *team
	worker *worker
}

func (c *team) open(t *testing.T) *office {
	o := &office{team: c}
	o.hire(t)
	return o
}

func (o *office) hire(t *testing.T) {
	var proxies []string
	for _, site := range o.team.over {
		proxies = append(proxies, site.proxy.Addr())
	}
	o.worker = hire(t, proxies, o.team.bank, job{Over: o.team.processes, Pause: leaseTTL / 4})
}

func upTo(dice *rand.Rand, longest time.Duration) time.Duration {
	return time.Duration(dice.Int64N(int64(longest))) + 1
}
