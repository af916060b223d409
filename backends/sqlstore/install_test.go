package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
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

// Two programs of one version with other functions would replace those of each other. An entry changes only
// while no release has had its version.
func TestTheVersionOfTheSchemaRisesWithItsFunctions(t *testing.T) {
	sums := map[int]string{3: "588b1a997cb2e663"}
	schema := PostgreSQLSchema()
	sum := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, postgresqlParts(schema))))[:16]
	if sums[postgresqlVersion] != sum {
		t.Errorf("the sum of the tables and functions is %s, and that of version %d was %q: raise the version if there was a release with it",
			sum, postgresqlVersion, sums[postgresqlVersion])
	}
	for _, text := range []string{"IF there > %d THEN", "this one has version %d,", "(number) VALUES (%d)"} {
		if text = fmt.Sprintf(text, postgresqlVersion); !strings.Contains(schema, text) {
			t.Errorf("the schema lacks %q", text)
		}
	}
}
