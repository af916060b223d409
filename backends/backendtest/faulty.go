package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Store returns store with the faults of f, as a plain [backends.Store]: without queues or numbers,
// even if store has them.
func (f *Faults) Store(store backends.Store) backends.Store { return faultyStore{f, store} }

// Queued returns store with the faults of f.
func (f *Faults) Queued(store backends.QueuedStore) backends.QueuedStore {
	return struct {
		faultyStore
		faultyQueue
	}{faultyStore{f, store}, faultyQueue{f, store}}
}

// Numbered returns store with the faults of f. If store is a [backends.QueuedStore], so is the
// result.
func (f *Faults) Numbered(store backends.NumberedStore) backends.NumberedStore {
	if queued, ok := store.(backends.QueuedStore); ok {
		return struct {
			faultyStore
			faultyQueue
			faultyNumbers
		}{faultyStore{f, store}, faultyQueue{f, queued}, faultyNumbers{f, store}}
	}
	return struct {
		faultyStore
		faultyNumbers
	}{faultyStore{f, store}, faultyNumbers{f, store}}
}

// Fenced returns store with the faults of f.
func (f *Faults) Fenced(store backends.FencedStore) backends.FencedStore {
	return struct {
		faultyStore
		faultyFences
	}{faultyStore{f, store}, faultyFences{f, store}}
}

// Shared returns store with the faults of f.
func (f *Faults) Shared(store backends.SharedStore) backends.SharedStore {
	return faultyShared{f, store}
}

// Ordered returns store with the faults of f.
func (f *Faults) Ordered(store backends.OrderedStore) backends.OrderedStore {
	return faultyOrdered{faultyShared{f, store}, store}
}

// Legacy returns store with the faults of f. MaxTTL is no call to the store, and meets no fault.
func (f *Faults) Legacy(store backends.LegacyStore) backends.LegacyStore {
	return faultyLegacy{f, store}
}

type faultyStore struct {
	faults *Faults
	store  backends.Store
}

func (f faultyStore) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return perform(ctx, f.faults, SetNX, func(ctx context.Context) (backends.Result, error) {
		return f.store.SetNX(ctx, key, value, ttl)
	})
}

func (f faultyStore) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return perform(ctx, f.faults, ExpireIf, func(ctx context.Context) (bool, error) {
		return f.store.ExpireIf(ctx, key, value, ttl)
	})
}

func (f faultyStore) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	return perform(ctx, f.faults, DeleteIf, func(ctx context.Context) (bool, error) {
		return f.store.DeleteIf(ctx, key, value)
	})
}

// Transfer fails for good if the store below moves no locks.
func (f faultyStore) Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (backends.Result, error) {
	s, ok := f.store.(backends.TransferStore)
	if !ok {
		return backends.Result{}, permanent{errors.ErrUnsupported}
	}
	op := SetNX
	if numbered {
		op = SetNXNumbered
	}
	return perform(ctx, f.faults, op, func(ctx context.Context) (backends.Result, error) {
		return s.Transfer(ctx, key, from, value, ttl, numbered)
	})
}

// Inspect fails for good if the store below tells nothing.
func (f faultyStore) Inspect(ctx context.Context, key string) (backends.State, error) {
	return inspect(ctx, f.faults, f.store, key)
}

func inspect(ctx context.Context, f *Faults, store any, key string) (backends.State, error) {
	s, ok := store.(backends.Inspector)
	if !ok {
		return backends.State{}, permanent{errors.ErrUnsupported}
	}
	return perform(ctx, f, Inspect, func(ctx context.Context) (backends.State, error) { return s.Inspect(ctx, key) })
}

func (f faultyStore) Watch(ctx context.Context, key string, wake func()) error {
	return f.faults.watch(ctx, func() error { return f.store.Watch(ctx, key, wake) })
}

// watch applies faults to the start of a watch, not to its wake-ups. register always uses the ctx
// of the caller: with the ctx of a fault that ignores the end of ctx, a watch would never end.
func (f *Faults) watch(ctx context.Context, register func() error) error {
	_, err := perform(ctx, f, Watch, func(context.Context) (struct{}, error) { return struct{}{}, register() })
	return err
}

type faultyQueue struct {
	faults *Faults
	store  backends.QueuedStore
}

func (f faultyQueue) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return perform(ctx, f.faults, SetNX, func(ctx context.Context) (backends.Result, error) {
		return f.store.SetNXQueued(ctx, key, value, ttl, t)
	})
}

func (f faultyQueue) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	return f.faults.watch(ctx, func() error { return f.store.WatchQueued(ctx, key, waiter, wake) })
}

type faultyNumbers struct {
	faults *Faults
	store  backends.NumberedStore
}

func (f faultyNumbers) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return perform(ctx, f.faults, SetNXNumbered, func(ctx context.Context) (backends.Result, error) {
		return f.store.SetNXNumbered(ctx, key, value, ttl, t)
	})
}

type faultyFences struct {
	faults *Faults
	store  backends.FencedStore
}

func (f faultyFences) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return perform(ctx, f.faults, SetNXFenced, func(ctx context.Context) (backends.Result, error) {
		return f.store.SetNXFenced(ctx, key, value, ttl)
	})
}

func (f faultyFences) RaiseFence(ctx context.Context, key, value string, to uint64) (bool, error) {
	return perform(ctx, f.faults, RaiseFence, func(ctx context.Context) (bool, error) {
		return f.store.RaiseFence(ctx, key, value, to)
	})
}

type faultyShared struct {
	faults *Faults
	store  backends.SharedStore
}

func (f faultyShared) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	return perform(ctx, f.faults, Enter, func(ctx context.Context) (backends.Result, error) {
		return f.store.Enter(ctx, key, token, ttl, a)
	})
}

func (f faultyShared) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	return perform(ctx, f.faults, Renew, func(ctx context.Context) (bool, error) {
		return f.store.Renew(ctx, key, token, ttl)
	})
}

func (f faultyShared) Leave(ctx context.Context, key, token string) (bool, error) {
	return perform(ctx, f.faults, Leave, func(ctx context.Context) (bool, error) {
		return f.store.Leave(ctx, key, token)
	})
}

// TransferHold fails for good if the store below moves no holds.
func (f faultyShared) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
	s, ok := f.store.(backends.SharedTransferStore)
	if !ok {
		return backends.Result{}, permanent{errors.ErrUnsupported}
	}
	return perform(ctx, f.faults, Enter, func(ctx context.Context) (backends.Result, error) {
		return s.TransferHold(ctx, key, from, token, ttl, group, numbered)
	})
}

// Inspect fails for good if the store below tells nothing.
func (f faultyShared) Inspect(ctx context.Context, key string) (backends.State, error) {
	return inspect(ctx, f.faults, f.store, key)
}

func (f faultyShared) Watch(ctx context.Context, key string, wake func()) error {
	return f.faults.watch(ctx, func() error { return f.store.Watch(ctx, key, wake) })
}

type faultyOrdered struct {
	faultyShared
	ordered backends.OrderedStore
}

func (f faultyOrdered) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	return f.faults.watch(ctx, func() error { return f.ordered.WatchQueued(ctx, key, waiter, wake) })
}

type faultyLegacy struct {
	faults *Faults
	store  backends.LegacyStore
}

func (f faultyLegacy) MaxTTL() time.Duration { return f.store.MaxTTL() }

func (f faultyLegacy) SetNXForever(ctx context.Context, key, value string) (bool, error) {
	return perform(ctx, f.faults, SetNXForever, func(ctx context.Context) (bool, error) {
		return f.store.SetNXForever(ctx, key, value)
	})
}

func (f faultyLegacy) Get(ctx context.Context, key string) (string, bool, error) {
	a, err := perform(ctx, f.faults, Get, func(ctx context.Context) (found[string], error) {
		return finding(f.store.Get(ctx, key))
	})
	return a.what, a.ok, err
}

func (f faultyLegacy) GetSet(ctx context.Context, key, value string) (string, bool, error) {
	a, err := perform(ctx, f.faults, GetSet, func(ctx context.Context) (found[string], error) {
		return finding(f.store.GetSet(ctx, key, value))
	})
	return a.what, a.ok, err
}

func (f faultyLegacy) Left(ctx context.Context, key string) (time.Duration, bool, error) {
	a, err := perform(ctx, f.faults, Left, func(ctx context.Context) (found[time.Duration], error) {
		return finding(f.store.Left(ctx, key))
	})
	return a.what, a.ok, err
}

// found is the answer of a command that may find nothing.
type found[A any] struct {
	what A
	ok   bool
}

func finding[A any](what A, ok bool, err error) (found[A], error) { return found[A]{what, ok}, err }

func (f faultyLegacy) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	return perform(ctx, f.faults, Expire, func(ctx context.Context) (bool, error) {
		return f.store.Expire(ctx, key, ttl)
	})
}

func (f faultyLegacy) Delete(ctx context.Context, key string) (bool, error) {
	return perform(ctx, f.faults, Delete, func(ctx context.Context) (bool, error) {
		return f.store.Delete(ctx, key)
	})
}

func (f faultyLegacy) TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return perform(ctx, f.faults, TxExpireIf, func(ctx context.Context) (bool, error) {
		return f.store.TxExpireIf(ctx, key, value, ttl)
	})
}

func (f faultyLegacy) TxDeleteIf(ctx context.Context, key, value string) (bool, error) {
	return perform(ctx, f.faults, TxDeleteIf, func(ctx context.Context) (bool, error) {
		return f.store.TxDeleteIf(ctx, key, value)
	})
}

func (f faultyLegacy) GetBit(ctx context.Context, key string, offset uint32) (bool, error) {
	return perform(ctx, f.faults, GetBit, func(ctx context.Context) (bool, error) {
		return f.store.GetBit(ctx, key, offset)
	})
}

func (f faultyLegacy) SetBit(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
	return perform(ctx, f.faults, SetBit, func(ctx context.Context) (bool, error) {
		return f.store.SetBit(ctx, key, offset, on)
	})
}
