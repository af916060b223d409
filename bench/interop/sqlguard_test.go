package interop_test

import (
	"database/sql"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	_ "modernc.org/sqlite"
)

// TestTheDocumentedSQLRefusesAHolderWhoIsLate plays a holder who is paused until the lock is someone else's, with the
// statements that the documentation of package locker/fence prints.
func TestTheDocumentedSQLRefusesAHolderWhoIsLate(t *testing.T) {
	for _, name := range []string{"write", "upsert"} {
		t.Run(name, func(t *testing.T) {
			db := invoices(t)
			write, claim := documented(t, name), documented(t, "claim")
			early, late := fences(t)
			for _, step := range []struct {
				what      string
				statement string
				args      []any
				rows      int64
				total     int // then
			}{
				{"the first holder writes", write, []any{early, 10, 1}, 1, 10},
				{"... and again, with the same fence", write, []any{early, 11, 1}, 1, 11},
				{"the second holder claims the row", claim, []any{late, 1}, 1, 11},
				{"the first holder, late, writes", write, []any{early, 12, 1}, 0, 11},
				{"... or claims", claim, []any{early, 1}, 0, 11},
				{"the second holder writes", write, []any{late, 20, 1}, 1, 20},
				{"... and the same again", write, []any{late, 20, 1}, 1, 20},
				{"the first holder, late, writes", write, []any{early, 13, 1}, 0, 20},
			} {
				if n := affected(t, db, step.statement, step.args...); n != step.rows {
					t.Errorf("%s: %d rows; want %d", step.what, n, step.rows)
				}
				if total, _ := invoice(t, db, 1); total != step.total {
					t.Errorf("%s: the total is %d; want %d", step.what, total, step.total)
				}
			}
		})
	}
}

func TestTheDocumentedUpsertInsertsARowThatIsMissing(t *testing.T) {
	db := invoices(t)
	if n := affected(t, db, documented(t, "upsert"), 7, 70, 2); n != 1 {
		t.Errorf("%d rows", n)
	}
	if total, fence := invoice(t, db, 2); total != 70 || fence != 7 {
		t.Errorf("total %d, fence %d", total, fence)
	}
	if n := affected(t, db, documented(t, "write"), 7, 70, 3); n != 0 {
		t.Errorf("an update of no row: %d rows", n)
	}
}

// TestTheDocumentedSQLNeverTakesTheFenceBack lets two connections write in any order what is only right in one.
func TestTheDocumentedSQLNeverTakesTheFenceBack(t *testing.T) {
	const writers, writes = 2, 100
	db := invoices(t)
	for _, name := range []string{"write", "upsert"} {
		statement := documented(t, name)
		if _, err := db.Exec("UPDATE invoice SET total = 0, fence = 0"); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for _, i := range rand.Perm(writes) {
					fence := i*writers + w + 1
					n := affected(t, db, statement, fence, fence*10, 1)
					total, at := invoice(t, db, 1)
					if total != at*10 || at < fence || n == 0 && at == fence {
						t.Errorf("%s with fence %d: %d rows, and then total %d at fence %d", name, fence, n, total, at)
					}
				}
			})
		}
		all.Wait()
		if total, fence := invoice(t, db, 1); fence != writers*writes || total != fence*10 {
			t.Errorf("%s: in the end total %d at fence %d", name, total, fence)
		}
	}
}

// documented finds a statement in the documentation of package locker/fence.
func documented(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile("../../locker/fence/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	pattern := `(?m)^//\t` + name + ` +(UPDATE .*)$`
	if name == "upsert" {
		pattern = `(?m)^//\t(INSERT INTO .*\n(?://\t.*\n)*)`
	}
	found := regexp.MustCompile(pattern).FindSubmatch(source)
	if found == nil {
		t.Fatalf("the documentation has no %s", name)
	}
	return strings.ReplaceAll(string(found[1]), "//\t", "")
}

// invoices is a database with the row of invoice 1, on disk, so that each of its connections is to the same one.
func invoices(t *testing.T) *sql.DB {
	t.Helper()
	file := filepath.Join(t.TempDir(), "invoices.db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(30000)&_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, statement := range []string{
		"CREATE TABLE invoice (id INTEGER PRIMARY KEY, total INTEGER NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
		"INSERT INTO invoice (id, total) VALUES (1, 0)",
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func affected(t *testing.T, db *sql.DB, statement string, args ...any) int64 {
	t.Helper()
	result, err := db.Exec(statement, args...)
	if err != nil {
		t.Errorf("%s: %v", statement, err)
		return -1
	}
	n, err := result.RowsAffected()
	if err != nil {
		t.Error(err)
	}
	return n
}

func invoice(t *testing.T, db *sql.DB, id int) (total, fence int) {
	t.Helper()
	if err := db.QueryRow("SELECT total, fence FROM invoice WHERE id = $1", id).Scan(&total, &fence); err != nil {
		t.Errorf("invoice %d: %v", id, err)
	}
	return total, fence
}

// fences are those of a holder whose lease is taken away, and of the next one. They fit in a BIGINT.
func fences(t *testing.T) (first, second int64) {
	t.Helper()
	store := memory.New()
	locks := locker.New(fenced.New(store))
	paused, err := locks.TryLock(t.Context(), "invoice/1")
	if err != nil {
		t.Fatal(err)
	}
	store.Delete("invoice/1")
	next, err := locker.New(fenced.New(store)).TryLock(t.Context(), "invoice/1")
	if err != nil {
		t.Fatal(err)
	}
	first, second = int64(paused.Fence()), int64(next.Fence())
	if first <= 0 || second <= first {
		t.Fatalf("fences %d, %d", first, second)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	_ = paused.Unlock(t.Context()) // lost, as was to be played
	return first, second
}
