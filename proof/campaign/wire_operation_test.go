package campaign

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

const (
	ttl    = 20 * time.Minute // no lease ends within patience
	longer = 40 * time.Minute // for extensions
	// longer than the pauses of a cleanup, and than go-redis waits for a reply
	still = 6 * time.Second
)

// An operation is done once under a fault. After it the lock must work as before.
type operation struct {
	name string
	do   func(*scene) outcome
}

var operations = []operation{
	{"acquire", (*scene).acquire},
	{"acquire what another holds", (*scene).contend},
	{"extend", (*scene).extend},
	{"release", (*scene).release},
}

// An outcome is the answer of an operation.
type outcome int

const (
	unknown outcome = iota
	done
	busy // another holder has the lock
)

// A scene is one case that runs on the stage.
type scene struct {
	*testing.T
	wireCase
	*stage
	key     string
	proxies []*redistest.Proxy // one for each node
	ours    party              // behind them
	same    party              // the same owner, without a proxy
	other   party              // another owner, without a proxy
	around  int                // holds of ours around the operation, or of others beside it

	missed bool // the fault did not happen
	// how long the key of a failed attempt stayed after the network worked again
	lingered time.Duration
}

func (c wireCase) run(t *testing.T, stage *stage) result {
	s := &scene{T: t, wireCase: c, stage: stage, key: c.String()}
	var stores []*redisstore.Store
	var connections []connection
	for _, server := range stage.servers[c.strategy.replicated][:c.strategy.nodes] {
		p := redistest.NewProxy(t, server.Addr())
		cn := c.library.dial(t, p.Addr(), c.strategy.options...)
		s.proxies, stores, connections = append(s.proxies, p), append(stores, cn.store), append(connections, cn)
	}
	l, err := c.strategy.build(stores)
	if err != nil {
		t.Fatal(err)
	}
	s.parties(l)
	stage.warming <- struct{}{}
	s.unlock(s.lock(s.ours, s.key+", warm")) // connects to every node and loads the scripts
	<-stage.warming

	var beside []*locker.Lock
	for range c.strategy.beside {
		beside = append(beside, s.lock(s.other, s.key))
	}
	s.around = len(beside)
	r := c.given(false)
	r.outcome = c.operation.do(s)
	if s.strategy.Ownerless {
		s.untilStill() // a release that is sent again would free the lock of the next holder
	}
	if !s.mayLeave(r.outcome) {
		s.unlock(s.lock(s.other, s.key)) // in the end everybody gets it
	}
	s.untilStill()
	for _, l := range beside {
		s.extendWell(l)
		s.unlock(l)
	}
	s.around = 0
	if !s.mayLeave(r.outcome) {
		eventually(t, "in the end no node has the key", func() bool { return s.taken() == 0 })
	}
	for _, cn := range connections {
		cn.close()
	}
	noConnectionStays(t, s.proxies)
	r.lingered, r.missed, r.broken = s.lingered, s.missed, t.Failed()
	return r
}

// mayLeave tells whether the case is one of the few in which a legacy recipe may leave its key.
func (s *scene) mayLeave(o outcome) bool {
	return s.strategy.Ownerless && o == unknown && strings.HasPrefix(s.operation.name, "acquire")
}

// struck runs call under the fault, with a ctx that ends after callLimit. It returns when the
// network worked again.
func (s *scene) struck(call func(ctx context.Context)) (well time.Time) {
	first := s.number % s.strategy.nodes // so that not always the same nodes have the fault
	hit := append(s.proxies[first:len(s.proxies):len(s.proxies)], s.proxies[:first]...)[:s.hit]
	heal := s.strike(hit, s.key)
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	call(ctx)
	well, happened := heal()
	s.missed = !happened
	return well
}

// acquire: nobody has the lock, so the answer must not be held.
func (s *scene) acquire() outcome {
	defer s.within()()
	var l *locker.Lock
	var err error
	well := s.struck(func(ctx context.Context) { l, err = s.ours.TryLock(ctx, s.key) })
	switch {
	case err == nil:
		s.held(l)
		s.unlock(l)
		return done
	case errors.Is(err, locker.ErrHeld):
		s.Errorf("held, although nobody has it: %v", err)
		return busy
	case errors.Is(err, locker.ErrLost):
		s.Errorf("lost, before it was granted: %v", err)
	}
	s.gone(well)
	return unknown
}

// contend: another holder has the lock, so it must not be granted, and the cleanup must not touch
// it.
func (s *scene) contend() outcome {
	theirs := s.lock(s.other, s.key)
	var inner *locker.Lock
	if s.strategy.nested {
		inner = s.lock(s.other, s.key)
	}
	var err error
	s.struck(func(ctx context.Context) { _, err = s.ours.TryLock(ctx, s.key) })
	o := unknown
	switch {
	case err == nil:
		s.Errorf("granted, although another has it")
		o = done
	case errors.Is(err, locker.ErrHeld):
		o = busy
	case errors.Is(err, locker.ErrLost):
		s.Errorf("lost, before it was granted: %v", err)
	}
	s.untilStill()
	s.extendWell(theirs)
	if inner != nil {
		s.extendWell(inner)
		s.unlock(theirs) // the order of the two does not matter
		theirs = inner
		if _, err := s.same.TryLock(context.Background(), s.key); err == nil {
			s.Errorf("granted, although another still has a hold")
		}
	}
	s.unlock(theirs)
	return o
}

// extend: whatever the answer, the lock stays held, for no shorter time than before.
func (s *scene) extend() outcome {
	defer s.within()()
	l := s.lock(s.ours, s.key)
	before := l.Lease().Expires
	var err error
	s.struck(func(ctx context.Context) { err = l.Extend(ctx, longer) })
	o := unknown
	after := l.Lease().Expires
	switch {
	case errors.Is(err, locker.ErrHeld), errors.Is(err, locker.ErrLost):
		s.Errorf("the extension of a lock that is held: %v", err)
	case err == nil:
		o = done
		if !after.After(before) {
			s.Errorf("extended from %v to %v", before, after)
		}
	}
	if after.Before(before) {
		s.Errorf("the lease ended at %v, and now at %v", before, after)
	}
	// An answer that came after the caller had stopped waiting counts as well.
	if n := s.extended(); after.After(before) && n < s.strategy.need() && !s.strategy.Ownerless {
		s.Errorf("the lease lasts until %v for its holder, and %d nodes have extended it", after, n)
	}
	s.held(l)
	s.extendWell(l)
	s.unlock(l)
	return o
}

// release: whatever the answer, the lock becomes free. If the answer is success, it is free at
// once.
func (s *scene) release() outcome {
	defer s.within()()
	l := s.lockEverywhere()
	var err error
	var taken int
	well := s.struck(func(ctx context.Context) {
		err = l.Unlock(ctx)
		taken = s.taken()
	})
	if err == nil && taken > s.strategy.nodes-s.strategy.need() {
		s.Errorf("released, and %d nodes have it", taken)
	}
	if errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost) {
		s.Errorf("the release of a lock that is held: %v", err)
	}
	s.gone(well)
	s.unlock(l) // again: it returns the final result of the release
	if err == nil {
		return done
	}
	return unknown
}

// within takes another hold of the same owner around the operation, if the strategy nests. Whatever
// happens to the inner hold, the outer one stays, and nobody else gets the lock.
func (s *scene) within() (leave func()) {
	if !s.strategy.nested {
		return func() {}
	}
	outer := s.lock(s.same, s.key)
	s.around = 1
	return func() {
		s.untilStill() // a late message may have come after its cleanup
		if n := s.taken(); n > 0 {
			s.Errorf("an inner hold is left")
		}
		switch again, err := s.ours.TryLock(context.Background(), s.key); {
		case err == nil:
			s.unlock(again)
		case errors.Is(err, locker.ErrHeld):
			s.Errorf("held for its own owner: %v", err)
		}
		s.around = 0
		s.held(outer)
		s.extendWell(outer)
		s.unlock(outer)
	}
}

// held checks that the lock is held.
func (s *scene) held(l *locker.Lock) {
	// the context may have ended with the ctx of the caller
	if cause := context.Cause(l.Context()); errors.Is(cause, locker.ErrLost) {
		s.Errorf("the context of the lock ended: %v", cause)
	}
	if n := s.taken(); n < s.strategy.need() {
		s.Errorf("held, on %d nodes", n)
	}
	second, err := s.other.TryLock(context.Background(), s.key)
	if err == nil {
		s.Errorf("two holders")
		s.unlock(second)
	}
}

// extendWell extends in a network that works.
func (s *scene) extendWell(l *locker.Lock) {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = l.Extend(s.Context(), longer); err == nil {
			return
		}
		if errors.Is(err, locker.ErrLost) {
			break
		}
	}
	s.Errorf("a lock that is held cannot be extended: %v", err)
}

// lock gets a lock that is free or becomes free.
func (s *scene) lock(from party, key string) *locker.Lock {
	var l *locker.Lock
	var err error
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for ctx.Err() == nil { // one attempt may be too short on a busy machine
		if l, err = from.Lock(context.WithoutCancel(ctx), key); err == nil {
			return l
		}
		// nothing else removes the key of a failed attempt
		if s.strategy.Ownerless && !errors.Is(err, locker.ErrHeld) {
			s.looking[s.strategy.replicated][0].Del(context.Background(), key)
		}
		time.Sleep(time.Second)
	}
	s.Fatalf("%q cannot be locked: %v", key, err)
	return nil
}

// lockEverywhere gets a lock from all nodes. A quorum does not wait for the last of them.
func (s *scene) lockEverywhere() *locker.Lock {
	l := s.lock(s.ours, s.key)
	for since := time.Now(); s.taken() < s.strategy.nodes; time.Sleep(time.Millisecond) {
		if time.Since(since) > time.Second { // a node was too busy
			s.unlock(l)
			l, since = s.lock(s.ours, s.key), time.Now()
		}
	}
	return l
}

// unlock releases in a network that works. With a ctx that cannot end, Unlock would stop waiting
// after three seconds, which a busy machine may need.
func (s *scene) unlock(l *locker.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := l.Unlock(ctx); err != nil {
		s.Errorf("unlocking %q: %v", l.Key(), err)
	}
}

// gone waits until no node has the key, and records how long this takes after the network worked
// again.
func (s *scene) gone(well time.Time) {
	if s.strategy.Ownerless && s.operation.name != "release" {
		return
	}
	free := eventually(s.T, fmt.Sprintf("%s: no node has it", s.key), func() bool { return s.taken() == 0 })
	s.lingered = max(free.Sub(well), 0)
}

// untilStill waits until nothing has been sent for a while.
func (s *scene) untilStill() {
	sent, since := -1, time.Now()
	eventually(s.T, "nothing more is sent", func() bool {
		n := 0
		for _, p := range s.proxies {
			n += len(p.Seen())
		}
		if n != sent {
			sent, since = n, time.Now()
		}
		return time.Since(since) > still
	})
}
