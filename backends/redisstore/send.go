package redisstore

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
)

// link is how the commands of a call are sent: a line uses any connection, a pinned uses one.
type link interface {
	// once sends a command once; do may send it again.
	once(ctx context.Context, args ...any) (any, error)
	do(ctx context.Context, args ...any) (any, error)
	// on runs fn with a connection of its own to the server that has key.
	on(ctx context.Context, key string, fn func(*pinned) error) error
}

// call is how a command is sent: Executor.Do or Executor.Once, or the same in shared round trips.
type call = func(ctx context.Context, args ...any) (any, error)

// line sends commands on any connection.
type line struct {
	exec           driver.Executor
	sendOnce, send call
	guard          guard
}

func (l *line) once(ctx context.Context, args ...any) (any, error) {
	reply, err := l.sendOnce(ctx, args...)
	return l.answer(ctx, l.sendOnce, args, reply, err)
}

func (l *line) do(ctx context.Context, args ...any) (any, error) {
	reply, err := l.send(ctx, args...)
	return l.answer(ctx, l.send, args, reply, err)
}

func (l *line) on(ctx context.Context, key string, fn func(*pinned) error) error {
	return l.exec.Pinned(ctx, key, func(c driver.Conn) error { return fn(&pinned{Conn: c}) })
}

// answer is what the caller gets for reply and err. A NOPERM names the keys of the command.
func (l *line) answer(ctx context.Context, send call, args []any, reply any, err error) (any, error) {
	if reply, err = l.guard.answer(ctx, send, args, reply, err); err != nil {
		err = driver.NameKeys(err, args)
	}
	return reply, err
}

// once sends a script once. Args are the keys and then the arguments.
func once(ctx context.Context, l link, s scripts.Script, args ...any) (any, error) {
	command := s.Call(args)
	reply, err := l.once(ctx, command...)
	if unknown(err) {
		return l.once(ctx, s.Full(command)...)
	}
	return reply, err
}

// do sends a script that may be sent again.
func do(ctx context.Context, l link, s scripts.Script, args ...any) (any, error) {
	command := s.Call(args)
	reply, err := l.do(ctx, command...)
	if unknown(err) {
		return l.do(ctx, s.Full(command)...)
	}
	return reply, err
}

// unknown tells that the server does not know the digest of the script.
func unknown(err error) bool {
	reply, ok := errors.AsType[*driver.ReplyError](err)
	return ok && reply.Code() == "NOSCRIPT"
}

// guard keeps grants from servers that may have forgotten locks.
type guard interface {
	mayGrant(ctx context.Context) error // why no grant is sent now
	Refused(sent bool) error            // why no grant is sent now, or counts if it was sent
	Answered(err error)                 // notes how a call has ended

	// answer is what becomes of reply and err, which came of send.
	answer(ctx context.Context, send call, args []any, reply any, err error) (any, error)
}

// unguarded is for WithoutQuarantine, and for clients whose connections are not seen.
type unguarded struct{}

func (unguarded) mayGrant(context.Context) error { return nil }
func (unguarded) Refused(bool) error             { return nil }
func (unguarded) Answered(error)                 {}

func (unguarded) answer(_ context.Context, _ call, _ []any, reply any, err error) (any, error) {
	return reply, err
}

// guarded asks the quarantine of the client.
type guarded struct {
	*driver.Quarantine
	cut *shortCut // of WithServerThatForgetsNothing; nil: without
}

func (g guarded) mayGrant(ctx context.Context) error {
	if g.cut == nil {
		return g.Refused(false)
	}
	if g.Unread() {
		g.cut.read(ctx)
	}
	err := g.Refused(false)
	if err != nil {
		err = g.cut.take(ctx, err)
	}
	return err
}

// answer sends a command again if its connection was dropped because it showed another server:
// nothing was sent. It does not send a grant again that the server may not give.
func (g guarded) answer(ctx context.Context, send call, args []any, reply any, err error) (any, error) {
	if isDropped(err) {
		var refused error
		if driver.Grants(args) {
			refused = g.mayGrant(ctx)
		}
		if err = refused; err == nil {
			reply, err = send(ctx, args...)
		}
	}
	g.Answered(err)
	if err == nil && !g.Quiet() && driver.Grants(args) {
		if refused := g.Refused(true); refused != nil {
			return nil, refused
		}
	}
	return reply, err
}

// isDropped tells that a connection was dropped before anything was sent on it.
func isDropped(err error) bool {
	if err == nil {
		return false
	}
	refused, ok := errors.AsType[*driver.QuarantineError](err)
	return ok && refused.Unsent()
}

// look sends a command that shows something, past quarantine. As in guarded, it is sent again if its
// connection was dropped because it showed another server, or a young one.
func (s *Store) look(ctx context.Context, args ...any) (any, error) {
	reply, err := s.exec.Do(ctx, args...)
	if isDropped(err) {
		return s.exec.Do(ctx, args...)
	}
	return reply, err
}

// counts returns the answer to a grant, unless quarantine has begun since the grant was sent.
func (s *Store) counts(r backends.Result, err error) (backends.Result, error) {
	if r.OK {
		if refused := s.guard.Refused(true); refused != nil {
			return backends.Result{}, refused
		}
	}
	return r, err
}
