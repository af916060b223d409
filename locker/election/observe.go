package election

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Leadership is who leads an election, as a store says.
type Leadership struct {
	Led    bool          // somebody leads; if not, the rest is zero
	Holder string        // the label of the leader, see [locker.WithHolder]; empty: it has none
	Number uint64        // of the term, see [Term]; 0: the strategy does not number its grants
	Left   time.Duration // until the leadership ends, unless the leader renews it
}

// Leader asks store who leads the election on key, with one read. While the key is free, reserved
// for the next candidate, or closed because its leader was evicted, nobody leads.
//
// The answer is for people and dashboards, and for a process that wants to ask the leader something.
// It may be over when it arrives, so never decide by it who may work: see [Election.IsLeader]. If
// something else than a lease is under key, the error matches [locker.ErrForeignKey].
//
// store is the one that the candidates use; it may have another Client. An election by a quorum has
// no such store: ask its nodes one by one.
func Leader(ctx context.Context, store backends.Inspector, key string) (Leadership, error) {
	if err := observable(ctx, store, key); err != nil {
		return Leadership{}, err
	}
	s, err := store.Inspect(ctx, key)
	switch {
	case err == nil && s.Foreign:
		err = locker.ErrForeignKey
	case errors.Is(err, backends.ErrWrongType):
		err = fmt.Errorf("%w: %w", locker.ErrForeignKey, err)
	}
	if err != nil {
		return Leadership{}, &locker.Error{Op: "observe", Key: key, Err: err}
	}
	if s.Holding == 0 || s.Holds[0].Evicted {
		return Leadership{}, nil
	}
	return Leadership{Led: true, Holder: s.Holds[0].Holder, Number: s.Fence, Left: s.Holds[0].Left}, nil
}

// Observe tells changed who leads the election on key: once at the beginning, and then each time that
// another leader leads, or nobody. It asks the store once per interval, and costs the candidates
// nothing. It does not see a leader that leads for less than an interval. It tells leaders apart by
// their labels and the numbers of their terms. So it does not see that a leader follows another at
// once if they have neither.
//
// When the store fails, or does not answer for 10 s, Observe calls changed with the error, once, and
// goes on. The Leadership is zero then, since nobody knows. When the store answers again, Observe
// calls changed again. It does not call changed at the same time twice.
//
// Observe ends with a permanent error of the store, or with the error of ctx. It does not wait for a
// client library that does not follow its ctx: it leaves that call and makes another. While eight
// calls that it has left do not return, it makes no other.
func Observe(
	ctx context.Context, store backends.Inspector, key string, interval time.Duration, changed func(l Leadership, err error),
) error {
	if err := observable(ctx, store, key); err != nil {
		return err
	}
	switch {
	case interval <= 0:
		return &locker.Error{Op: "observe", Key: key, Err: backends.Invalidf("interval %v is not positive", interval)}
	case changed == nil:
		return &locker.Error{Op: "observe", Key: key, Err: backends.Invalid("changed is nil")}
	}
	from := reads{store: store, key: key, underWay: make(chan struct{}, maxHanging)}
	var last Leadership
	var failing error
	for told := false; ; told = true {
		l, err := from.next(ctx)
		switch {
		case ctx.Err() != nil:
			return &locker.Error{Op: "observe", Key: key, Err: ctx.Err()}
		case err != nil && backends.Permanent(err):
			return err
		case err != nil && failing == nil, err == nil && (!told || failing != nil || !l.sameAs(last)):
			changed(l, err)
		}
		last, failing = l, err
		sleep(ctx, interval)
	}
}

// reads are those of one Observe. A client library may not follow its ctx, and its connection may
// hang. So Observe leaves a read that is late, and drops its answer: the leader that it names may be
// gone.
type reads struct {
	store    backends.Inspector
	key      string
	underWay chan struct{} // has an element for each read that has not returned
}

const (
	patience = 10 * time.Second
	// maxHanging is how many reads of one Observe may be under way although it has left them.
	maxHanging = 8
)

// next makes a read and waits for its answer, no longer than the patience and ctx last.
func (r *reads) next(ctx context.Context) (Leadership, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type answer struct {
		Leadership
		err error
	}
	answers := make(chan answer, 1)
	select {
	case r.underWay <- struct{}{}:
		go func() {
			defer func() { <-r.underWay }()
			l, err := Leader(ctx, r.store, r.key)
			answers <- answer{l, err}
		}()
	case <-ctx.Done():
	}
	select {
	case a := <-answers:
		return a.Leadership, a.err
	case <-ctx.Done():
		return Leadership{}, &locker.Error{Op: "observe", Key: r.key, Err: ctx.Err()}
	}
}

// sameAs tells whether both are the same term, as far as labels and numbers tell.
func (l Leadership) sameAs(other Leadership) bool {
	l.Left, other.Left = 0, 0
	return l == other
}

func observable(ctx context.Context, store backends.Inspector, key string) error {
	err := contract.ValidateKey(key)
	switch {
	case err != nil:
	case ctx == nil:
		err = backends.Invalid("ctx is nil; use context.Background()")
	case isNil(store):
		err = backends.Invalid("store is nil")
	default:
		return nil
	}
	return &locker.Error{Op: "observe", Key: key, Err: err}
}

// isNil reports whether store is nil, or a nil pointer in the interface.
func isNil(store backends.Inspector) bool {
	value := reflect.ValueOf(store)
	return store == nil || value.Kind() == reflect.Pointer && value.IsNil()
}
