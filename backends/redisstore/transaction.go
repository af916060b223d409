package redisstore

import (
	"context"
	"errors"
)

// maxTurns is how often a transaction is tried. Each turn that fails is someone else's that has
// succeeded.
const maxTurns = 100

// errChanging is an unknown outcome like any other.
var errChanging = errors.New("the key was changed by others all the time")

// transact reads key and executes what decide makes of the replies, in one transaction, again while
// others change key in between. It gives the replies to what decide returned; nil if that was
// nothing.
//
// A key that expires in between has changed too. Redis before 6.0.9 executes nevertheless, on a key
// that is absent.
func (s *Store) transact(
	ctx context.Context, p *pinned, key string, decide func(seen []any) [][]any, reads ...[]any,
) ([]any, error) {
	for range maxTurns {
		seen, err := s.watch(ctx, p, key, reads)
		if err != nil {
			return nil, err
		}
		commands := decide(seen)
		if commands == nil {
			return nil, nil
		}
		replies, err := s.execute(ctx, p.write, commands)
		if replies != nil || err != nil {
			return replies, err
		}
	}
	return nil, errChanging
}

// watch reads, and has EXEC do nothing if key changes from before that.
func (s *Store) watch(ctx context.Context, p *pinned, key string, reads [][]any) ([]any, error) {
	commands := append([][]any{{"WATCH", key}}, reads...)
	// Without the permission for MULTI, what stands between it and EXEC would be carried out all
	// the same. So once they are tried with nothing between them.
	tried := s.multi.Load()
	if !tried {
		commands = append([][]any{{"MULTI"}, {"EXEC"}}, commands...)
	}
	replies, err := p.read(ctx, commands...)
	if err != nil {
		return nil, err
	}
	for _, reply := range replies {
		if err := asError(reply); err != nil {
			return nil, err
		}
	}
	if !tried {
		s.multi.Store(true)
	}
	return replies[len(replies)-len(reads):], nil
}

// execute gives the replies to commands in a transaction; nil if what is watched has changed.
func (s *Store) execute(
	ctx context.Context, send func(context.Context, ...[]any) ([]any, error), commands [][]any,
) ([]any, error) {
	all := append(append([][]any{{"MULTI"}}, commands...), []any{"EXEC"})
	queued, err := send(ctx, all...)
	if err != nil {
		return nil, err
	}
	for i, reply := range queued {
		if err := asError(reply); err != nil {
			switch i {
			case 0:
				s.multi.Store(false)
			case len(commands) + 1: // before Redis 6.2 the transaction is still open, and would swallow what comes next
				_, _ = send(ctx, []any{"DISCARD"})
			}
			return nil, err // the first: EXEC only says that there was one
		}
	}
	last := queued[len(commands)+1]
	replies, _ := last.([]any)
	if last != nil && len(replies) != len(commands) {
		return nil, unexpected(last)
	}
	for _, reply := range replies {
		if err := asError(reply); err != nil {
			return nil, err
		}
	}
	return replies, nil
}
