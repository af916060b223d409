package lockertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/relied"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// reference is a Locker over a map, and the Disturber of that map. Doubles replace its funcs by
// broken ones. Each func is called with mu held, unless it says otherwise.
type reference struct {
	maxTTL time.Duration

	set    func(key, token string, ttl time.Duration) (granted bool, present entry, err error)
	move   func(key, from, token string, ttl time.Duration) (granted bool, present entry, err error)
	expire func(key, token string, ttl time.Duration) (ok bool, err error)
	remove func(key, token string) (ok bool, err error)

	started func(call time.Time) time.Time // when a lease of a call begins; runs without mu
	clean   func(ctx context.Context, req contract.Request)
	tell    func(key string, wakes []func()) // runs without mu

	mu       sync.Mutex
	entries  map[string]entry
	wakes    map[string]map[*func()]bool
	fences   map[string]uint64
	standing map[Op]backendtest.Fault
	queued   map[Op][]backendtest.Fault
}

type entry struct {
	token   string
	was     string    // the token that was evicted; empty: it was not
	by      string    // who evicted it
	expires time.Time // zero: never
	other   bool      // of another type
}

func newReference() *reference {
	r := &reference{
		maxTTL: maxTTL, entries: map[string]entry{}, wakes: map[string]map[*func()]bool{}, fences: map[string]uint64{},
		standing: map[Op]backendtest.Fault{}, queued: map[Op][]backendtest.Fault{},
	}
	r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
		e, found := r.live(key)
		switch {
		case found && e.other:
			return false, e, errOther
		case found && e.token != token:
			return false, e, nil
		}
		r.entries[key] = entry{token: token, expires: time.Now().Add(ttl)}
		return true, entry{}, nil
	}
	r.move = func(key, from, token string, ttl time.Duration) (bool, entry, error) {
		e, found := r.live(key)
		switch {
		case found && e.other:
			return false, e, errOther
		case !found:
			return false, entry{expires: time.Now()}, nil
		case e.token != from && e.token != token:
			return false, e, nil
		}
		r.entries[key] = entry{token: token, expires: time.Now().Add(ttl)}
		return true, entry{}, nil
	}
	r.expire = func(key, token string, ttl time.Duration) (bool, error) {
		e, found := r.live(key)
		switch {
		case found && e.other:
			return false, errOther
		case !found || e.token != token:
			return false, nil
		}
		if until := time.Now().Add(ttl); until.After(e.expires) {
			e.expires = until
			r.entries[key] = e
		}
		return true, nil
	}
	r.remove = func(key, token string) (bool, error) {
		e, found := r.live(key)
		switch {
		case found && e.other:
			return false, errOther
		case !found || e.token != token:
			return false, nil
		}
		delete(r.entries, key)
		return true, nil
	}
	r.started = func(call time.Time) time.Time { return call }
	r.clean = func(ctx context.Context, req contract.Request) {
		cleanup.New(false).Add(ctx, cleanup.Entry{TTL: req.TTL, Remove: func(ctx context.Context) error { return r.cleanOnce(ctx, req) }})
	}
	r.tell = func(_ string, wakes []func()) {
		for _, wake := range wakes {
			wake()
		}
	}
	return r
}

var errTooLate = errors.New("granted too late")

var errOther error = foreignType{locker.ErrForeignKey}

type foreignType struct{ error }

func (foreignType) Permanent() bool { return true }
func (f foreignType) Unwrap() error { return f.error }

func (r *reference) live(key string) (entry, bool) {
	e, found := r.entries[key]
	return e, found && (e.expires.IsZero() || time.Now().Before(e.expires))
}

func (r *reference) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if err := req.Validate(); err != nil {
		return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
	}
	return r.send(ctx, req)
}

func (r *reference) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	if err := req.ValidateTransfer(from); err != nil {
		return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
	}
	return r.sendMove(ctx, from, req)
}

// sendMove is Transfer without the validation.
func (r *reference) sendMove(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	return r.ask(ctx, req, r.clean, func() (bool, entry, error) { return r.move(req.Key, from, req.Token, req.TTL) })
}

// send is Acquire without the validation.
func (r *reference) send(ctx context.Context, req contract.Request) (contract.Lease, error) {
	return r.ask(ctx, req, r.clean, func() (bool, entry, error) { return r.set(req.Key, req.Token, req.TTL) })
}

func (r *reference) ask(
	ctx context.Context, req contract.Request, clean func(context.Context, contract.Request), set func() (bool, entry, error),
) (contract.Lease, error) {
	if relied.Of(ctx, req.TTL) > r.maxTTL {
		return contract.Lease{}, fault("acquire", req.Key, ttlError(req.TTL, r.maxTTL))
	}
	began := time.Now()
	var granted bool
	var present entry
	err := r.call(ctx, Acquire, func() (err error) {
		granted, present, err = set()
		return err
	})
	start := r.started(began)
	lease := contract.Lease{
		Key: req.Key, Token: req.Token, Owner: req.Owner, Granted: start, Expires: contract.Until(start, req.TTL),
	}
	switch {
	case err == nil && !granted:
		held := &locker.HeldError{Key: req.Key, Attempts: 1, Foreign: present.expires.IsZero()}
		if !held.Foreign {
			held.Left = time.Until(present.expires)
		}
		if present.was != "" {
			held.Holder, held.Err = present.by, &locker.EvictedError{By: present.by}
		}
		return contract.Lease{}, held
	case err == nil && lease.Ended():
		err = errTooLate
	case err == nil:
		return lease, nil
	}
	if !outcome.Permanent(err) {
		clean(ctx, req)
	}
	return contract.Lease{}, fault("acquire", req.Key, err)
}

func (r *reference) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if err := lease.Validate(); err != nil {
		return lease, &locker.Error{Op: "extend", Key: lease.Key, Err: err}
	}
	if err := contract.ValidateTTL(ttl); err != nil {
		return lease, fault("extend", lease.Key, err)
	}
	return r.sendExtend(ctx, lease, ttl)
}

func (r *reference) sendExtend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if relied.Of(ctx, ttl) > r.maxTTL {
		return lease, fault("extend", lease.Key, ttlError(ttl, r.maxTTL))
	}
	began := time.Now()
	var ok bool
	err := r.call(ctx, Extend, func() (err error) {
		ok, err = r.expire(lease.Key, lease.Token, ttl)
		return err
	})
	switch {
	case err != nil:
		return lease, fault("extend", lease.Key, err)
	case !ok:
		return lease, r.lost(lease)
	}
	if until := contract.Until(r.started(began), ttl); until.After(lease.Expires) {
		lease.Expires = until
	}
	return lease, nil
}

func (r *reference) Release(ctx context.Context, lease contract.Lease) error {
	if err := lease.Validate(); err != nil {
		return &locker.Error{Op: "release", Key: lease.Key, Err: err}
	}
	return r.sendRelease(ctx, lease)
}

func (r *reference) sendRelease(ctx context.Context, lease contract.Lease) error {
	ok, err := r.delete(ctx, lease.Key, lease.Token)
	switch {
	case err != nil:
		return fault("release", lease.Key, err)
	case !ok:
		return r.lost(lease)
	}
	return nil
}

func (r *reference) lost(lease contract.Lease) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, found := r.live(lease.Key); found && e.was == lease.Token {
		return &locker.LostError{Key: lease.Key, Reason: locker.LostEvicted, Err: &locker.EvictedError{By: e.by}}
	}
	return locker.Lost(lease)
}

func (r *reference) cleanOnce(ctx context.Context, req contract.Request) error {
	_, err := r.delete(ctx, req.Key, req.Token)
	return err
}

func (r *reference) delete(ctx context.Context, key, token string) (ok bool, err error) {
	err = r.call(ctx, Release, func() (err error) {
		ok, err = r.remove(key, token)
		return err
	})
	if ok {
		r.wakeAll(key)
	}
	return ok, err
}

func (r *reference) wakeAll(key string) {
	r.mu.Lock()
	var wakes []func()
	for wake := range r.wakes[key] {
		wakes = append(wakes, *wake)
	}
	r.mu.Unlock()
	r.tell(key, wakes)
}

func (r *reference) Watch(ctx context.Context, key, waiter string, wake func()) error {
	if err := contract.ValidateKey(key); err != nil {
		return fault("watch", key, err)
	}
	return r.sendWatch(ctx, key, waiter, wake)
}

func (r *reference) sendWatch(ctx context.Context, key, _ string, wake func()) error {
	watching := ctx
	err := r.call(ctx, Watch, func() error {
		r.addWake(key, &wake)
		context.AfterFunc(watching, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.wakes[key], &wake)
		})
		return nil
	})
	if err != nil {
		return fault("watch", key, err)
	}
	return nil
}

func (r *reference) addWake(key string, wake *func()) {
	if r.wakes[key] == nil {
		r.wakes[key] = map[*func()]bool{}
	}
	r.wakes[key][wake] = true
}

// call makes one call to the map, through the fault that is due.
func (r *reference) call(ctx context.Context, op Op, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	execute := func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return do()
	}
	if fault := r.next(op); fault != nil {
		return fault(ctx, execute)
	}
	return execute(ctx)
}

func (r *reference) next(op Op) backendtest.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.queued[op]; len(q) > 0 {
		r.queued[op] = q[1:]
		return q[0]
	}
	if f, set := r.standing[op]; set {
		return f
	}
	return r.standing[All]
}

func (r *reference) Fault(op Op, f backendtest.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if op == All {
		clear(r.standing)
	}
	r.standing[op] = f
}

func (r *reference) FaultOnce(op Op, f ...backendtest.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queued[op] = append(r.queued[op], f...)
}

func (r *reference) Holds(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, found := r.live(key)
	return found
}

func (r *reference) put(key string, e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[key] = e
}

// Delete of the reference wakes no watcher. The contract allows both.
func (r *reference) Delete(key string)     { r.Expire(key) }
func (r *reference) SetForeign(key string) { r.put(key, entry{token: "foreign"}) }
func (r *reference) SetOther(key string)   { r.put(key, entry{other: true}) }

func (r *reference) Evict(key, by string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, found := r.live(key); found {
		r.entries[key] = entry{token: "evicted", was: e.token, by: by, expires: e.expires}
	}
}

func (r *reference) Expire(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, key)
}

func fault(op, key string, err error) error { return &locker.Error{Op: op, Key: key, Err: err} }

func ttlError(ttl, limit time.Duration) error {
	return permanentError{fmt.Errorf("ttl %v is over the limit of %v", ttl, limit)}
}

// permanentError is an error that repeating cannot cure.
type permanentError struct{ error }

func (permanentError) Permanent() bool { return true }
func (e permanentError) Unwrap() error { return e.error }
