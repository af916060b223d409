// Command quickstart shows what a distributed lock is for. Several processes add to one counter in a
// file, first without a lock and then with one. Then the process that holds the lock is killed, and
// another one takes over.
//
//	go run ./examples/quickstart
//	REDIS_ADDR=localhost:6379 go run ./examples/quickstart
//
// Without REDIS_ADDR it starts a small server of its own. It exits with 1 if an update is lost although
// the processes locked. The code to copy is in lock.go.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/redis/go-redis/v9/logging"
)

const (
	processes = 4
	leaseTTL  = time.Second     // of the process that is killed
	patience  = 3 * time.Second // with a server that may not be there
	runLimit  = 2 * time.Minute // with a server that is far away
)

func main() {
	logging.Disable() // of go-redis: the calls return its errors too
	if isWorker() {
		exitIf(work())
		return
	}
	increments := flag.Int("increments", 300, "how often each process adds one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not done after %v", runLimit))
	defer cancel()
	exitIf(run(ctx, screen{os.Stdout}, os.Getenv("REDIS_ADDR"), max(*increments, 1)))
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run plays the three parts and prints the result.
func run(ctx context.Context, out screen, addr string, increments int) (err error) {
	defer func() {
		if err != nil && ctx.Err() != nil { // the end of ctx is what made the rest fail
			err = context.Cause(ctx)
		}
	}()
	if addr == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
		out.printf("Embedded server at %s. To use your own: REDIS_ADDR=host:port\n", addr)
	} else {
		out.printf("Redis server at %s\n", addr)
	}
	locks, conn := openLocks(addr)
	defer conn.Close()
	key := "quickstart/" + rand.Text()[:8] // a new name for each run: others may use the same server
	if err := reach(ctx, locks, key); err != nil {
		return fmt.Errorf("cannot lock at %s: %w", addr, err)
	}
	dir, err := os.MkdirTemp("", "lockstep-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	out.headline("1. %d processes add 1 to a counter in a file, %d times each, without a lock", processes, increments)
	t := task{Role: roleUnlocked, Addr: addr, Key: key, File: filepath.Join(dir, "unlocked"), Times: increments}
	unlocked, err := race(ctx, t)
	if err != nil {
		return err
	}
	out.race(unlocked)

	out.headline("2. The same with a lock")
	t.Role, t.File = roleLocked, filepath.Join(dir, "locked")
	locked, err := race(ctx, t)
	if err != nil {
		return err
	}
	out.race(locked)

	out.headline("3. The process that has the lock is killed")
	next, err := killHolder(ctx, locks, task{Role: roleHolder, Addr: addr, Key: key})
	if err != nil {
		return err
	}
	out.takeover(next)

	out.headline("Result")
	out.table(unlocked, locked, next)
	return locked.fault()
}

// reach takes the lock once, to fail at once if the server does not answer or does not fit.
func reach(ctx context.Context, locks *locker.Client, key string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer in %v", patience))
	defer cancel()
	return locks.Do(ctx, key, func(context.Context, *locker.Lock) error { return nil })
}
