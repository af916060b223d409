package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/bounded"
)

// deafDriver opens connections whose statements never return, whatever happens to their ctx.
type deafDriver struct{ until chan struct{} }

func (d deafDriver) Connect(context.Context) (driver.Conn, error) { return deafConn(d), nil }
func (deafDriver) Driver() driver.Driver                          { return nil }

type deafConn struct{ until chan struct{} }

func (deafConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (deafConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (deafConn) Close() error                        { return nil }

func (c deafConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	<-c.until
	return nil, errors.New("the connection was closed")
}

func (c deafConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	<-c.until
	return nil, errors.New("the connection was closed")
}

func (c deafConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	<-c.until
	return nil, errors.New("the connection was closed")
}

// A program that installs at its start would hang for ever behind a proxy that forgets connections.
func TestInstallEndsByItself(t *testing.T) {
	for name, install := range map[string]func(context.Context, *sql.DB) error{
		"PostgreSQL": InstallPostgreSQL, "MySQL": InstallMySQL, "SQLite": InstallSQLite,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				until := make(chan struct{})
				db := sql.OpenDB(deafDriver{until})
				began := time.Now()
				err := install(context.Background(), db)
				if took := time.Since(began); err == nil || took > 2*bounded.Limit || !strings.Contains(err.Error(), "its ctx has no deadline") {
					t.Errorf("Install = %v after %v", err, took)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				began = time.Now()
				err = install(ctx, db)
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 3*time.Second {
					t.Errorf("Install with a ctx that ends = %v after %v", err, took)
				}
				close(until)
				synctest.Wait()
				_ = db.Close()
			})
		})
	}
}
