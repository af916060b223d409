package dialects_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/internal/verify/silent"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := mariadb.fresh(t)
	config, err := mysql.ParseDSN(server.dsn)
	if err != nil {
		t.Fatal(err)
	}
	silent.Run(t, config.Addr, func(t *testing.T, addr string) locker.Locker {
		db, err := sql.Open("mysql", strings.ReplaceAll(server.dsn, config.Addr, addr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return single.New(sqlstore.NewMySQL(db))
	})
}
