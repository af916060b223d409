package legacy

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// Expire returns a Locker for the recipe of Josiah L. Carlson, Redis in Action (2013), chapters
// 6.2.3 and 6.2.5:
// https://redis.io/ebook/part-2-core-concepts/chapter-6-application-components-in-redis/6-2-distributed-locking/.
//
//	acquire   SETNX key token              granted if it was set; then
//	          PEXPIRE key ttl
//	          PTTL key                     if it was not set
//	          PEXPIRE key ttl              if key has no expiry: the "repair"
//	extend    WATCH key, GET key           if key holds token:
//	          MULTI, PEXPIRE key ttl, EXEC
//	release   WATCH key, GET key           if key holds token:
//	          MULTI, DEL key, EXEC
//
// The book counts in seconds (EXPIRE, TTL), which are too coarse here; the keys are the same.
// Listing 6.11 repairs "if not conn.ttl(…)", for a client library that returned None for no expiry.
// Other libraries return −1, as redis-py does since 3.0: with them such code never repairs. The
// extension is ours: the book has one only for semaphores (6.3.3).
//
// # What it promises
//
// As with package single, there is one holder at a time, as long as no process dies or is late
// between SETNX and PEXPIRE. Only the holder of the token extends and releases. Extend and Release
// report a lease that has ended in the store. If extensions of different length are under way at
// once, the last one to arrive decides how long the key lives. The next extension corrects that.
//
// # What it does not promise
//
//   - Locked for ever: a process that is killed between SETNX and PEXPIRE leaves a value without
//     expiry. It stays until a waiter repairs it, and then for the waiter's TTL. If nobody waits,
//     or old code does not repair, it stays until an operator deletes it.
//   - A repair that hits a living lock: a waiter finds no expiry because the holder's PEXPIRE is on
//     its way. The waiter is delayed, and its PEXPIRE with a shorter TTL arrives after the PEXPIRE
//     of the holder, or of the next holder. Then the lock is free before its holder's lease ends,
//     and two hold it. The same happens if the holder's PEXPIRE arrives after the repair has
//     expired, and finds the key of another holder.
//   - A retransmission finds the lock held: SETNX does not compare the token.
//   - Expire repairs every value without expiry, also one that is meant to have none, such as a
//     stamp of GetSet: see the table in the package comment.
//
// After an attempt with an unknown outcome, a cleanup sends the commands of a release, for the TTL
// or a minute, whichever is longer. If the store can't be reached in that time, the value stays as
// after a killed process.
//
// # How to get to single
//
// The two exclude each other on one key: single sees a value without expiry as held (and foreign),
// and the SETNX of Expire fails while single holds the key. So replace old processes one by one.
// Keep at least one process that repairs until the last old one has gone. Or let an operator look
// for keys whose TTL is −1 after it has gone.
func Expire(store backends.LegacyStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return &expire{store: store, cleanups: cleanup.New(false)}
}

type expire struct {
	limited
	store    backends.LegacyStore
	cleanups *cleanup.Queue
}

// errGone says that the key was gone between SETNX and PEXPIRE.
var errGone = errors.New("the key was gone before it got its expiry")

// Acquire makes one attempt.
func (e *expire) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if err := checkRequest(ctx, e.store, req); err != nil {
		return contract.Lease{}, err
	}
	started := time.Now()
	if _, err := e.cleanups.Reserve(ctx, req.Key, false); err != nil {
		return contract.Lease{}, instance.Fault("acquire", req.Key, err)
	}
	known := false
	defer func() {
		if !known { // the store panicked: the value stays as after a process that has died
			e.cleanups.Free()
		}
	}()
	set, err := e.store.SetNXForever(ctx, req.Key, req.Token)
	known = true
	switch {
	case err != nil && (backends.Permanent(err) || backends.Unsent(err)):
		e.cleanups.Free()
		return contract.Lease{}, instance.Fault("acquire", req.Key, err)
	case err == nil && !set:
		e.cleanups.Free()
		return contract.Lease{}, e.held(ctx, req)
	case err == nil:
		known = false
		err = e.expire(ctx, req)
		known = true
	}
	lease := granted(req, started)
	if err == nil && lease.Ended() {
		err = instance.ErrLate
	}
	if err != nil {
		if !e.undo(ctx, req, err) {
			err = half{err}
		}
		return contract.Lease{}, instance.Fault("acquire", req.Key, err)
	}
	e.cleanups.Free()
	return lease, nil
}

// half is an error after SETNX was done, or may have been. Its cause may say that it was not sent
// or is permanent; but there may be something to clean up.
type half struct{ error }

func (h half) Unwrap() error { return h.error }
func (half) Unsent() bool    { return false }
func (half) Permanent() bool { return false }

// expire gives the new value its expiry. A process that dies before it leaves a lock without
// expiry.
func (e *expire) expire(ctx context.Context, req contract.Request) error {
	found, err := e.store.Expire(ctx, req.Key, req.TTL)
	if err == nil && !found {
		return errGone
	}
	return err
}

// held returns the error of a lock that is held. It repairs the value if it has no expiry.
func (e *expire) held(ctx context.Context, req contract.Request) error {
	left, found, err := e.store.Left(ctx, req.Key)
	if err == nil && found && left == 0 {
		left = req.TTL
		_, err = e.store.Expire(ctx, req.Key, req.TTL)
	}
	if err != nil {
		return instance.Fault("acquire", req.Key, err)
	}
	return held(req, left)
}

// undo removes the token, and returns true if nothing is left. After a permanent error of PEXPIRE
// it removes the token before Acquire returns. The value has no expiry, so a cleanup goes on for a
// minute even if the TTL is shorter.
func (e *expire) undo(ctx context.Context, req contract.Request, why error) (undone bool) {
	remove := func(ctx context.Context) error {
		_, err := e.store.TxDeleteIf(ctx, req.Key, req.Token)
		return err
	}
	if backends.Permanent(why) && remove(ctx) == nil {
		e.cleanups.Free()
		return true
	}
	if calls.IsNode(ctx) {
		e.cleanups.Free()
	} else {
		e.cleanups.Keep(ctx, cleanup.Entry{TTL: max(req.TTL, time.Minute), Remove: remove, Done: contract.DelayDrain(ctx)})
	}
	return false
}

// Extend moves the end of the lease to ttl from now, unless it is later already. PEXPIRE would
// shorten the life of the key. So Extend sends what the lease has left if that is more than ttl. A
// lease made of Key and Token alone does not say what it has left.
func (e *expire) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if err := checkExtension(ctx, e.store, lease, ttl); err != nil {
		return lease, err
	}
	started := time.Now()
	ok, err := e.store.TxExpireIf(ctx, lease.Key, lease.Token, longer(lease, started, ttl))
	switch {
	case err != nil:
		return lease, instance.Fault("extend", lease.Key, err)
	case !ok:
		return lease, locker.Lost(lease)
	}
	return instance.Extended(lease, started, ttl), nil
}

// longer returns ttl, or a longer time if the lease ends later than that. The longer time is the
// ttl with which contract.Until gives the end of the lease, in whole milliseconds.
func longer(lease contract.Lease, started time.Time, ttl time.Duration) time.Duration {
	if !lease.Expires.After(contract.Until(started, ttl)) {
		return ttl
	}
	left := (lease.Expires.Sub(started) + 2*time.Millisecond) * 100 / 99
	return (left + time.Millisecond - 1).Truncate(time.Millisecond)
}

// Release removes the token.
func (e *expire) Release(ctx context.Context, lease contract.Lease) error {
	if err := lease.Validate(); err != nil {
		return instance.Fault("release", lease.Key, err)
	}
	ok, err := e.store.TxDeleteIf(ctx, lease.Key, lease.Token)
	switch {
	case err != nil:
		return instance.Fault("release", lease.Key, err)
	case !ok:
		return locker.Lost(lease)
	}
	return nil
}
