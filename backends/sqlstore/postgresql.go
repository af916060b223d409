package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
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
// Each statement is a transaction of its own: begin yours by BeginTx, and not by Exec. A call in one that
// began before the call is an error with an unknown outcome. It is not noticed if it began just before, by
// less than an answer takes.
//
// Times are those of the server's clock at the moment of the statement (clock_timestamp), to the
// microsecond. Values are kept as durably as the database keeps a commit: see [PostgreSQL.Check].
//
// A number is the time of the server in microseconds, or the last number plus one if that is greater. It
// is kept for [backends.FenceRetention].
type PostgreSQL struct {
	exec    Executor // the pool
	pool    pool
	own     *reserve[Conn] // for renewals and releases
	config  config
	channel string // for the messages to this store
	wakes   *wakes // nil: waiters poll
	turns   turns.Turns
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
	c := configure(postgresqlName, opts)
	p := databasePool{db, c.at, new(seen)}
	s := newPostgreSQL(p, nil, nil, c)
	s.own.claim, s.own.unclaim = p.claim, p.unclaim
	return s
}

// PostgreSQLOver is for packages that adapt a driver: it returns a store that sends its statements through
// p, and hears of releases through l. Without l, waiters poll. While locks are held, it opens up to two
// more connections for renewals and releases.
func PostgreSQLOver(p Pool, l Listener, opts ...Option) *PostgreSQL {
	return newPostgreSQL(p, p.Open, l, configure(postgresqlName, opts))
}

const postgresqlName = "postgresql" // in texts

func newPostgreSQL(p pool, open func(context.Context) (Conn, error), l Listener, c config) *PostgreSQL {
	s := &PostgreSQL{pool: p, config: c, channel: "lockstep_" + strings.ToLower(rand.Text())}
	s.own = (&reserve[Conn]{
		acquire: p.Acquire, room: p.Room, open: open, prepare: prepareConn, classify: postgresqlError,
	}).start()
	s.exec = overPool{s.own}
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
	otherGroup  = 5
)

// byItself runs a statement that is to be a transaction of its own, and tells at its end how old that is. If it
// is older than the call, the application has begun it: nobody sees what the call did, and it may be undone.
func byItself(ctx context.Context, in Executor, statement string, args []any, dest ...any) error {
	var age int64
	sent := time.Now()
	err := in.Row(ctx, statement, args, append(dest, &age)...)
	// the monotonic clock stands still while the machine sleeps
	if took := max(time.Since(sent), time.Now().Round(0).Sub(sent.Round(0))); err == nil && duration(age) > took+took/8+time.Millisecond {
		return errInTransaction
	}
	return err
}

const transactionAge = "(extract(epoch FROM clock_timestamp() - now()) * 1000000)::bigint"

// errInTransaction is an unknown outcome: if the application commits, what the call did is seen after all.
var errInTransaction = errors.New("the connection was in a transaction, so nobody else saw what the call did: begin transactions by BeginTx and not by Exec, or give the locks a pool of their own")

// grant runs a statement that gives a lock to a token. It tells at its end which server grants.
func (s *PostgreSQL) grant(
	ctx context.Context, key, token string, ttl time.Duration, outcome *int64, statement string, args []any, dest ...any,
) error {
	var server int64
	dest = append(append([]any{outcome}, dest...), &server)
	err := s.own.attempt(ctx, func(c Conn) error {
		if err := byItself(ctx, c, statement, args, dest...); err != nil {
			return err
		}
		s.own.shown(server)
		return outcomeError(*outcome)
	})
	if err = s.explain(ctx, err); err == nil && *outcome == done {
		s.own.hold(key, token, ttl)
	} else {
		s.own.settle()
	}
	return err
}

// holder calls a function of the database for a holder. The first argument is the key. first is that of
// the reserve.
func (s *PostgreSQL) holder(ctx context.Context, first bool, function string, args ...any) (bool, error) {
	var outcome int64
	err := s.own.holder(ctx, first, func(ctx context.Context, c Conn, kept bool) error {
		how := "lockstep." + function + "("
		if kept {
			how = "lockstep.at_once('" + function + "',"
		}
		err := byItself(ctx, c, "SELECT outcome, "+transactionAge+" FROM "+how+"$1,$2,$3)", args, &outcome)
		if told := postgresqlError(err); kept && told != nil && (told.State == "42883" || told.State == "42501") {
			strength := "UPDATE"
			if first {
				strength = "NO KEY UPDATE" // as at_once
			}
			err = byItself(ctx, c, strings.NewReplacer("function", function, "STRENGTH", strength).Replace(holderAtOnce), args, &outcome)
		}
		switch {
		case err != nil:
			return err
		case kept && outcome == rowLocked:
			return errRowLocked{}
		case first && outcome == refused: // a repetition finds what the first try has done
			return nil
		}
		return outcomeError(outcome)
	})
	err = s.explain(ctx, err)
	return err == nil && outcome == done, err
}

// holderAtOnce does what lockstep.at_once does, but for a lock of the whole table, for which it waits. It is for
// a schema that lacks at_once, and for a role that nobody has granted the right to call it since.
const (
	holderAtOnce = `SELECT CASE WHEN EXISTS (SELECT FROM lockstep.lock WHERE key = $1 FOR STRENGTH SKIP LOCKED)
	OR NOT EXISTS (SELECT FROM lockstep.lock WHERE key = $1 AND (kind = 3 OR value = $2)) THEN lockstep.function($1,$2,$3) ELSE -1 END,
	` + transactionAge + ` FROM set_config('lock_timeout','1ms',true)`
	rowLocked = -1
)

// errRowLocked is what the server would say of a row or a table that somebody has locked.
type errRowLocked struct{}

func (errRowLocked) Error() string {
	return "a transaction has locked the row of the key, or the table of the locks"
}
func (errRowLocked) SQLState() string { return "55P03" }

// RowLimit is how long a call waits for a row on the connection that listens, if that is lent to
// it: a transaction of the application may have the row, and other calls want the connection.
const RowLimit = "100ms"

// prepareConn tells which server is behind a connection. The time of its start names it: a standby that
// was promoted has another one. A standby can't renew a lock.
func prepareConn(ctx context.Context, c Conn) (server int64, err error) {
	var follows bool
	err = c.Row(ctx, "SELECT "+serverStarted+", pg_is_in_recovery()", nil, &server, &follows)
	if err == nil && follows {
		err = errOtherServer
	}
	return server, err
}

const serverStarted = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"

func outcomeError(outcome int64) error {
	switch outcome {
	case refused:
		return answer{errNo}
	case wrongType:
		return answer{errWrongType}
	case numbersOver:
		return answer{errNumbersEnd}
	case foreign:
		return answer{errForeign}
	case otherGroup:
		return answer{errOtherGroup}
	}
	return nil
}

func (s *PostgreSQL) key(key string) []byte { return []byte(s.config.prefix + key) }

// prepare refuses what must not be sent. name is the key with the prefix. A token, or a waiter, and the
// key are in one entry of an index, which has at most 2,704 bytes. A message has 8,000, and the key in it in hex.
func (s *PostgreSQL) prepare(ctx context.Context, key string, values ...string) (name []byte, err error) {
	const maxValue = 1536
	return s.config.prepare(ctx, maxValue, key, values...)
}

// prepareTTL is prepare for a call with a ttl, which it gives in microseconds, rounded up.
func (s *PostgreSQL) prepareTTL(ctx context.Context, ttl time.Duration, key string, values ...string) (name []byte, us int64, err error) {
	if us, err = s.config.check(ctx, ttl); err == nil {
		name, err = s.prepare(ctx, key, values...)
	}
	return name, us, err
}

func (s *PostgreSQL) take(
	ctx context.Context, key, value string, ttl time.Duration, t backends.Turn, numbering int,
) (backends.Result, error) {
	name, us, err := s.prepareTTL(ctx, ttl, key, value, inASCII(t.Waiter))
	if err != nil {
		return backends.Result{}, err
	}
	waiter, asked, err := s.position(key, t)
	if err != nil {
		return backends.Result{}, err
	}
	var outcome, number, left, place int64
	var holder string
	err = s.grant(ctx, key, value, ttl, &outcome,
		"SELECT outcome, number, left_us, place, "+holderText+", "+serverStarted+", "+transactionAge+" FROM lockstep.take($1,$2,$3,$4,$5,$6,$7,$8)",
		[]any{name, []byte(value), us, int64(numbering), waiter, s.channel, t.InOrder, t.Reservation(ttl).Microseconds()}, &number, &left, &place, &holder)
	asked(err == nil && outcome == done)
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

// holderText is the label of a holder in hex: how bytes become text is a setting of the session
// (bytea_output).
const holderText = "coalesce(encode(holder, 'hex'), '')"

// held is the result of a call that finds a key held.
func held(left int64, holder string) backends.Result {
	return backends.Result{Foreign: left < 0, Left: duration(max(left, 0)), Holder: backends.InTheWay(plain(holder))}
}

// duration is so many microseconds, or the most there can be: 292 years.
func duration(us int64) time.Duration {
	return time.Duration(min(us, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}

// ExpireIf implements [backends.Store].
func (s *PostgreSQL) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return s.extend(ctx, "extend", key, value, ttl)
}

// extend lets a lock or a hold live longer, by the function of that name.
func (s *PostgreSQL) extend(ctx context.Context, function, key, token string, ttl time.Duration) (bool, error) {
	name, us, err := s.prepareTTL(ctx, ttl, key, token)
	if err != nil {
		return false, err
	}
	ok, err := s.holder(ctx, true, function, name, []byte(token), us)
	if ok {
		s.own.hold(key, token, ttl)
	} else if err == nil {
		s.own.drop(key, token)
	}
	return ok, err
}

// end ends a lock or a hold.
func (s *PostgreSQL) end(ctx context.Context, function, key, token string) (bool, error) {
	name, err := s.prepare(ctx, key, token)
	if err != nil {
		return false, err
	}
	ok, err := s.holder(ctx, false, function, name, []byte(token), reservation)
	if err == nil {
		s.own.drop(key, token)
	}
	return ok, err
}

// DeleteIf implements [backends.Store].
func (s *PostgreSQL) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	return s.end(ctx, "release", key, value)
}

// RaiseFence implements [backends.FencedStore].
func (s *PostgreSQL) RaiseFence(ctx context.Context, key, value string, to uint64) (landed bool, err error) {
	name, err := s.prepare(ctx, key, value)
	if err != nil {
		return false, err
	}
	if err := checkNumber(to); err != nil {
		return false, err
	}
	return s.yes(ctx, "SELECT outcome, "+transactionAge+" FROM lockstep.raise($1,$2,$3)", name, []byte(value), int64(to))
}

func checkNumber(n uint64) error {
	if n >= 1<<53 {
		return backends.Invalidf("number %d is not under 2^53", n)
	}
	return nil
}

func (s *PostgreSQL) yes(ctx context.Context, statement string, args ...any) (bool, error) {
	defer s.own.settle()
	var outcome int64
	err := s.explain(ctx, s.own.attempt(ctx, func(c Conn) error {
		if err := byItself(ctx, c, statement, args, &outcome); err != nil {
			return err
		}
		return outcomeError(outcome)
	}))
	return err == nil && outcome == done, err
}

// explain gives an error its class, and the address of the server. An answer is as it was told.
func (s *PostgreSQL) explain(ctx context.Context, err error) error {
	if told, no := answered(err); told {
		return no
	}
	return s.config.at.locate(explain(ctx, err))
}

// Endpoint returns the address of the server, as host:port, if it is known: see [WithAddress].
func (s *PostgreSQL) Endpoint() string { return s.config.at.Endpoint() }

// OneServer implements [backends.OneServer].
func (s *PostgreSQL) OneServer() bool { return true }

// Identify implements [backends.Identifier]: databases of one server are the same node.
func (s *PostgreSQL) Identify(ctx context.Context) (_ backends.Identity, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	if err := s.config.ready(ctx); err != nil {
		return backends.Identity{}, err
	}
	var system string
	var follows bool
	err = s.exec.Row(ctx, "SELECT system_identifier::text || '/' || extract(epoch FROM pg_postmaster_start_time())::text, pg_is_in_recovery() FROM pg_control_system()",
		nil, &system, &follows)
	if err != nil {
		return backends.Identity{}, s.explain(ctx, err)
	}
	id := backends.Identity{Server: system, Role: "master"}
	if follows {
		id.Role = "standby"
	}
	return id, nil
}
