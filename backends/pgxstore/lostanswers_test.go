package pgxstore_test

import (
	"database/sql"
	"testing"

	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/lostanswer"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// The store sends a statement again when its driver says that it was not done. What it hears then is no news
// of a release, which may have been done.
func TestAnAnswerThatIsLostIsNotANo(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN())
	plain, err := sql.Open("pgx", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	lossy, answers := lostanswer.Open(t, plain, server.DSN())
	lostanswer.Run(t, sqlstore.NewPostgreSQL(lossy), sqlstore.NewPostgreSQL(plain), answers, map[string]string{
		"SetNX": "take(", "ExpireIf": "extend(", "DeleteIf": "release(", "Transfer": "transfer(", "RaiseFence": "raise(", "Evict": "evict(",
		"Enter": "enter(", "Renew": "renew(", "Leave": "leave(", "TransferHold": "transfer_hold(",
	})
}
