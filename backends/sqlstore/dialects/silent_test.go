package dialects_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/silent"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := mariadb.fresh(t)
	config, err := mysql.ParseDSN(server.dsn)
	if err != nil {
		t.Fatal(err)
	}
	silent.Run(t, config.Addr, func(t *testing.T, addr string) *sqlstore.MySQL {
		db, err := sql.Open("mysql", strings.ReplaceAll(server.dsn, config.Addr, addr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return sqlstore.NewMySQL(db)
	}, (*sqlstore.MySQL).Check)
}
