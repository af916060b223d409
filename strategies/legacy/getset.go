package legacy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// GetSet returns a Locker for the recipe of the Redis documentation, "Design pattern: Locking with
// SETNX": https://redis.io/docs/latest/commands/setnx/. The value under the key is the time from
// which anybody may take the lock. Each client compares it with its own clock.
//
//	acquire   SETNX key stamp     granted if it was set; otherwise
//	          GET key             held if that stamp is not past
//	          GETSET key stamp    granted if the old value was past too, or absent
//	          PTTL key            only if the value is no stamp: how long it will be in the way
//	extend    GET key             lost if that is not our stamp
//	          GETSET key stamp    lost if the old value is not our stamp
//	release   DEL key             if our own stamp is not past
//
// A stamp is the Unix time, plus the TTL, plus 1, in whole seconds. The documentation counts in
// seconds, and so does most old code. With [InMilliseconds] all three are in milliseconds. With
// seconds a lock may last up to two seconds longer than the lease.
//
// Any other value is foreign and is never taken. This includes a stamp in the other unit and a mere
// 1. But a token that happens to be a number of the size of a stamp counts as a stamp. Old code is
// less careful: it often reads a word as 0, and takes the lock.
//
// The documentation has no extension. This one is ours, and reports a loss where it can be seen.
// The documentation does not say either whether to repeat a DEL whose reply was lost. Here the
// second release uses WATCH, GET, MULTI, DEL, EXEC, if our stamp is still there. So does a release
// that comes as the lease ends: at the end of a minimum hold ([locker.WithMinHold]), or of what a
// lost lock is kept for until Unlock.
//
// The store does not show whose a lock is. So the Locker keeps the stamps of its grants in memory
// until they are released or past. Only that Locker can extend or release them.
//
// # What it promises
//
// One holder at a time, if all clocks agree, all processes use the same TTL, and no request is
// late. If a process dies, its stamp will be past. That is also the only cleanup. An attempt with
// an unknown outcome, such as one whose ctx has ended, may leave its stamp until it is past:
// removing it might remove an equal stamp of another holder.
//
// # What it does not promise
//
//   - Clocks: a process with a clock that is ahead takes the lock too early, and two hold it.
//   - A loser with a shorter timeout: two processes find a stamp past and send GETSET. The second
//     loses, but has overwritten the stamp of the winner. The loser's stamp is past sooner, and a
//     third process takes the lock while the winner still holds it. Two hold it until the winner's
//     next extension reports the loss. A GETSET that arrives late has the same effect. (A loser
//     with a longer timeout makes the lock last longer, and the winner's next extension fails as
//     well.)
//   - Equal stamps: two grants with the same stamp look the same. The store may forget the key and
//     grant it again in the same second (or millisecond) with the same TTL. Then the first holder
//     extends and releases the lock of the second.
//   - Release does not compare: if the key was lost in the store, or overwritten, and another
//     process has the lock, Release deletes that process's key.
//   - A stamp that nobody takes stays under the key for ever. A retransmission finds the lock held.
//
// # How to get to single
//
// The two exclude each other on one key: for single a stamp is a value without expiry, held and
// foreign, and for GetSet a token is foreign. But single never takes a stamp that is past. It waits
// until a GetSet takes it or an operator deletes it. And old code that reads words as 0 takes the
// lock of single.
//
// If your old code does not read words as 0, replace old processes one by one, and delete stamps
// that are past when the last one has gone. If it does, use another key for single, and make all
// processes take both locks first, as for [SetBit].
func GetSet(store backends.LegacyStore, opts ...GetSetOption) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	g := &getSet{store: store, cleanups: cleanup.New(false), unit: seconds, now: wallclock.Of(store).Now}
	g.grants.over = func(s *stamps) bool { return s.over(g.unit, g.now()) }
	for _, opt := range opts {
		if opt != nil {
			opt(g)
		}
	}
	return g
}

// A GetSetOption changes what [GetSet] returns.
type GetSetOption func(*getSet)

// InMilliseconds is for old code that counts milliseconds, such as much code in Java and
// JavaScript.
func InMilliseconds() GetSetOption { return func(g *getSet) { g.unit = milliseconds } }

type getSet struct {
	limited
	store    backends.LegacyStore
	unit     unit
	now      func() time.Time // the wall clock, for stamps; package locker times the lease itself
	grants   grants[stamps]
	cleanups *cleanup.Queue
}

// Acquire makes one attempt.
func (g *getSet) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if err := checkRequest(ctx, g.store, req); err != nil {
		return contract.Lease{}, err
	}
	started := time.Now()
	stamp := g.unit.stamp(g.now(), req.TTL)
	set, err := g.store.SetNXForever(ctx, req.Key, text(stamp))
	if err == nil && !set {
		stamp, err = g.takeOver(ctx, req)
	}
	switch {
	case errors.Is(err, locker.ErrHeld):
		return contract.Lease{}, err
	case err != nil:
		return contract.Lease{}, instance.Fault("acquire", req.Key, err)
	}
	lease := granted(req, started)
	if lease.Ended() { // the stamp left in the store will soon be past
		return contract.Lease{}, instance.Fault("acquire", req.Key, instance.ErrLate)
	}
	g.grants.remember(lease, &stamps{held: stamp, sent: []int64{stamp}})
	return lease, nil
}

// takeOver replaces a stamp that is past.
func (g *getSet) takeOver(ctx context.Context, req contract.Request) (stamp int64, err error) {
	value, found, err := g.store.Get(ctx, req.Key)
	if err == nil && !found { // released since: another caller may be quicker, so begin anew
		err = held(req, 0)
	}
	if err == nil {
		err = g.inTheWay(ctx, req, value)
	}
	if err != nil {
		return 0, err
	}
	stamp = g.unit.stamp(g.now(), req.TTL)
	old, found, err := g.store.GetSet(ctx, req.Key, text(stamp))
	if err == nil && found {
		err = g.inTheWay(ctx, req, old) // if so, this has overwritten the stamp of a quicker caller
	}
	return stamp, err
}

// inTheWay returns nil for a stamp that is past, and the error of Acquire for any other value.
func (g *getSet) inTheWay(ctx context.Context, req contract.Request, value string) error {
	now := g.now()
	if stamp, ok := g.unit.parse(value, now); ok {
		if g.unit.past(stamp, now) {
			return nil
		}
		return held(req, g.unit.left(stamp, now))
	}
	left, found, err := g.store.Left(ctx, req.Key)
	if err != nil {
		return err
	}
	return &locker.HeldError{Key: req.Key, Attempts: 1, Left: left, Foreign: found && left == 0}
}

// Extend moves the end of the lease to ttl from now, unless it is later already.
func (g *getSet) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if err := checkExtension(ctx, g.store, lease, ttl); err != nil {
		return lease, err
	}
	ours := g.grants.get(lease)
	if ours == nil || ours.over(g.unit, g.now()) {
		return lease, locker.Lost(lease)
	}
	started := time.Now()
	old, found, err := g.store.Get(ctx, lease.Key)
	if err != nil {
		return lease, instance.Fault("extend", lease.Key, err)
	}
	if !found || !ours.has(old) {
		g.grants.forget(lease)
		return lease, locker.Lost(lease)
	}
	stamp := ours.next(g.unit, g.now(), ttl)
	old, found, err = g.store.GetSet(ctx, lease.Key, text(stamp))
	if err != nil {
		return lease, instance.Fault("extend", lease.Key, err)
	}
	if !found || !ours.has(old) {
		g.grants.forget(lease)
		if !found { // GETSET has created the key again after it was deleted
			remove := func(ctx context.Context) error { return g.remove(ctx, lease.Key, stamp) }
			g.cleanups.Add(ctx, cleanup.Entry{TTL: ttl, Known: true, Remove: remove, Done: contract.DelayDrain(ctx)})
		}
		return lease, locker.Lost(lease)
	}
	ours.landed(stamp)
	return instance.Extended(lease, started, ttl), nil
}

func (g *getSet) remove(ctx context.Context, key string, stamp int64) error {
	_, err := g.store.TxDeleteIf(ctx, key, text(stamp))
	return err
}

// Release deletes the key.
func (g *getSet) Release(ctx context.Context, lease contract.Lease) error {
	if err := lease.Validate(); err != nil {
		return instance.Fault("release", lease.Key, err)
	}
	ours := g.grants.get(lease)
	if ours == nil {
		return locker.Lost(lease)
	}
	if ours.over(g.unit, g.now()) { // another holder may have it
		g.grants.forget(lease)
		return locker.Lost(lease)
	}
	ok, err := g.delete(ctx, lease, ours)
	if err != nil {
		return instance.Fault("release", lease.Key, err)
	}
	g.grants.forget(lease)
	if !ok {
		return locker.Lost(lease)
	}
	return nil
}

// delete sends the recipe's DEL once. A repeat compares first: the DEL before it may have been
// executed. So does a Release that is sent as the lease ends, since the next holder may be there
// before it: one after a minimum hold, or after the end of a lease whose stamp is not yet past.
func (g *getSet) delete(ctx context.Context, lease contract.Lease, ours *stamps) (ok bool, err error) {
	if ours.firstRelease() && !lease.Ended() && !contract.CallOf(ctx).Kept() {
		return g.store.Delete(ctx, lease.Key)
	}
	value, found, err := g.store.Get(ctx, lease.Key)
	if err != nil || !found || !ours.has(value) {
		return false, err
	}
	return g.store.TxDeleteIf(ctx, lease.Key, value)
}

// stamps are the stamps of one grant. After an extension with an unknown outcome, any of them may
// be under the key.
type stamps struct {
	mu       sync.Mutex
	held     int64   // the latest that is known to have been there
	sent     []int64 // all that may be there
	released bool    // DEL has been sent
}

// over reports whether the holder must stop believing that it has the lock.
func (s *stamps) over(u unit, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return u.past(float64(s.held), now)
}

func (s *stamps) has(value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.sent, func(stamp int64) bool { return text(stamp) == value })
}

// next returns the stamp to send, never earlier than one sent before. It drops stamps that are
// past: any process that finds one of them may take the lock.
func (s *stamps) next(u unit, now time.Time, ttl time.Duration) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = slices.DeleteFunc(s.sent, func(stamp int64) bool { return u.past(float64(stamp), now) })
	stamp := slices.Max(append(s.sent, u.stamp(now, ttl)))
	if !slices.Contains(s.sent, stamp) {
		s.sent = append(s.sent, stamp)
	}
	return stamp
}

func (s *stamps) landed(stamp int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = max(s.held, stamp)
}

func (s *stamps) firstRelease() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.released
	s.released = true
	return first
}
