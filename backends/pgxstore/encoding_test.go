package pgxstore_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/strategies/fair"
)

// A label is UTF-8, and the database may store texts in another encoding.
func TestAWaiterMayHaveALabelThatTheDatabaseCanNotStore(t *testing.T) {
	dsn := pgtest.Start(t, "fsync=off").DSN()
	admin := dial(t, dsn)
	for _, encoding := range []string{"UTF8", "EUC_JP", "LATIN1", "SQL_ASCII"} {
		outside{t, admin}.exec("CREATE DATABASE in_" + encoding + " ENCODING '" + encoding + "' LOCALE 'C' TEMPLATE template0")
		s := pgxstore.New(install(t, strings.Replace(dsn, "dbname=postgres", "dbname=in_"+strings.ToLower(encoding), 1)))
		for _, label := range []string{"plain one", "日本", "é", "\U0001F600 two"} {
			l, err := locker.New(fair.New(s), locker.WithHolder(label)).Lock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			waited := make(chan error, 1)
			go func() {
				l, err := locker.New(fair.New(s), locker.WithHolder(label+"2")).Lock(ctx, "k", locker.WithWait(patience))
				if err == nil {
					err = l.Unlock(ctx)
				}
				waited <- err
			}()
			eventually(t, encoding+" shows the waiter "+label, func() bool {
				state, err := s.Inspect(ctx, "k")
				if len(waited) > 0 {
					t.Fatalf("%s: the waiter %q = %v", encoding, label, <-waited)
				}
				return err == nil && slices.Equal(state.Waiters, []string{label + "2"})
			})
			if err := l.Unlock(ctx); err != nil {
				t.Errorf("%s: Unlock of %q = %v", encoding, label, err)
			}
			if err := <-waited; err != nil {
				t.Errorf("%s: the waiter %q = %v", encoding, label, err)
			}
			cancel()
		}
	}
}
