package instance

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
)

// mover is a [Place] whose tokens can be replaced.
type mover interface {
	// Move stores the token of req in the place of req.From, as Transfer of a store does.
	Move(ctx context.Context, req locker.Request) (backends.Result, error)
}

func transfer(ctx context.Context, place Place, req locker.Request) (backends.Result, error) {
	if m, ok := place.(mover); ok {
		return m.Move(ctx, req)
	}
	return backends.Result{}, errors.Unwrap(req.Validate()) // which refuses it
}

// Move of a lock without a queue.
func (u unqueued) Move(ctx context.Context, req locker.Request) (backends.Result, error) {
	return move(ctx, u.Store, req, u.numbered)
}

// Move of a lock with a queue.
func (q queued) Move(ctx context.Context, req locker.Request) (backends.Result, error) {
	return move(ctx, q.QueuedStore, req, false)
}

// Move of a lock with numbers draws a new one.
func (n numbered) Move(ctx context.Context, req locker.Request) (backends.Result, error) {
	return move(ctx, n.store, req, true)
}

func move(ctx context.Context, store any, req locker.Request, numbered bool) (backends.Result, error) {
	if s, ok := store.(backends.TransferStore); ok {
		return s.Transfer(ctx, req.Key, req.From, req.Token, req.TTL, numbered)
	}
	return backends.Result{}, errors.Unwrap(req.Validate()) // which refuses it
}

// Move of one of several holds.
func (s shared) Move(ctx context.Context, req locker.Request) (backends.Result, error) {
	store, ok := s.SharedStore.(backends.SharedTransferStore)
	if !ok {
		return backends.Result{}, errors.Unwrap(req.Validate()) // which refuses it
	}
	a := s.admission(req)
	res, err := store.TransferHold(ctx, req.Key, req.From, req.Token, req.TTL, a.Numbered)
	if res.OK {
		res.Room = a.Room(res.Holds)
	}
	return res, err
}
