package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// rows is what [SQLite] and [MySQL] have in common. A key is one row. A call reads the row, decides here,
// and writes the row only if it is still as it was read: that is one conditional statement. So no call
// keeps a transaction open, and a program that is stopped in between keeps nobody out. If another call was
// quicker, it reads and decides again.
type rows struct {
	db      *sql.DB
	config  config
	dialect dialect
	own     *reserve[*databaseConn] // for renewals and releases

	// A statement that writes waits for writing, with a connection. A grant first waits for granting, and a
	// holder for ending. So one grant at most is before what holders write: a renewal does not wait behind all
	// who want a lock. And two connections at most wait, not one for each call.
	writing, granting, ending slot

	file *file // nil: a server has the database
	in   *home // nil: the statements name it
}

// A slot is for one call at a time; nil: for as many as come.
type slot chan struct{}

// A lane is where the connections for the statements of a call come from.
type lane int

const (
	grants   lane = iota // for calls that take a lock, and for those that nobody needs to hold one
	renewals             // this and the next are for holders
	releases
)

func (s *rows) on(ctx context.Context, from lane, fn work[*databaseConn]) error {
	fn = s.inPlace(s.atHome(fn))
	if from == grants {
		return s.own.attempt(ctx, func(c *databaseConn) error { return fn(ctx, c, false) })
	}
	return s.own.holder(ctx, from == renewals, fn)
}

// inPlace is fn, unless the database is no longer where others find it.
func (s *rows) inPlace(fn work[*databaseConn]) work[*databaseConn] {
	if s.file == nil {
		return fn
	}
	return func(ctx context.Context, c *databaseConn, kept bool) error {
		if err := s.file.stays(ctx, c); err != nil {
			return err
		}
		return fn(ctx, c, kept)
	}
}

// over makes rows of a database.
func over(p databasePool, c config, d dialect) rows {
	return rows{db: p.db, config: c, dialect: d, own: (&reserve[*databaseConn]{
		acquire: p.acquire, room: p.Room, claim: p.claim, unclaim: p.unclaim, classify: d.classify,
	}).start()}
}

// granted notes the answer to an attempt.
func (s *rows) granted(key, token string, ttl time.Duration, res backends.Result, err error) (backends.Result, error) {
	if err != nil {
		s.own.settle()
		return backends.Result{}, err
	}
	if res.OK {
		s.own.hold(key, token, ttl)
	} else {
		s.own.settle()
	}
	return res, nil
}

// renewed notes the answer to a renewal.
func (s *rows) renewed(key, token string, ttl time.Duration, ok bool, err error) (bool, error) {
	if errors.As(err, new(fileMoved)) { // it is held in a file that nobody else has
		ok, err = false, nil
	}
	if ok {
		s.own.hold(key, token, ttl)
	} else if err == nil {
		s.own.drop(key, token)
	}
	return ok, err
}

// released notes the answer to a release.
func (s *rows) released(key, token string, ok bool, err error) (bool, error) {
	if errors.As(err, new(fileMoved)) {
		ok, err = false, nil
	}
	if err == nil {
		s.own.drop(key, token)
	}
	return ok, err
}

func (s slot) take(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return backends.NotSent(ctx.Err())
	}
}

func (s slot) give() {
	if s != nil {
		<-s
	}
}

// dialect is the SQL of a database, from the files of the same names.
type dialect struct {
	read, list, insert, swap, extend, release, old, remove, later, guard string

	atOnce   func(update string) string // fails if the row is locked; its first argument is the key. nil: nothing has rows to lock
	grain    time.Duration              // the database cuts its clock to it
	classify func(error) *StatementError
}

func dialectOf(dir string, grain time.Duration, classify func(error) *StatementError) dialect {
	return dialect{
		read: script(dir, "read"), list: script(dir, "list"), insert: script(dir, "insert"), swap: script(dir, "swap"),
		extend: script(dir, "extend"), release: script(dir, "release"),
		old: script(dir, "old"), remove: script(dir, "remove"), later: script(dir, "later"), guard: script(dir, "guard"),
		grain: grain, classify: classify,
	}
}

// record is the row of a key, and the time of the database when it was read.
type record struct {
	now     int64 // times are in µs since 1970
	kind    int64
	value   []byte
	expires int64
	holds   []byte
	last    int64 // number
	kept    int64 // until when; forever: for ever
	server  int64 // which server has told it

	grants bool // of what a call makes of it: a token gets what it did not have
}

const (
	kindMissing = -1 // there is no row
	kindFree    = 0
	kindLock    = 1

	forever = math.MaxInt64
)

const (
	maxKey   = 1024 // bytes, with the prefix
	maxValue = 4096
	maxHolds = 4 << 20 // bytes of all holds of a key
)

// held tells whether the key has something that has not ended.
func (r *record) held() bool { return r.kind > kindFree && r.expires > r.now }

// has tells whether the key has the lock of a token. The error says that it has no lock at all.
func (r *record) has(token string) (bool, error) {
	if r.held() && r.kind != kindLock {
		return false, errWrongType
	}
	return r.held() && string(r.value) == token, nil
}

func (r *record) put(kind int64, value string, expires int64) {
	r.kind, r.value, r.expires, r.holds = kind, []byte(value), expires, []byte{}
}

func (r *record) refusal() backends.Result {
	if r.expires == forever {
		return backends.Result{Foreign: true}
	}
	return backends.Result{Left: duration(r.expires - r.now), Holder: backends.InTheWay(backends.LabelOf(string(r.value)))}
}

func (r *record) equal(o *record) bool {
	return r.kind == o.kind && bytes.Equal(r.value, o.value) && r.expires == o.expires &&
		bytes.Equal(r.holds, o.holds) && r.last == o.last && r.kept == o.kept
}

// draw gives a number. again says that the ownership is not new: it keeps its number.
func (r *record) draw(again bool, numbering int) (uint64, error) {
	n := int64(0)
	if r.kept > r.now {
		n = r.last
	}
	if !again || n == 0 {
		n++
		if numbering == byClock {
			n = max(n, r.now)
		}
	}
	if n >= 1<<53 {
		return 0, errNumbersEnd
	}
	r.last = n
	switch {
	case numbering == byCount:
		r.kept = forever
	case r.kept != forever:
		r.kept = max(n, r.now) + backends.FenceRetention.Microseconds()
	}
	return uint64(n), nil
}

// scan reads a row of read.sql and guard.sql.
func (r *record) scan(row func(dest ...any) error) error {
	err := row(&r.now, &r.server, &r.kind, &r.value, &r.expires, &r.holds, &r.last, &r.kept)
	r.value, r.holds = append([]byte{}, r.value...), append([]byte{}, r.holds...) // nil would be NULL
	switch {
	case err == nil && r.server == noCommits:
		return backends.Invalid("the connections have autocommit off, so nobody else would see a lock: switch it on in the DSN")
	case err == nil && r.server == noEmpty:
		return errNoEmpty
	case err == nil && r.server == noClock:
		return backends.Invalid("the connections have set the variable timestamp, so the end of a lock can't be judged: leave it alone, or give the locks a *sql.DB of their own")
	}
	return err
}

// What read.sql tells instead of the server.
const (
	noCommits = 0
	noClock   = -1
	noEmpty   = -2
)

var errNoEmpty error = backends.Invalid("the sql_mode of the connections has EMPTY_STRING_IS_NULL, so what is stored can't be compared: leave it out")

// races is how often a call is beaten by others on the same key before it ends. Each time another call has
// got on.
const races = 100

var errRaces = backends.AsUnsent(fmt.Errorf("other calls were quicker on the same key %d times; nothing was done: try again", races))

// change lets decide change the row of a key. The change is made only before the time until.
func (s *rows) change(ctx context.Context, from lane, key []byte, decide func(r *record) (until int64, err error)) error {
	inTurn := false
	for range races {
		var was record
		err := s.on(ctx, from, func(ctx context.Context, c *databaseConn, _ bool) error {
			return was.scan(c.QueryRowContext(ctx, s.in.names(s.dialect.read), key).Scan)
		})
		if err != nil {
			return s.notDone(ctx, err) // no round before has changed anything
		}
		is := was
		until, err := decide(&is)
		if err != nil || is.equal(&was) {
			return err
		}
		if is.grants && !inTurn {
			if err := s.granting.take(ctx); err != nil {
				return err
			}
			defer s.granting.give() // after all rounds: at the end of the line again, others would always be quicker
			inTurn = true
		}
		done, err := s.write(ctx, from, key, &was, &is, until)
		if err == nil && done && was.kind == kindMissing {
			s.tidy(ctx)
		}
		if err != nil || done {
			return err
		}
	}
	return errRaces
}

// write returns false if the row is no longer as it was, or if it is too late.
func (s *rows) write(ctx context.Context, from lane, key []byte, was, is *record, until int64) (bool, error) {
	if was.kind == kindMissing {
		return s.exec(ctx, from, key, s.dialect.insert, key, is.kind, is.value, is.expires, is.holds, is.last, is.kept, is.look())
	}
	return s.exec(ctx, from, key, s.dialect.swap, is.kind, is.value, is.expires, is.holds, is.last, is.kept,
		key, was.kind, was.value, was.expires, was.holds, was.last, was.kept, until)
}

// exec runs a statement that changes the row of a key, and tells whether it has.
func (s *rows) exec(ctx context.Context, from lane, key []byte, statement string, args ...any) (changed bool, err error) {
	if from != grants {
		if err := s.ending.take(ctx); err != nil {
			return false, err
		}
		defer s.ending.give()
	}
	var did bool // not a result: a statement that the call has left may still set it
	err = s.on(ctx, from, func(ctx context.Context, c *databaseConn, kept bool) error {
		if err := s.writing.take(ctx); err != nil { // not before: a call may wait for a connection
			return err
		}
		defer s.writing.give()
		text, all := statement, args
		if kept && s.dialect.atOnce != nil {
			text, all = s.dialect.atOnce(statement), append([]any{key}, args...)
		}
		result, err := c.ExecContext(ctx, s.in.names(text), all...)
		n := int64(0)
		if err == nil {
			n, err = result.RowsAffected()
		}
		did = n == 1
		if told := s.dialect.classify(err); err == nil && !did || told != nil && told.class == raced {
			err = answer{errNo}
			if from == renewals { // which reads the row then, and finds what an earlier try has done
				err = nil
			}
		}
		return err
	})
	err = s.explain(ctx, err)
	return err == nil && did, err
}

// prepare refuses what must not be sent.
func (s *rows) prepare(ctx context.Context, key string, values ...string) ([]byte, error) {
	if s.db == nil {
		return nil, backends.Invalid("the *sql.DB is nil")
	}
	return s.config.prepare(ctx, maxValue, key, values...)
}

// prepareTTL is prepare for a call with a ttl. life is the ttl in µs, and as much more as the clock of the
// database may be behind.
func (s *rows) prepareTTL(ctx context.Context, ttl time.Duration, key string, values ...string) (name []byte, life int64, err error) {
	if _, err := s.config.check(ctx, ttl); err != nil {
		return nil, 0, err
	}
	name, err = s.prepare(ctx, key, values...)
	grains := (ttl + s.dialect.grain - 1) / s.dialect.grain
	return name, ((grains + 1) * s.dialect.grain).Microseconds(), err
}

// explain gives an error its class, and the address of the server. An answer is as it was told.
func (s *rows) explain(ctx context.Context, err error) error {
	if told, no := answered(err); told {
		return no
	}
	return s.config.at.locate(explainBy(ctx, s.dialect.classify, err))
}

// Endpoint returns the address of the server, as host:port, if it is known: see [WithAddress].
func (s *rows) Endpoint() string { return s.config.at.Endpoint() }

// notDone is explain for a statement that reads, of a call that has changed nothing.
func (s *rows) notDone(ctx context.Context, err error) error {
	err = s.explain(ctx, err)
	if told, ok := errors.AsType[*StatementError](err); ok && told.class == unknown {
		told.class = notDone
	}
	if err == nil || backends.Permanent(err) || backends.Unsent(err) {
		return err
	}
	return backends.NotDone(err)
}
