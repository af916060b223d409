package pgxstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

func TestEveryStrategyOverPostgreSQL(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	beneath.WithoutRecipes(t, func(t *testing.T) (beneath.Store, beneath.Outside) {
		return pgxstore.New(pool, pgxstore.WithMaxTTL(beneath.MaxTTL)), rows{outside{t, pool}}
	})
}

// rows are what a Disturber does to a key past the store, each in one step: a waiter may be quick.
type rows struct{ outside }

func (r rows) Holds(key string) bool {
	_, _, ok := r.Get(key)
	return ok
}

func (r rows) Expire(key string) {
	r.exec("UPDATE lockstep.lock SET expires = clock_timestamp() WHERE key = $1", []byte(key))
}
func (r rows) SetForeign(key string)      { r.Set(key, "foreign", 0) }
func (r rows) SetForeignHolds(key string) { r.SetShared(key) }
func (r rows) Evict(key, by string)       { beneath.Evict(r.t, pgxstore.New(r.pool), key, by) }
