package contract_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A strategy of your own: its leases are in a map, so it excludes the goroutines of one process. It
// makes single attempts; Client waits, renews and reports a loss. Over a network the outcome of an
// attempt may also be unknown: docs/adding-a-strategy.md has a strategy that cleans up then.
// Package lockertest tests any Locker.
func ExampleLocker() {
	ctx := context.Background()
	table := &table{leases: map[string]contract.Lease{}}
	first, second := locker.New(table), locker.New(table)

	err := first.Do(ctx, "invoice/42", func(ctx context.Context, _ *locker.Lock) error {
		_, err := second.TryLock(ctx, "invoice/42")
		fmt.Println("held:", errors.Is(err, locker.ErrHeld))
		return ctx.Err()
	})
	fmt.Println("the first has done:", err)
	err = second.Do(ctx, "invoice/42", func(ctx context.Context, l *locker.Lock) error {
		fmt.Println("the second locks", l.Key())
		return ctx.Err()
	})
	fmt.Println("the second has done:", err)
	// Output:
	// held: true
	// the first has done: <nil>
	// the second locks invoice/42
	// the second has done: <nil>
}

// table is a Locker.
type table struct {
	mu     sync.Mutex
	leases map[string]contract.Lease // by key; some may have ended
}

func (t *table) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if err := req.Validate(); err != nil {
		return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
	}
	if err := validate(ctx, "acquire", req.Key, req.TTL); err != nil {
		return contract.Lease{}, err
	}
	started := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
	}
	last, found := t.leases[req.Key]
	if found && !last.Ended() && last.Token != req.Token { // the same Token: the attempt is repeated
		return contract.Lease{}, &locker.HeldError{Key: req.Key, Left: time.Until(last.Expires), Attempts: 1}
	}
	t.leases[req.Key] = contract.Lease{
		Key: req.Key, Token: req.Token, Owner: req.Owner,
		Granted: started, Expires: contract.Until(started, req.TTL),
	}
	return t.leases[req.Key], nil
}

func (t *table) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if err := lease.Validate(); err != nil {
		return lease, &locker.Error{Op: "extend", Key: lease.Key, Err: err}
	}
	if err := validate(ctx, "extend", lease.Key, ttl); err != nil {
		return lease, err
	}
	started := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	current, err := t.current(ctx, "extend", lease)
	if err != nil {
		return lease, err
	}
	if until := contract.Until(started, ttl); until.After(current.Expires) { // never shorter
		current.Expires = until
	}
	t.leases[lease.Key] = current
	return current, nil
}

func (t *table) Release(ctx context.Context, lease contract.Lease) error {
	if err := lease.Validate(); err != nil {
		return &locker.Error{Op: "release", Key: lease.Key, Err: err}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.current(ctx, "release", lease)
	if err == nil {
		delete(t.leases, lease.Key)
	}
	return err
}

// validate has a limit for the TTL: after a holder that hangs, its key is closed for no longer.
func validate(ctx context.Context, op, key string, ttl time.Duration) error {
	err := contract.ValidateTTL(ttl)
	if err == nil {
		err = backends.CheckTTL(ctx, ttl, backends.DefaultMaxTTL, "backends.DefaultMaxTTL")
	}
	if err != nil {
		return &locker.Error{Op: op, Key: key, Err: err}
	}
	return nil
}

// current returns what the table has of a lease. Only its Token extends and releases.
func (t *table) current(ctx context.Context, op string, lease contract.Lease) (contract.Lease, error) {
	if err := ctx.Err(); err != nil {
		return lease, &locker.Error{Op: op, Key: lease.Key, Err: err}
	}
	current, found := t.leases[lease.Key]
	if !found || current.Token != lease.Token || current.Ended() {
		return lease, locker.Lost(lease)
	}
	return current, nil
}

// Transfer would move a hold to another process, and there is none.
func (*table) Transfer(_ context.Context, _ string, req contract.Request) (contract.Lease, error) {
	return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: contract.ErrNoTransfer}
}

// Watch would wake waiters when a lock is released. Without it they poll.
func (*table) Watch(context.Context, string, string, func()) error { return errors.ErrUnsupported }
