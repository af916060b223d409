package redisstore

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// pinned is one connection, for the commands of one call.
type pinned struct {
	driver.Conn
	wait  []any // goes along with what writes; nil: nothing
	acked int64 // how many replicas had the last write
	wrong error // why that is not known
}

func (p *pinned) once(ctx context.Context, args ...any) (any, error) {
	replies, err := p.write(ctx, args)
	if err != nil {
		return nil, err
	}
	return replies[0], driver.NameKeys(asError(replies[0]), args)
}

// do is once: nothing is sent again on one connection.
func (p *pinned) do(ctx context.Context, args ...any) (any, error) { return p.once(ctx, args...) }

func (p *pinned) on(_ context.Context, _ string, fn func(*pinned) error) error { return fn(p) }

// read sends commands that change nothing.
func (p *pinned) read(ctx context.Context, commands ...[]any) ([]any, error) {
	replies, err := p.Pipeline(ctx, commands...)
	if err == nil && len(replies) != len(commands) {
		err = unexpected(replies)
	}
	return replies, err
}

// write sends commands, and counts in the same pipeline the replicas that have them.
func (p *pinned) write(ctx context.Context, commands ...[]any) ([]any, error) {
	if p.wait == nil {
		return p.read(ctx, commands...)
	}
	replies, err := p.read(ctx, append(commands, p.wait)...)
	if err != nil {
		return nil, err
	}
	last := len(commands)
	acked, ok := replies[last].(int64)
	p.acked, p.wrong = acked, asError(replies[last])
	if !ok && p.wrong == nil {
		p.wrong = unexpected(replies[last])
	}
	return replies[:last], nil
}

// asError is an error reply as an error: a *ReplyError, or what a library has in its place inside a
// list.
func asError(reply any) error {
	err, _ := reply.(error)
	if own := (*driver.ReplyError)(nil); err == nil || errors.As(err, &own) {
		return err
	}
	return &driver.ReplyError{Text: err.Error()}
}
