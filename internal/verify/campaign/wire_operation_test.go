package campaign

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
)

const (
	ttl    = 20 * time.Minute // nothing ends by itself within patience
	longer = 40 * time.Minute // what a lock is extended to
	still  = 6 * time.Second  // longer than a clean-up pauses between two looks, and than go-redis waits for a reply
)

// An operation is done once under a fault, and then the lock must be in order again.
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

// An outcome is what the operation answered.
type outcome int

const (
	unknown outcome = iota
	done
	refused
)

// A scene is a case on its stage.
type scene struct {
	*testing.T
	wireCase
	*stage
	key     string
	proxies []*redistest.Proxy // one for each node
	ours    party              // behind them
	same    party              // the same owner, without a proxy
	other   party              // someone else, without a proxy
	around  int                // holds of ours that lie around what is done

	missed   bool          // the fault has not happened
	lingered time.Duration // how long the key of an attempt that failed stayed in a network that was well again
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
	s.unlock(s.lock(s.ours, s.key+", warm")) // every node is connected to, and knows the scripts
	<-stage.warming

	r := c.given(false)
	r.outcome = c.operation.do(s)
	if s.strategy.ownerless {
		s.untilStill() // a release that is sent again would free the next one's lock
	}
	if !s.mayLeave(r.outcome) {
		s.unlock(s.lock(s.other, s.key)) // everybody gets it in the end
	}
	s.untilStill()
	if !s.mayLeave(r.outcome) {
		eventually(t, "nothing lies anywhere in the end", func() bool { return s.taken() == 0 })
	}
	for _, cn := range connections {
		cn.close()
	}
	noConnectionStays(t, s.proxies)
	r.lingered, r.missed, r.broken = s.lingered, s.missed, t.Failed()
	return r
}

// mayLeave: the case is one of the few in which a legacy recipe can't know what it may remove.
func (s *scene) mayLeave(o outcome) bool {
	return s.strategy.ownerless && o == unknown && strings.HasPrefix(s.operation.name, "acquire")
}

// struck runs call under the fault, with the ctx of a caller who gives up after a while, and tells when the network was
// well again.
func (s *scene) struck(call func(ctx context.Context)) (well time.Time) {
	first := s.number % s.strategy.nodes // not always the same nodes
	hit := append(s.proxies[first:len(s.proxies):len(s.proxies)], s.proxies[:first]...)[:s.hit]
	heal := s.strike(hit, s.key)
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	call(ctx)
	well, happened := heal()
	s.missed = !happened
	return well
}

// acquire: nobody has the lock, so the answer must not be that somebody has.
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
		s.Errorf("refused, while nobody else had it: %v", err)
		return refused
	case errors.Is(err, locker.ErrLost):
		s.Errorf("lost, before it was granted: %v", err)
	}
	s.gone(well)
	return unknown
}

// contend: someone else has the lock, so it must not be granted, and what cleans up after the attempt must not touch it.
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
		s.Errorf("granted, while someone else had it")
		o = done
	case errors.Is(err, locker.ErrHeld):
		o = refused
	case errors.Is(err, locker.ErrLost):
		s.Errorf("lost, before it was granted: %v", err)
	}
	s.untilStill()
	s.extendWell(theirs)
	if inner != nil {
		s.extendWell(inner)
		s.unlock(theirs) // in whatever order they end
		theirs = inner
		if _, err := s.same.TryLock(context.Background(), s.key); err == nil {
			s.Errorf("granted, while someone else had a hold left")
		}
	}
	s.unlock(theirs)
	return o
}

// extend: whatever the answer, the lock is held, and for no shorter time than before.
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
	// An answer that came when nobody waited for it counts as well.
	if n := s.extended(); after.After(before) && n < s.strategy.need() && !s.strategy.ownerless {
		s.Errorf("the holder believes until %v, and %d nodes do", after, n)
	}
	s.held(l)
	s.extendWell(l)
	s.unlock(l)
	return o
}

// release: whatever the answer, the lock will be free, and it is at once if the answer was that it is.
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
	s.unlock(l) // again: it says what the release came to at last
	if err == nil {
		return done
	}
	return unknown
}

// within takes a hold of the same owner around what is done, if the strategy nests. Whatever becomes of the inner one, the outer
// is there after as before, and nobody else is granted the lock.
func (s *scene) within() (leave func()) {
	if !s.strategy.nested {
		return func() {}
	}
	outer := s.lock(s.same, s.key)
	s.around = 1
	return func() {
		s.untilStill() // what was held back may have come after what undoes it
		if n := s.taken(); n > 0 {
			s.Errorf("an inner hold is left")
		}
		switch again, err := s.ours.TryLock(context.Background(), s.key); {
		case err == nil:
			s.unlock(again)
		case errors.Is(err, locker.ErrHeld):
			s.Errorf("its owner is refused: %v", err)
		}
		s.around = 0
		s.held(outer)
		s.extendWell(outer)
		s.unlock(outer)
	}
}

// held wants the lock of a holder to be one.
func (s *scene) held(l *locker.Lock) {
	if cause := context.Cause(l.Context()); errors.Is(cause, locker.ErrLost) { // it may have ended with the ctx of the caller
		s.Errorf("the holder was told: %v", cause)
	}
	if n := s.taken(); n < s.strategy.need() {
		s.Errorf("held, on %d nodes", n)
	}
	second, err := s.other.TryLock(context.Background(), s.key)
	if err == nil {
		s.Errorf("two hold it")
		s.unlock(second)
	}
}

// extendWell extends in a network that is well.
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
	s.Errorf("a lock that is held can't be extended: %v", err)
}

// lock gets a lock that is free, or will be.
func (s *scene) lock(from party, key string) *locker.Lock {
	var l *locker.Lock
	var err error
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for ctx.Err() == nil { // the machine may be too busy for an attempt
		if l, err = from.Lock(context.WithoutCancel(ctx), key); err == nil {
			return l
		}
		if s.strategy.ownerless && !errors.Is(err, locker.ErrHeld) { // what the attempt may have left, nobody else removes
			s.looking[s.strategy.replicated][0].Del(context.Background(), key)
		}
		time.Sleep(time.Second)
	}
	s.Fatalf("nobody gets %q: %v", key, err)
	return nil
}

// lockEverywhere gets a lock from all nodes. A quorum does not wait for the last of them, and its release only for a moment: what a
// node grants later is released then.
func (s *scene) lockEverywhere() *locker.Lock {
	l := s.lock(s.ours, s.key)
	for since := time.Now(); s.taken() < s.strategy.nodes; time.Sleep(time.Millisecond) {
		if time.Since(since) > time.Second { // one was too busy
			s.unlock(l)
			l, since = s.lock(s.ours, s.key), time.Now()
		}
	}
	return l
}

// unlock releases in a network that is well. Under a ctx that can't end, Unlock would give up after
// three seconds, which a busy machine may need.
func (s *scene) unlock(l *locker.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := l.Unlock(ctx); err != nil {
		s.Errorf("unlocking %q: %v", l.Key(), err)
	}
}

// gone waits until nothing lies under the key, and notes how long that takes from when the network was well.
func (s *scene) gone(well time.Time) {
	if s.strategy.ownerless && s.operation.name != "release" {
		return
	}
	free := eventually(s.T, fmt.Sprintf("%s: nothing is left of it", s.key), func() bool { return s.taken() == 0 })
	s.lingered = max(free.Sub(well), 0)
}

// untilStill waits until nothing has been sent for a while.
func (s *scene) untilStill() {
	sent, since := -1, time.Now()
	eventually(s.T, "nothing is sent any more", func() bool {
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
