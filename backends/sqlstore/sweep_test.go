package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/bounded"
)

// stuck is a database that answers until it is asked for old rows.
type stuck struct{ *scripted }

func (s stuck) Connect(context.Context) (driver.Conn, error) { return s, nil }

func (s stuck) QueryContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(statement, "ORDER BY look") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.scripted.QueryContext(ctx, statement, args)
}

// stuckPool is for PostgreSQL: no function answers.
type stuckPool struct{ silent }

func (stuckPool) Acquire(context.Context) (Conn, error) { return stuckConn{}, nil }

type stuckConn struct{}

func (stuckConn) Row(ctx context.Context, _ string, _ []any, _ ...any) error {
	<-ctx.Done()
	return ctx.Err()
}
func (stuckConn) Close() {}

func TestASweepOfAServerThatIsSilentEnds(t *testing.T) {
	type sweeper interface {
		Sweep(ctx context.Context) error
	}
	for name, open := range map[string]func(db *sql.DB) sweeper{
		"PostgreSQL": func(*sql.DB) sweeper { return PostgreSQLOver(stuckPool{}, nil) },
		"rows": func(db *sql.DB) sweeper {
			s := NewSQLite(db)
			s.file = nil
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := sql.OpenDB(stuck{&scripted{row: record{now: 1}}})
				defer func() { _ = db.Close() }()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(time.Hour, cancel)
				began := time.Now()
				if err := open(db).Sweep(ctx); err == nil || !strings.Contains(err.Error(), "given up after 10s") || time.Since(began) > 2*bounded.Limit {
					t.Errorf("%v after %v; want it given up after %v", err, time.Since(began), bounded.Limit)
				}
			})
		})
	}
}
