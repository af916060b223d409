package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// ReplicasError says that too few replicas have got a grant or an extension in time, see
// [WithReplicas]. It does not say whether another holder has the lock. A grant has been deleted
// again if the server was still to be reached.
type ReplicasError struct{ Acknowledged, Needed int }

func (e *ReplicasError) Error() string {
	return fmt.Sprintf("%d of %d replicas acknowledged in time", e.Acknowledged, e.Needed)
}

// ErrorType is "replicas".
func (e *ReplicasError) ErrorType() string { return "replicas" }

// undoLimit is for taking a grant back while the caller waits.
const undoLimit = time.Second

// acknowledged makes a call that grants or extends on one connection, with WAIT behind what it
// writes. It looks at the answer of the last one: that is what granted, and it is about all that
// the server had written by then, so it covers what an earlier call with the same token wrote.
func (s *Store) acknowledged(
	ctx context.Context, key string, undo func(context.Context, link) error, do func(link) (backends.Result, error),
) (backends.Result, error) {
	var r backends.Result
	err := s.exec.Pinned(ctx, key, func(c driver.Conn) (err error) {
		p := &pinned{Conn: c, wait: s.config.wait}
		if r, err = do(p); err != nil || !r.OK {
			return err
		}
		switch {
		case p.wrong != nil:
			err = unknownOutcome{fmt.Errorf("wait for replicas: %w", p.wrong)}
		case p.acked < int64(s.config.replicas):
			err = &ReplicasError{Acknowledged: int(p.acked), Needed: s.config.replicas}
		default:
			return nil
		}
		r = backends.Result{}
		if undo == nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit) // the caller may have no time left
		defer cancel()
		if failed := undo(ctx, &pinned{Conn: c}); failed != nil {
			if p.wrong != nil {
				err = errors.New(err.Error()) // no refusal any more: there is something to clean up
			}
			return unknownOutcome{fmt.Errorf("%w; taking the grant back: %w", err, failed)}
		}
		return err
	})
	s.guard.Answered(err)
	if undo == nil { // an extension
		return r, err
	}
	return s.counts(r, err)
}

// replicated waits for replicas behind each grant and each extension of the operations below it.
type replicated struct {
	operations
	store *Store
}

func (r replicated) grant(ctx context.Context, _ link, key, token string, ms int64) (backends.Result, error) {
	return r.store.acknowledged(ctx, key, r.deleting(key, token), func(l link) (backends.Result, error) {
		return r.operations.grant(ctx, l, key, token, ms)
	})
}

func (r replicated) number(ctx context.Context, _ link, key, token string, ms int64, how any) (backends.Result, error) {
	return r.store.acknowledged(ctx, key, r.deleting(key, token), func(l link) (backends.Result, error) {
		return r.operations.number(ctx, l, key, token, ms, how)
	})
}

func (r replicated) enter(ctx context.Context, _ link, key, token string, ms int64, a admission) (backends.Result, error) {
	return r.store.acknowledged(ctx, key, r.leaving(key, token), func(l link) (backends.Result, error) {
		return r.operations.enter(ctx, l, key, token, ms, a)
	})
}

func (r replicated) extend(ctx context.Context, _ link, key, token string, ms int64) (bool, error) {
	return r.extending(ctx, key, func(l link) (bool, error) { return r.operations.extend(ctx, l, key, token, ms) })
}

func (r replicated) raise(ctx context.Context, _ link, key, token string, to uint64) (bool, error) {
	return r.extending(ctx, key, func(l link) (bool, error) { return r.operations.raise(ctx, l, key, token, to) })
}

func (r replicated) renew(ctx context.Context, _ link, key, token string, ms int64) (bool, error) {
	return r.extending(ctx, key, func(l link) (bool, error) { return r.operations.renew(ctx, l, key, token, ms) })
}

func (r replicated) transfer(ctx context.Context, _ link, t transfer) (backends.Result, error) {
	undo := r.deleting(t.key, t.token)
	if t.hold {
		undo = r.leaving(t.key, t.token)
	}
	return r.store.acknowledged(ctx, t.key, undo, func(l link) (backends.Result, error) { return r.operations.transfer(ctx, l, t) })
}

// extending makes a call that is not undone.
func (r replicated) extending(ctx context.Context, key string, do func(link) (bool, error)) (bool, error) {
	answer, err := r.store.acknowledged(ctx, key, nil, func(l link) (answer backends.Result, err error) {
		answer.OK, err = do(l)
		return answer, err
	})
	return answer.OK, err
}

// deleting is what undoes a grant of token.
func (r replicated) deleting(key, token string) func(context.Context, link) error {
	return func(ctx context.Context, l link) error {
		_, err := r.release(ctx, l, key, token)
		return err
	}
}

// leaving is what undoes a hold of token.
func (r replicated) leaving(key, token string) func(context.Context, link) error {
	return func(ctx context.Context, l link) error {
		_, err := r.store.leave(ctx, l, key, token)
		return err
	}
}

// unknownOutcome is an error of which a part says that nothing was done. The whole does not say so.
type unknownOutcome struct{ error }

func (u unknownOutcome) Unwrap() error { return u.error }
func (u unknownOutcome) Unsent() bool  { return false }
