package sqlstore

import (
	"context"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/turns"
)

// SetNXQueued implements [backends.QueuedStore]. A store whose waiters poll has no queue, so an order is an
// error there.
func (s *PostgreSQL) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return s.take(ctx, key, value, ttl, t, unnumbered)
}

// SetNXNumbered implements [backends.NumberedStore].
func (s *PostgreSQL) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return s.take(ctx, key, value, ttl, t, byClock)
}

// position is the waiter that may get a position in the queue in this attempt, empty for none. asked is
// called with the answer to the attempt.
func (s *PostgreSQL) position(key string, t backends.Turn) (waiter string, asked func(granted bool), err error) {
	nobody := func(bool) {}
	switch {
	case strings.Contains(t.Waiter, "@"):
		return "", nil, backends.Invalidf("waiter %q has an @", t.Waiter)
	case s.wakes == nil && t.InOrder:
		return "", nil, backends.Invalid("waiters that poll can't stand in order: use the store of package backends/pgxstore with a listener")
	case s.wakes == nil || t.Waiter == "":
		return "", nobody, nil
	}
	mine := s.turns.Ask(key, t.Waiter, t.Waiter)
	if mine == nil {
		return "", nobody, nil
	}
	return inASCII(t.Waiter), func(granted bool) {
		if !s.turns.Asked(mine, granted) {
			go s.quit(key, t.Waiter) // what was sent before may have been there first
		}
	}, nil
}

// inASCII is how a waiter is stored: the database may have texts in another encoding than UTF-8, and not
// know each letter of a label. No label begins as the mark does: see [backends.ValidHolder].
func inASCII(waiter string) string {
	if !strings.HasPrefix(waiter, inHex) && !strings.ContainsFunc(waiter, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return waiter
	}
	i := strings.LastIndex(waiter, " ") // before the secret
	if i < 0 {
		i = len(waiter)
	}
	return inHex + hex.EncodeToString([]byte(waiter[:i])) + waiter[i:]
}

// fromASCII is the waiter, or its label, that was stored so.
func fromASCII(text string) string {
	digits, is := strings.CutPrefix(text, inHex)
	digits, secret, with := strings.Cut(digits, " ")
	label, err := hex.DecodeString(digits)
	switch {
	case !is || err != nil:
		return text
	case with:
		return string(label) + " " + secret
	}
	return string(label)
}

const inHex = "lockstep:hex:"

// WatchQueued implements [backends.QueuedStore].
func (s *PostgreSQL) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	switch {
	case s.wakes == nil:
		return errPolling
	case waiter == "" || strings.Contains(waiter, "@"):
		return backends.Invalidf("waiter %q is empty or has an @", waiter)
	}
	if _, err := s.prepare(ctx, key, inASCII(waiter)); err != nil {
		return err
	}
	leave, err := s.wakes.join(ctx)
	if err != nil {
		return err
	}
	t := &turns.Turn{Key: key, Waiter: waiter, Wake: wake}
	s.turns.Add(t)
	context.AfterFunc(ctx, func() {
		if s.turns.Remove(t) != "" {
			s.quit(key, waiter)
		}
		leave()
	})
	return nil
}

// quit removes a waiter from the queue. If that fails, the waiter costs the others one reservation.
func (s *PostgreSQL) quit(key, waiter string) {
	_ = s.behind("SELECT lockstep.quit($1,$2,$3)", s.key(key), inASCII(waiter), reservation)
}

// behind runs a statement for which nobody waits, and whose failure costs a waiter some time.
func (s *PostgreSQL) behind(statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), behindLimit)
	defer cancel()
	var ok bool
	return s.exec.Row(ctx, statement, args, &ok)
}

const behindLimit = 5 * time.Second

// Watch implements [backends.Store].
func (s *PostgreSQL) Watch(ctx context.Context, key string, wake func()) error {
	if s.wakes == nil {
		return errPolling
	}
	if _, err := s.prepare(ctx, key); err != nil {
		return err
	}
	return s.wakes.watch(ctx, key, wake)
}
