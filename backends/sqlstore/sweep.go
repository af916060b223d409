package sqlstore

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/internal/bounded"
)

// Sweeping is charged to calls that add a row: each looks at a few rows whose time has come. So programs tidy
// up that live for a second, and those that crash and never release anything. Each row has the time at which
// it is looked at again. That changes seldom, so its index costs the other calls nothing.

const (
	sweptByInsert = 4
	sweptAtOnce   = 100
	unused        = time.Hour // so long a row stays that nobody needs
	tidyLimit     = time.Second
)

// look is when a sweep looks at a row that is new.
func (r *record) look() int64 {
	return min(max(r.expires, r.kept), forever-unused.Microseconds()) + unused.Microseconds()
}

// tidy is a sweep for the sake of a row that a call has added. If it fails, the next one comes. It waits for no
// connection, as far as can be seen: there is one in the pool, or the one of the call itself was kept, and no
// lock is held that may need it.
func (s *rows) tidy(ctx context.Context) {
	if !s.own.room() && (s.own.holding() || !s.own.any()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tidyLimit)
	defer cancel()
	_, _ = s.sweep(ctx, sweptByInsert)
}

// Sweep removes all keys that nobody has used for an hour, and whose numbers are no longer needed. Programs
// need not call it: each call that adds a key looks at a few of the others.
func (s *rows) Sweep(ctx context.Context) error {
	if _, err := s.Inspect(ctx, ""); err != nil { // it refuses a session in which nothing would be removed
		return err
	}
	defer s.own.settle()
	for {
		if n, err := s.sweep(ctx, sweptAtOnce); n < sweptAtOnce || err != nil {
			return err
		}
	}
}

// Sweep is [MySQL.Sweep] for PostgreSQL. It removes waiters that have died, too.
func (s *PostgreSQL) Sweep(ctx context.Context) error {
	if err := s.config.ready(ctx); err != nil {
		return err
	}
	for {
		if n, err := s.sweep(ctx); n < sweptAtOnce || err != nil {
			return err
		}
	}
}

func (s *PostgreSQL) sweep(ctx context.Context) (looked int64, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	err = s.exec.Row(ctx, "SELECT lockstep.sweep_some($1)", []any{int64(sweptAtOnce)}, &looked)
	return looked, s.explain(ctx, err)
}

// sweep looks at no more than many rows, and returns at how many. A row that is still needed is looked at
// again when it may have ended.
func (s *rows) sweep(ctx context.Context, many int) (looked int, err error) {
	keys, err := s.old(ctx, many)
	for _, key := range keys {
		if err == nil {
			err = s.lookAt(ctx, key)
		}
	}
	return len(keys), err
}

func (s *rows) lookAt(ctx context.Context, key []byte) (err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	gone, err := s.exec(ctx, grants, key, s.dialect.remove, key)
	if err == nil && !gone {
		_, err = s.exec(ctx, grants, key, s.dialect.later, key)
	}
	return err
}

func (s *rows) old(ctx context.Context, many int) (keys [][]byte, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	err = s.on(ctx, grants, func(ctx context.Context, c *databaseConn, _ bool) error {
		found, err := c.QueryContext(ctx, s.in.names(s.dialect.old), many)
		if err != nil {
			return err
		}
		defer func() { _ = found.Close() }()
		for found.Next() {
			var key []byte
			if err := found.Scan(&key); err != nil {
				return err
			}
			keys = append(keys, key)
		}
		return found.Err()
	})
	return keys, s.explain(ctx, err)
}
