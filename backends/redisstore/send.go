package redisstore

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
)

// call is how a command is sent: Executor.Do or Executor.Once.
type call func(ctx context.Context, args ...any) (any, error)

// run sends a script. Args are the keys and then the arguments.
func run(ctx context.Context, send call, s scripts.Script, args ...any) (any, error) {
	reply, err := send(ctx, s.Call(args)...)
	if unknown(err) {
		return send(ctx, s.Full(args)...)
	}
	return reply, err
}

// unknown tells that the server does not know the digest of the script.
func unknown(err error) bool {
	reply, ok := errors.AsType[*driver.ReplyError](err)
	return ok && reply.Code() == "NOSCRIPT"
}

// naming is send whose NOPERM names the keys of the command.
func naming(send call) call {
	return func(ctx context.Context, args ...any) (any, error) {
		reply, err := send(ctx, args...)
		if err != nil {
			err = driver.NameKeys(err, args)
		}
		return reply, err
	}
}

// guard keeps grants from servers that may have forgotten locks: a driver.Quarantine, or none.
type guard interface {
	Refused(sent bool) error // why no grant is sent now, or counts if it was sent
	Answered(err error)      // notes how a call has ended
}

// unguarded is for WithoutQuarantine, and for clients whose connections are not seen.
type unguarded struct{}

func (unguarded) Refused(bool) error { return nil }
func (unguarded) Answered(error)     {}

// counts returns the answer to a grant, unless quarantine has begun since the grant was sent.
func (s *Store) counts(r backends.Result, err error) (backends.Result, error) {
	if r.OK {
		if refused := s.guard.Refused(true); refused != nil {
			return backends.Result{}, refused
		}
	}
	return r, err
}

// guarded sends a command again if its connection was dropped because it showed another server: nothing
// was sent. It does not send a grant again that the server may not give.
func guarded(q *driver.Quarantine, send call) call {
	return func(ctx context.Context, args ...any) (any, error) {
		reply, err := send(ctx, args...)
		if isDropped(err) && (!driver.Grants(args) || q.Refused(false) == nil) {
			reply, err = send(ctx, args...)
		}
		q.Answered(err)
		if err == nil && !q.Quiet() && driver.Grants(args) {
			if refused := q.Refused(true); refused != nil {
				return nil, refused
			}
		}
		return reply, err
	}
}

// isDropped tells that a connection was dropped before anything was sent on it.
func isDropped(err error) bool {
	if err == nil {
		return false
	}
	refused, ok := errors.AsType[*driver.QuarantineError](err)
	return ok && refused.Unsent()
}
