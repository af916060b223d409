// Command quickstart shows what a distributed lock is for. Four processes add to one counter in a file.
// Without a lock they lose updates. With a lock they lose none.
//
//	go run ./examples/quickstart
//	REDIS_ADDR=localhost:6379 go run ./examples/quickstart
//
// Without REDIS_ADDR it starts a small server of its own. It exits with 1 if an update is lost under
// the lock.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const (
	processes  = 4
	increments = 50 // of each process
)

func main() {
	logging.Disable() // of go-redis: the calls return its errors too
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if len(os.Args) == 5 && os.Args[1] == "add" { // race has started this process
		err = add(ctx, os.Args[2], os.Args[3], os.Args[4])
	} else {
		err = run(ctx, os.Stdout, os.Getenv("REDIS_ADDR"))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// add is the work of one process, and the code to copy: a Client, made once, and Do for each piece of
// work. Without a key it takes no lock.
func add(ctx context.Context, file, addr, key string) error {
	store, client := goredis.Open(&redis.Options{Addr: addr}) // connects when it is first used
	defer client.Close()
	locks := locker.New(single.New(store))
	for range increments {
		var err error
		if key == "" {
			err = addOne(ctx, file)
		} else {
			err = locks.Do(ctx, key, func(ctx context.Context, _ *locker.Lock) error {
				return addOne(ctx, file) // this ctx ends if the lock is lost
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addOne reads the counter, works for a moment, and writes the next number.
func addOne(ctx context.Context, file string) error {
	n, err := read(file)
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Millisecond) // the work
	if ctx.Err() != nil {
		return context.Cause(ctx) // the lock is lost: to write now could undo what its next holder wrote
	}
	temporary := fmt.Sprint(file, ".", os.Getpid()) // renamed, so that no process reads half of a number
	if err := os.WriteFile(temporary, fmt.Append(nil, n+1), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}

func read(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// run lets the processes add without a lock, and then with one.
func run(ctx context.Context, out io.Writer, addr string) error {
	if addr == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
	}
	key := "quickstart/" + rand.Text()[:8] // a new name for each run: others may use the same server
	file := filepath.Join(os.TempDir(), filepath.Base(key))
	defer os.Remove(file) //nolint:errcheck // a demo

	_, _ = fmt.Fprintf(out, "%d processes add 1 to a counter, %d times each.\n", processes, increments)
	if _, err := race(ctx, out, "without a lock", file, addr, ""); err != nil {
		return err
	}
	lost, err := race(ctx, out, "with a lock", file, addr, key)
	if err == nil && lost != 0 {
		err = fmt.Errorf("%d updates are lost, although the processes locked", lost)
	}
	return err
}

// race lets the processes add at the same time, and says how many updates are lost.
func race(ctx context.Context, out io.Writer, name, file, addr, key string) (lost int, err error) {
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		return 0, err
	}
	began := time.Now()
	errs := make([]error, processes)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0], "add", file, addr, key)
			if text, err := cmd.CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("a process %s ended with %w: %s", name, err, bytes.TrimSpace(text))
			}
		})
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil { // the first one says enough
		return 0, err
	}
	found, err := read(file)
	lost = processes*increments - found
	_, _ = fmt.Fprintf(out, "%-14s  the counter says %3d: %3d updates lost, in %.2f s\n", name, found, lost, time.Since(began).Seconds())
	return lost, err
}
