package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A scripted database finds each key as row says, and runs a statement that writes when it is let.
type scripted struct {
	row  record
	let  chan struct{}
	ran  chan string // the keys of the statements that have written
	read error       // what a SELECT fails with
}

func (d *scripted) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *scripted) Driver() driver.Driver                        { return nil }
func (d *scripted) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (d *scripted) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (d *scripted) Close() error                                 { return nil }

func (d *scripted) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &oneRow{r: d.row}, d.read
}

func (d *scripted) ExecContext(_ context.Context, statement string, args []driver.NamedValue) (driver.Result, error) {
	<-d.let
	for _, arg := range args {
		if text, ok := arg.Value.([]byte); ok && strings.HasPrefix(string(text), "key ") {
			d.ran <- string(text)
		}
	}
	return driver.RowsAffected(1), nil
}

type oneRow struct {
	r    record
	read bool
}

func (r *oneRow) Columns() []string { return make([]string, 8) }
func (r *oneRow) Close() error      { return nil }

func (r *oneRow) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read = true
	copy(dest, []driver.Value{r.r.now, int64(1), r.r.kind, r.r.value, r.r.expires, r.r.holds, r.r.last, r.r.kept})
	return nil
}

func TestWhatHoldersWriteToSQLiteWaitsForOneGrantAtMost(t *testing.T) {
	held := record{now: 1, kind: kindLock, value: []byte("token"), expires: forever}
	shared := record{now: 1}
	if err := shared.keep("", []hold{{Token: []byte("token"), Expires: 2}}); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]struct {
		row record
		do  func(ctx context.Context, s *SQLite) (bool, error)
	}{
		"ExpireIf": {held, func(ctx context.Context, s *SQLite) (bool, error) {
			return s.ExpireIf(ctx, "key of the holder", "token", time.Second)
		}},
		"DeleteIf": {held, func(ctx context.Context, s *SQLite) (bool, error) {
			return s.DeleteIf(ctx, "key of the holder", "token")
		}},
		"Renew": {shared, func(ctx context.Context, s *SQLite) (bool, error) {
			return s.Renew(ctx, "key of the holder", "token", time.Second)
		}},
		"Leave": {shared, func(ctx context.Context, s *SQLite) (bool, error) { return s.Leave(ctx, "key of the holder", "token") }},
		"SetNX again": {held, func(ctx context.Context, s *SQLite) (bool, error) {
			r, err := s.SetNX(ctx, "key of the holder", "token", time.Second)
			return r.OK, err
		}},
		"Transfer": {held, func(ctx context.Context, s *SQLite) (bool, error) {
			r, err := s.Transfer(ctx, "key of the holder", "token", "next", time.Second, true)
			return r.OK, err
		}},
		"TransferHold": {shared, func(ctx context.Context, s *SQLite) (bool, error) {
			r, err := s.TransferHold(ctx, "key of the holder", "token", "next", time.Second, "", true)
			return r.OK, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const grants = 64
				database := &scripted{row: record{now: 1, kind: kindMissing}, let: make(chan struct{}), ran: make(chan string, 2*grants)}
				db := sql.OpenDB(database)
				defer func() { _ = db.Close() }()
				s := NewSQLite(db)
				s.file = nil // the database is no file
				for i := range grants {
					go func() {
						var r backends.Result
						var err error
						if key := fmt.Sprint("key ", i); i%2 == 0 {
							r, err = s.SetNX(t.Context(), key, "another", time.Second)
						} else {
							r, err = s.Enter(t.Context(), key, "another", time.Second, backends.Admission{Limit: 1})
						}
						if err != nil || !r.OK {
							t.Errorf("a grant: %+v, %v", r, err)
						}
					}()
				}
				synctest.Wait()
				database.row = call.row
				go func() {
					if ok, err := call.do(t.Context(), s); err != nil || !ok {
						t.Errorf("%s = %v, %v", name, ok, err)
					}
				}()
				synctest.Wait()
				close(database.let)
				synctest.Wait()
				var order []string
				for len(database.ran) > 0 {
					order = append(order, <-database.ran)
				}
				// one grant was with the database, and one was the next
				if at := slices.Index(order, "key of the holder"); at < 0 || at > 2 || len(order) != grants+1 {
					t.Errorf("%s was number %d of %d statements; want the third at most", name, at+1, len(order))
				}
			})
		})
	}
}

func TestACallWhoseReadFailsIsNotDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for _, told := range []error{errors.New("the connection was reset"), &numbered{Number: 2013}, ended{context.DeadlineExceeded, io.ErrUnexpectedEOF}} {
		db := sql.OpenDB(&scripted{read: told})
		defer func() { _ = db.Close() }()
		for name, s := range map[string]rowStore{"SQLite": NewSQLite(db), "MySQL": NewMySQL(db)} {
			for call, do := range map[string]func() error{
				"SetNX":   func() error { _, err := s.SetNX(ctx, "k", "token", time.Second); return err },
				"Enter":   func() error { _, err := s.Enter(ctx, "k", "token", time.Second, backends.Admission{}); return err },
				"Leave":   func() error { _, err := s.Leave(ctx, "k", "token"); return err },
				"Inspect": func() error { _, err := s.Inspect(ctx, "k"); return err },
				"List":    func() error { _, err := s.List(ctx, "k", "", 1); return err },
			} {
				if err := do(); !backends.Unsent(err) || backends.Permanent(err) || !errors.Is(err, told) || strings.Count(err.Error(), "nothing was done") != 1 || strings.Contains(err.Error(), "unknown") {
					t.Errorf("%s of %s: %v; want %v, and nothing done", call, name, err, told)
				}
			}
		}
	}
	cancel()
	db := sql.OpenDB(&scripted{})
	defer func() { _ = db.Close() }()
	if err := NewMySQL(db).notDone(ctx, ctx.Err()); !backends.Unsent(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("the end of a ctx: %v", err)
	}
	db = sql.OpenDB(&scripted{read: &numbered{Number: 1146}})
	defer func() { _ = db.Close() }()
	if _, err := NewMySQL(db).SetNX(t.Context(), "k", "token", time.Second); !backends.Permanent(err) || backends.Unsent(err) {
		t.Errorf("a table that is missing: %v; want a permanent error", err)
	}
}

func TestACallThatIsNotItsTurnEndsWithItsCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := &scripted{row: record{now: 1, kind: kindMissing}, let: make(chan struct{}), ran: make(chan string, 4)}
		db := sql.OpenDB(database)
		defer func() { _ = db.Close() }()
		s := NewSQLite(db)
		s.file = nil // the database is no file
		for i := range 3 {
			go func() { _, _ = s.SetNX(t.Context(), fmt.Sprint("key ", i), "token", time.Second) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.SetNX(ctx, "key of the call", "token", time.Second)
		if !backends.Unsent(err) || !strings.HasSuffix(fmt.Sprint(err), "nothing was sent") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SetNX = %v; want the end of the ctx, and nothing sent", err)
		}
		close(database.let)
		synctest.Wait()
		if n := len(database.ran); n != 3 {
			t.Errorf("%d statements were run; want 3", n)
		}
	})
}

// Counterexample: each call that waits for its turn to write has a connection, and the pool opens
// one for each.
func TestCallsThatWaitForTheirTurnToWriteHaveTwoConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 64
		held := record{now: 1, kind: kindLock, value: []byte("token"), expires: forever}
		database := &scripted{row: held, let: make(chan struct{}), ran: make(chan string, calls)}
		db := sql.OpenDB(database)
		defer func() { _ = db.Close() }()
		s := NewSQLite(db)
		s.file = nil // the database is no file
		for i := range calls {
			go func() {
				if ok, err := s.DeleteIf(t.Context(), fmt.Sprint("key ", i), "token"); err != nil || !ok {
					t.Errorf("DeleteIf = %v, %v", ok, err)
				}
			}()
		}
		synctest.Wait()
		if n := db.Stats().InUse; n > 2 {
			t.Errorf("%d connections are in use; want two at most", n)
		}
		close(database.let)
		synctest.Wait()
		if len(database.ran) != calls {
			t.Errorf("%d of %d calls have written", len(database.ran), calls)
		}
	})
}
