package pgxstore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// TestTheFirstLockOfThePageWorksOnANewServer runs the program of docs/stores/postgresql.md as printed,
// except for the address.
func TestTheFirstLockOfThePageWorksOnANewServer(t *testing.T) {
	page, err := os.ReadFile("../../docs/stores/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^# PostgreSQL\n\n(?:[^\n]+\n)*\n```go\n(package main\n.*?)^```$").FindSubmatchIndex(page)
	if block == nil {
		t.Fatal("the page does not begin with a whole program")
	}
	if lines := strings.Count(string(page[:block[1]]), "\n"); lines > 40 {
		t.Errorf("the first lock ends in line %d of the page; want 40 lines at most", lines)
	}
	const address = `"postgres://app@localhost:5432/app"`
	source := string(page[block[2]:block[3]])
	if strings.Count(source, address) != 1 {
		t.Fatalf("the program does not have the address %s once", address)
	}
	source = strings.Replace(strings.Replace(source, address, "os.Args[1]", 1), "import (\n", "import (\n\t\"os\"\n", 1)
	if out := goRun(t, source, pgtest.Start(t).DSN()); out != "charging invoice 42\n" {
		t.Error(out)
	}
}

// goRun runs a program, and returns what it writes.
func goRun(t *testing.T, source string, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"run", file}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// The function of docs/recipes.md is called for two ticks, for each of them by eight Clients. Work that fails is
// done by the next call.
func TestTheTickOfTheRecipesRunsOnce(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```go\n// (CREATE TABLE ticks [^\n]*;)\n(func workOnce.*?)^```$").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/recipes.md has no function workOnce below its table")
	}
	const around = `package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func main() {
	db, err := sql.Open("pgx", os.Args[1])
	if err == nil {
		_, err = db.Exec(os.Args[2])
	}
	if err != nil {
		panic(err)
	}
	ctx, store := context.Background(), memory.New()
	for day := range 2 {
		var runs, failures atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			locks := locker.New(single.New(store))
			all.Go(func() {
				err := locks.Do(ctx, "nightly", func(ctx context.Context, _ *locker.Lock) error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer tx.Rollback()
					err = workOnce(ctx, tx, time.Unix(int64(day)*86400, 0), func(context.Context, *sql.Tx) error {
						if runs.Add(1) == 1 {
							return errors.New("the work has failed")
						}
						return nil
					})
					if err != nil {
						return err
					}
					return tx.Commit()
				}, locker.WithWait(time.Minute))
				if err != nil {
					failures.Add(1)
				}
			})
		}
		all.Wait()
		fmt.Println(runs.Load(), failures.Load())
	}
}

`
	out := goRun(t, around+string(block[2]), pgtest.Start(t).DSN(), string(block[1]))
	if out != "2 1\n2 1\n" {
		t.Errorf("%s; want for each of two ticks one run that fails and one that does not", out)
	}
}
