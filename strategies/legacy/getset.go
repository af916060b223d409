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
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// GetSet returns a Locker for the recipe of the Redis documentation, "Design pattern: Locking with SETNX":
// https://redis.io/docs/latest/commands/setnx/. The value under the key is the time at which the lock may be taken from its
// holder, by whose clock nobody asks.
//
//	acquire   SETNX key stamp     granted if it was set; otherwise
//	          GET key             refused if that stamp is not past
//	          GETSET key stamp    granted if what was there is past too, or was nothing
//	          PTTL key            only if the value is no stamp: how long it will be in the way
//	extend    GET key             lost if that is not our stamp
//	          GETSET key stamp    lost if what was there is not our stamp
//	release   DEL key             if our own stamp is not past
//
// A stamp is the Unix time, the TTL and 1, in whole seconds: that is how the documentation has it, and so most of the old
// code. With [InMilliseconds] all three are in milliseconds. Seconds make a lock last up to two seconds longer than
// the lease. Anything else, also a stamp in the other unit and a mere 1, is foreign and never taken from whoever put it
// there; but a token that happens to be a number of the size of a stamp is taken for one. (Old code is less careful: it
// often reads a word as 0, and takes the lock.)
//
// The documentation has no extension; this one is ours, and tells a holder what can be told. Nor does it say how often a
// DEL whose reply was lost may be sent: a second one goes by WATCH, GET, MULTI, DEL, EXEC, if our stamp is still there.
//
// Nothing in the store tells whose a lock is, so the Locker keeps the stamps of its grants in memory, until they are released
// or past. Only that Locker can extend or release them.
//
// # What it promises
//
// One holder at a time, if all clocks agree, all use the same TTL, and no request is late. A process that dies is no
// trouble: its stamp will be past. That is also all the clean-up there is: an attempt with an unknown outcome, as one
// whose ctx has ended, may leave its stamp until it is past, since removing it might remove an equal one.
//
// # What it does not promise
//
//   - A clock that is ahead takes a lock before its time, and so two hold it.
//   - A loser with a shorter timeout: of two who find a stamp past and send GETSET, the second loses, but has overwritten
//     the stamp of the winner. Its own is soon past, and someone takes the lock from a winner who believes in it for
//     longer. Two hold it, until the winner's next extension tells it of the loss. The same does a GETSET that arrives late.
//     (A loser with a longer timeout makes the lock last longer, and the winner's next extension fails as well.)
//   - Equal stamps: two grants with the same stamp can't be told apart. If the store forgets the key, and another is
//     granted it in the same second (or millisecond) with the same TTL, the first one's extension and release take the
//     other's lock for its own.
//   - The release does not look whose lock it deletes: if the key was lost in the store, or overwritten, and someone else has
//     it, it is theirs.
//   - A stamp that nobody takes stays under the key for ever. A retransmission is refused.
//
// # How to get to single
//
// The two exclude each other on one key: to single a stamp is a value without expiry, held and foreign, and to GetSet a
// token is foreign. But single never takes a stamp that is past, and waits for it until a GetSet does or an operator
// deletes it; and old code that reads words as 0 takes single's lock. If yours does not, replace old processes one by
// one, and delete stamps that are past when the last has gone. If it does, use another key for single, and make all
// processes take both locks first, as for [SetBit].
func GetSet(store backends.LegacyStore, opts ...GetSetOption) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	g := &getSet{store: store, unit: seconds, now: wallclock.Of(store).Now}
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

// InMilliseconds is for old code that counts milliseconds, as much of that in Java and JavaScript does.
func InMilliseconds() GetSetOption { return func(g *getSet) { g.unit = milliseconds } }

type getSet struct {
	unwatched
	store    backends.LegacyStore
	unit     unit
	now      func() time.Time // the wall clock: of the lease itself the locker package keeps the time
	grants   grants[stamps]
	cleanups cleanup.Queue
}

// Acquire makes one attempt.
func (g *getSet) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	if err := checkRequest(ctx, g.store, req); err != nil {
		return locker.Lease{}, err
	}
	started := time.Now()
	stamp := g.unit.stamp(g.now(), req.TTL)
	set, err := g.store.SetNXForever(ctx, req.Key, text(stamp))
	if err == nil && !set {
		stamp, err = g.takeOver(ctx, req)
	}
	switch {
	case errors.Is(err, locker.ErrHeld):
		return locker.Lease{}, err
	case err != nil:
		return locker.Lease{}, instance.Fault("acquire", req.Key, err)
	}
	lease := granted(req, started)
	if lease.Ended() { // what is left is past soon
		return locker.Lease{}, instance.Fault("acquire", req.Key, instance.ErrLate)
	}
	g.grants.remember(lease, &stamps{held: stamp, sent: []int64{stamp}})
	return lease, nil
}

// takeOver replaces a stamp that is past.
func (g *getSet) takeOver(ctx context.Context, req locker.Request) (stamp int64, err error) {
	value, found, err := g.store.Get(ctx, req.Key)
	if err == nil && !found { // released since: someone else may be quicker, so begin anew
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
		err = g.inTheWay(ctx, req, old) // then we have overwritten the stamp of who was quicker
	}
	return stamp, err
}

// inTheWay is nil for a stamp that is past.
func (g *getSet) inTheWay(ctx context.Context, req locker.Request, value string) error {
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
func (g *getSet) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
	if err := checkExtension(g.store, lease, ttl); err != nil {
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
		if !found { // it was deleted since, and must not come back
			g.cleanups.Add(ctx, cleanup.Entry{TTL: ttl, Known: true, Remove: func(ctx context.Context) error {
				return g.remove(ctx, lease.Key, stamp)
			}})
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
func (g *getSet) Release(ctx context.Context, lease locker.Lease) error {
	if err := lease.Validate("release"); err != nil {
		return err
	}
	ours := g.grants.get(lease)
	if ours == nil {
		return locker.Lost(lease)
	}
	if ours.over(g.unit, g.now()) { // someone else may have it
		g.grants.forget(lease)
		return locker.Lost(lease)
	}
	ok, err := g.delete(ctx, lease.Key, ours)
	if err != nil {
		return instance.Fault("release", lease.Key, err)
	}
	g.grants.forget(lease)
	if !ok {
		return locker.Lost(lease)
	}
	return nil
}

// delete sends the recipe's DEL once, and looks before it repeats it: the first one may have been executed.
func (g *getSet) delete(ctx context.Context, key string, ours *stamps) (ok bool, err error) {
	if ours.firstRelease() {
		return g.store.Delete(ctx, key)
	}
	value, found, err := g.store.Get(ctx, key)
	if err != nil || !found || !ours.has(value) {
		return false, err
	}
	return g.store.TxDeleteIf(ctx, key, value)
}

// stamps are those of one grant. While the outcome of an extension is unknown, any of several may lie under the key.
type stamps struct {
	mu       sync.Mutex
	held     int64   // the latest that is known to have been there
	sent     []int64 // all that may be there
	released bool    // DEL has been sent
}

// over tells that the holder must not believe any more that the lock is its own.
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

// next is a stamp about to be sent, never earlier than one that has been. Those that are past are dropped: who finds one
// of them has the right to take the lock.
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
