package sqlstore

import (
	"context"
	"sync/atomic"
	"time"
)

// sweeper has the database remove the rows that nobody needs any more, now and then. Nobody waits for it.
type sweeper struct{ last atomic.Int64 }

const sweepInterval = 10 * time.Minute

// now starts a sweep in the background, unless this store has started one less than 10 minutes ago.
func (s *sweeper) now(sweep func(context.Context)) {
	now := time.Now().UnixNano()
	last := s.last.Load()
	if last != 0 && now-last < int64(sweepInterval) || !s.last.CompareAndSwap(last, now) {
		return
	}
	if last == 0 { // a program that has just started has something else to do
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), behindLimit)
		defer cancel()
		sweep(ctx)
	}()
}

// Sweep removes up to 100 rows of keys that nobody has used for an hour, and whose numbers are no longer
// needed. A store that releases locks does it by itself every ten minutes.
func (s *rows) Sweep(ctx context.Context) error {
	if _, err := s.prepare(ctx, ""); err != nil {
		return err
	}
	keys, err := s.old(ctx)
	for _, key := range keys {
		if err == nil {
			_, err = s.db.ExecContext(ctx, s.dialect.remove, key)
		}
	}
	return s.explain(ctx, err)
}

func (s *rows) old(ctx context.Context) (keys [][]byte, err error) {
	found, err := s.db.QueryContext(ctx, s.dialect.old)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		var key []byte
		if err := found.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, found.Err()
}

// sweep is Sweep in the background: if it fails, the next one comes.
func (s *rows) sweep(ctx context.Context) { _ = s.Sweep(ctx) }
