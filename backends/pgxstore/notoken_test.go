package pgxstore_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// Only a row that was made by hand is a lock without a token. Inspect shows it as held.
func TestALockWithoutATokenIsHeld(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	outside{t, pool}.exec("INSERT INTO lockstep.lock (key, kind, expires) VALUES ('k', 1, 'infinity'), ('r', 2, 'infinity')")
	s := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	for what, call := range map[string]func(key string) (backends.Result, error){
		"SetNX": func(key string) (backends.Result, error) { return s.SetNX(t.Context(), key, "token", maxTTL) },
		"SetNXQueued": func(key string) (backends.Result, error) {
			return s.SetNXQueued(t.Context(), key, "token", maxTTL, backends.Turn{Waiter: "me"})
		},
		"Transfer": func(key string) (backends.Result, error) {
			return s.Transfer(t.Context(), key, "token", "another", maxTTL, false)
		},
	} {
		for _, key := range []string{"k", "r"} {
			if r, err := call(key); r.OK || !r.Foreign || err != nil {
				t.Errorf("%s of %s = %+v, %v; want it held", what, key, r, err)
			}
		}
	}
}
