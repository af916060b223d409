package pgx_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends/pgx"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/internal/verify/child"
	"github.com/lockstep-go/lockstep/internal/verify/matrix"
	"github.com/lockstep-go/lockstep/internal/verify/pgtest"
	"github.com/lockstep-go/lockstep/internal/verify/rivals"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

var increments = flag.Int("increments", 300, "how many increments of the counter to make")

// Processes that are stopped for longer than their lease increment a counter in the database of the locks:
// they read it, and write the next number. Guarded, no increment is lost. Unguarded, a process that was
// stopped between the two overwrites what others have counted since.
func TestAGuardedCounterLosesNoIncrement(t *testing.T) {
	enough := *increments
	if os.Getenv("LOCKSTEP_TORTURE") == "1" {
		enough = max(enough, 10_000)
	}
	for _, guarded := range []bool{true, false} {
		t.Run(map[bool]string{true: "guarded", false: "unguarded"}[guarded], func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, "fsync=off")
			pool := install(t, server.DSN())
			outside{t, pool}.exec("CREATE TABLE counter (n bigint NOT NULL)")
			outside{t, pool}.exec("INSERT INTO counter VALUES (0)")
			var all []*process
			for range 4 {
				all = append(all, startCounting(t, server.DSN(), guarded))
			}
			stops := time.NewTicker(50 * time.Millisecond)
			defer stops.Stop()
			total, stopped := func() int { return sum(all) }, 0
			for total() < enough || !guarded && stopped < 30 { // a stop loses something if it meets the holder
				<-stops.C
				p := all[rand.IntN(len(all))]
				_ = p.cmd.Process.Signal(syscall.SIGSTOP)
				time.Sleep(counterTTL + 100*time.Millisecond)
				_ = p.cmd.Process.Signal(syscall.SIGCONT)
				stopped++
			}
			for _, p := range all {
				p.end(t)
			}
			var counted int
			if err := pool.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&counted); err != nil {
				t.Fatal(err)
			}
			lost := total() - counted
			matrix.Cell{
				Strategy: map[bool]string{true: "single, with Guard", false: "single, without Guard"}[guarded], Fault: "holders stopped",
				Where: "PostgreSQL", Trials: total(), Violations: max(lost, 0), Command: matrix.Again("-C backends/pgx .", t.Name()),
			}.Report(t)
			t.Logf("%d increments were committed and %d lost; %d stops of a process", total(), lost, stopped)
			switch {
			case guarded && lost != 0:
				t.Errorf("%d of %d increments were lost", lost, total())
			case !guarded && lost == 0:
				t.Errorf("no increment was lost without a guard, so the test shows nothing")
			}
		})
	}
}

const counterTTL = 200 * time.Millisecond

// A process counts until its input ends.
type process struct {
	cmd  *exec.Cmd
	quit func()
	told chan string // a line for each increment that was committed
	n    int
	done bool
}

func startCounting(t *testing.T, dsn string, guarded bool) *process {
	cmd, in, out := child.Start(t, "PGX_COUNTER="+dsn, fmt.Sprintf("PGX_GUARDED=%v", guarded))
	p := &process{cmd: cmd, told: make(chan string, 100000), quit: func() { _, _ = fmt.Fprintln(in, "end") }}
	go func() {
		defer close(p.told)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.told <- lines.Text()
		}
	}()
	return p
}

func sum(all []*process) (n int) {
	for _, p := range all {
		for more := true; more; {
			select {
			case line, ok := <-p.told:
				more = ok
				p.hear(line)
			default:
				more = false
			}
		}
		n += p.n
	}
	return n
}

func (p *process) hear(line string) {
	switch line {
	case "+1":
		p.n++
	case "end":
		p.done = true
	}
}

// end lets the process finish its last increment.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.quit()
	limit := time.After(patience)
	for !p.done {
		select {
		case line, ok := <-p.told:
			if p.hear(line); !ok && !p.done {
				t.Fatal("a process ended before it was told to")
			}
		case <-limit:
			t.Fatal("a process does not end")
		}
	}
}

// TestProcess is a process that counts, or a rival of a campaign.
func TestProcess(t *testing.T) {
	if rivals.Process(t, openFor) {
		return
	}
	dsn := os.Getenv("PGX_COUNTER")
	if dsn == "" {
		t.Skip("it is for TestAGuardedCounterLosesNoIncrement and the campaigns")
	}
	pool := dial(t, dsn)
	store := pgx.New(pool)
	locks := locker.New(single.New(store), locker.WithTTL(counterTTL))
	guarded, _ := strconv.ParseBool(os.Getenv("PGX_GUARDED"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		cancel()
	}()
	for ctx.Err() == nil {
		_ = locks.Do(ctx, "counter", func(_ context.Context, l *locker.Lock) error { // the next attempt is another increment
			return increment(t.Context(), pool, store.Guard, l, guarded)
		})
	}
	fmt.Println("end")
}

// increment reads, waits for a moment and writes. A commit whose outcome is unknown would be counted
// wrongly, so it ends the test.
func increment(ctx context.Context, pool *pgxpool.Pool, guard func(context.Context, sqlstore.Executor, locker.Lease) error, l *locker.Lock, guarded bool) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after Commit it does nothing
	var n int64
	if err := tx.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
		return err
	}
	time.Sleep(time.Millisecond) // the work
	if _, err := tx.Exec(ctx, "UPDATE counter SET n = $1", n+1); err != nil {
		return err
	}
	if guarded {
		if err := guard(ctx, pgx.InTx(tx), l.Lease()); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		panic(err) // whether it was counted is unknown
	}
	fmt.Println("+1")
	return nil
}
