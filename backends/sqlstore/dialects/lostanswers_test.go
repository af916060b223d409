package dialects_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/proof/lostanswer"
)

// go-mysql-org/go-mysql says driver.ErrBadConn of statements that were done.
func TestAnAnswerThatIsLostIsNotANo(t *testing.T) {
	db := mariadb.fresh(t)
	lossy, answers := lostanswer.Open(t, db.DB, db.dsn)
	const update = "UPDATE `"
	lostanswer.Run(t, database{lossy, db.dsn, mariadb}.store(), db.store(), answers, map[string]string{
		"SetNX": "INSERT INTO", "ExpireIf": update, "DeleteIf": update, "Transfer": update, "RaiseFence": update, "Evict": update,
		"Enter": "INSERT INTO", "Renew": update, "Leave": update, "TransferHold": update,
	})
}
