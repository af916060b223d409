package instance

import (
	"context"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// mover is a [Place] whose tokens can be replaced.
type mover interface {
	// Move stores the token of req in the place of from, as Transfer of a store does.
	Move(ctx context.Context, from string, req contract.Request) (backends.Result, error)
}

// Transfer makes one attempt to store the token of req in the place of from. What is left after it
// is cleaned up as after Acquire. The cleanup leaves from alone: if the request never arrived, the caller
// may try again, with another token. A request that arrives after that finds no from.
func (i *instance) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	if err := req.ValidateTransfer(from); err != nil {
		return contract.Lease{}, Fault("acquire", req.Key, err)
	}
	return i.attempt(ctx, &req, from)
}

// Move of a lock without a queue.
func (u unqueued) Move(ctx context.Context, from string, req contract.Request) (backends.Result, error) {
	return move(ctx, u.Store, from, req, u.numbered)
}

// Move of a lock with a queue.
func (q queued) Move(ctx context.Context, from string, req contract.Request) (backends.Result, error) {
	return move(ctx, q.QueuedStore, from, req, false)
}

// Move of a lock with numbers draws a new one.
func (n numbered) Move(ctx context.Context, from string, req contract.Request) (backends.Result, error) {
	return move(ctx, n.store, from, req, true)
}

func move(ctx context.Context, store any, from string, req contract.Request, numbered bool) (backends.Result, error) {
	if s, ok := store.(backends.TransferStore); ok {
		return s.Transfer(ctx, req.Key, from, req.Token, req.TTL, numbered)
	}
	return backends.Result{}, contract.ErrNoTransfer
}

// Move of one of several holds.
func (s shared) Move(ctx context.Context, from string, req contract.Request) (backends.Result, error) {
	store, ok := s.SharedStore.(backends.SharedTransferStore)
	if !ok {
		return backends.Result{}, contract.ErrNoTransfer
	}
	a := s.admission(req)
	res, err := store.TransferHold(ctx, req.Key, from, req.Token, req.TTL, a.Group, a.Numbered)
	if res.OK {
		res.Room = a.Room(res.Holds)
	}
	return res, err
}
