package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/turns"
)

// PostgreSQL is a store of every kind in package backends, but for the plain commands of old recipes. It
// calls functions in the schema lockstep, which [InstallPostgreSQL] creates:
//
//	SetNX      lockstep.take      one round trip; an attempt that finds the key held writes nothing
//	ExpireIf   lockstep.extend
//	DeleteIf   lockstep.release   NOTIFY only if somebody waits: a message in every release costs more than the release
//	Watch      lockstep.watch, and LISTEN on a connection of its own, while someone waits
//
// Times are those of the server's clock at the moment of the statement (clock_timestamp), to the
// microsecond. Values are kept as durably as the database keeps a commit: see [PostgreSQL.Check].
//
// A number is the time of the server in microseconds, or the last number plus one if that is greater. It
// is kept for [backends.FenceRetention].
type PostgreSQL struct {
	exec    Executor
	config  config
	channel string // for the messages to this store
	wakes   *wakes // nil: waiters poll
	turns   turns.Turns
	swept   sweeper
}

var (
	_ backends.NumberedStore = (*PostgreSQL)(nil)
	_ backends.FencedStore   = (*PostgreSQL)(nil)
	_ backends.OrderedStore  = (*PostgreSQL)(nil)
	_ backends.QueuedStore   = (*PostgreSQL)(nil)
	_ backends.Identifier    = (*PostgreSQL)(nil)
	_ backends.Inspector     = (*PostgreSQL)(nil)
	_ backends.Lister        = (*PostgreSQL)(nil)
	_ backends.Evictor       = (*PostgreSQL)(nil)

	_ backends.TransferStore       = (*PostgreSQL)(nil)
	_ backends.SharedTransferStore = (*PostgreSQL)(nil)
)

// NewPostgreSQL returns a store whose waiters poll. The driver may be any for PostgreSQL whose errors have
// a method SQLState, such as pgx or lib/pq. Behind a pooler that gives each transaction another
// connection, use a driver that prepares no statements.
func NewPostgreSQL(db *sql.DB, opts ...Option) *PostgreSQL {
	return PostgreSQLOver(Over(db), nil, opts...)
}

// PostgreSQLOver is for packages that adapt a driver: it returns a store that sends its statements through
// exec, and hears of releases through l. Without l, waiters poll.
func PostgreSQLOver(exec Executor, l Listener, opts ...Option) *PostgreSQL {
	s := &PostgreSQL{exec: exec, config: configure(opts), channel: "lockstep_" + strings.ToLower(rand.Text())}
	if l != nil {
		s.wakes = newWakes(s, l)
	}
	return s
}

// numberings of lockstep.take
const (
	unnumbered = 0
	byCount    = 1
	byClock    = 2
)

// SetNX implements [backends.Store].
func (s *PostgreSQL) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return s.take(ctx, key, value, ttl, backends.Turn{}, unnumbered)
}

// SetNXFenced implements [backends.FencedStore].
func (s *PostgreSQL) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return s.take(ctx, key, value, ttl, backends.Turn{}, byCount)
}

// outcomes of the functions
const (
	refused     = 0
	done        = 1
	wrongType   = 2
	numbersOver = 3
	foreign     = 4
)

// row calls a function of the database. outcome is among dest.
func (s *PostgreSQL) row(ctx context.Context, outcome *int64, statement string, args []any, dest ...any) error {
	if err := s.exec.Row(ctx, statement, args, append([]any{outcome}, dest...)...); err != nil {
		return explain(ctx, err)
	}
	switch *outcome {
	case wrongType:
		return errWrongType
	case numbersOver:
		return errNumbersEnd
	case foreign:
		return errForeign
	}
	return nil
}

func (s *PostgreSQL) key(key string) []byte { return []byte(s.config.prefix + key) }

func (s *PostgreSQL) take(
	ctx context.Context, key, value string, ttl time.Duration, t backends.Turn, numbering int,
) (backends.Result, error) {
	us, err := s.config.check(ctx, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	waiter, asked, err := s.position(key, t)
	if err != nil {
		return backends.Result{}, err
	}
	var outcome, number, left, place int64
	var holder []byte
	err = s.row(ctx, &outcome, "SELECT outcome, number, left_us, place, holder FROM lockstep.take($1,$2,$3,$4,$5,$6,$7,$8)",
		[]any{s.key(key), []byte(value), us, int64(numbering), waiter, s.channel, t.InOrder, reservation}, &number, &left, &place, &holder)
	asked(outcome == done)
	if err != nil {
		return backends.Result{}, err
	}
	if outcome == refused {
		r := held(left, holder)
		r.Position = int(place)
		return r, nil
	}
	return backends.Result{OK: true, Fence: uint64(number)}, nil
}

var reservation = backends.Reservation.Microseconds()

// held is the result of a call that finds a key held.
func held(left int64, holder []byte) backends.Result {
	r := backends.Result{Foreign: left < 0, Left: duration(max(left, 0))}
	if backends.ValidHolder(string(holder)) {
		r.Holder = string(holder)
	}
	return r
}

// duration is so many microseconds, or the most there can be: 292 years.
func duration(us int64) time.Duration {
	return time.Duration(min(us, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}

// ExpireIf implements [backends.Store].
func (s *PostgreSQL) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	us, err := s.config.check(ctx, ttl)
	if err != nil {
		return false, err
	}
	return s.yes(ctx, "SELECT outcome FROM lockstep.extend($1,$2,$3)", s.key(key), []byte(value), us)
}

// DeleteIf implements [backends.Store].
func (s *PostgreSQL) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	if err := s.config.ready(ctx); err != nil {
		return false, err
	}
	s.swept.now(s.sweep)
	return s.yes(ctx, "SELECT outcome FROM lockstep.release($1,$2,$3)", s.key(key), []byte(value), reservation)
}

// RaiseFence implements [backends.FencedStore].
func (s *PostgreSQL) RaiseFence(ctx context.Context, key, value string, to uint64) (landed bool, err error) {
	if err := s.config.ready(ctx); err != nil {
		return false, err
	}
	if err := checkNumber(to); err != nil {
		return false, err
	}
	return s.yes(ctx, "SELECT outcome FROM lockstep.raise($1,$2,$3)", s.key(key), []byte(value), int64(to))
}

func checkNumber(n uint64) error {
	if n >= 1<<53 {
		return BadInput(fmt.Sprintf("number %d is not under 2^53", n))
	}
	return nil
}

func (s *PostgreSQL) sweep(ctx context.Context) {
	var ok bool
	_ = s.exec.Row(ctx, "SELECT lockstep.sweep()", nil, &ok)
}

func (s *PostgreSQL) yes(ctx context.Context, statement string, args ...any) (bool, error) {
	var outcome int64
	err := s.row(ctx, &outcome, statement, args)
	return err == nil && outcome == done, err
}

// OneServer implements [backends.OneServer].
func (s *PostgreSQL) OneServer() bool { return true }

// Identify implements [backends.Identifier]: databases of one server are the same node.
func (s *PostgreSQL) Identify(ctx context.Context) (backends.Identity, error) {
	if err := s.config.ready(ctx); err != nil {
		return backends.Identity{}, err
	}
	var system string
	var follows bool
	err := s.exec.Row(ctx, "SELECT system_identifier::text || '/' || extract(epoch FROM pg_postmaster_start_time())::text, pg_is_in_recovery() FROM pg_control_system()",
		nil, &system, &follows)
	if err != nil {
		return backends.Identity{}, explain(ctx, err)
	}
	id := backends.Identity{Server: system, Role: "master"}
	if follows {
		id.Role = "standby"
	}
	return id, nil
}
