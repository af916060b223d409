// Command fencing shows what a lock alone can't do: stop a holder that was paused until its lease ended.
// Its late write overwrites what the next holder has written, unless the resource compares the numbers
// of the grants.
//
//	go run ./examples/fencing
//	REDIS_ADDR=localhost:6379 go run ./examples/fencing
//
// Without REDIS_ADDR it starts a small server of its own. On your server, the counter of the lock stays
// for a day. The program exits with 1 unless the late write succeeds without the guard and fails with
// it. The code to copy is writeGuarded.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/fence"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const ttl = time.Second

func main() {
	logging.Disable() // of go-redis: the calls return its errors too
	if err := run(context.Background(), os.Stdout, os.Getenv("REDIS_ADDR")); err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

var guard = redis.NewScript(fence.Script)

// writeGuarded writes unless a later holder has written. The server compares and writes in one step.
func writeGuarded(ctx context.Context, client *redis.Client, document string, number uint64, text string) error {
	accepted, err := guard.Run(ctx, client, []string{document}, number, "text", text).Bool()
	if err == nil && !accepted {
		err = fmt.Errorf("number %d: %w", number, fence.ErrLate)
	}
	return err
}

// run lets two holders write in the wrong order, to a document without the guard and to one with it.
func run(ctx context.Context, out io.Writer, addr string) error {
	if addr == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
	}
	store, client := goredis.Open(&redis.Options{Addr: addr})
	defer client.Close()
	locks := locker.New(fenced.New(store))
	key := "fencing/" + rand.Text()[:8] // a new name for each run: others may use the same server
	blind, guarded := key+"/blind", key+"/guarded"
	defer client.Del(ctx, blind, guarded)
	began := time.Now()
	tell := func(format string, args ...any) {
		_, _ = fmt.Fprintf(out, "%5.2f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}

	first, err := locks.Lock(ctx, key, locker.WithTTL(ttl), locker.WithoutRenewal())
	if err != nil {
		return err
	}
	defer first.Unlock(ctx) // lost by then
	tell("Holder 1 has the lock for %v, with number %d.", ttl, first.Fence())
	tell("It is paused: by its garbage collector, its hypervisor, a full disk. It no longer renews its lease.")

	second, err := locks.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer second.Unlock(ctx)
	tell("Holder 2 has the lock, with number %d: the lease of holder 1 has ended.", second.Fence())
	err = errors.Join(
		client.HSet(ctx, blind, "text", "holder 2").Err(),
		writeGuarded(ctx, client, guarded, second.Fence(), "holder 2"))
	if err != nil {
		return err
	}
	tell("Holder 2 writes to both documents.")

	// Holder 1 last looked at its context before the pause.
	tell("Holder 1 goes on. It does not know that its lease has ended, and writes.")
	if err := client.HSet(ctx, blind, "text", "holder 1").Err(); err != nil {
		return err
	}
	late := writeGuarded(ctx, client, guarded, first.Fence(), "holder 1")
	tell("When it looks at its context: %v", context.Cause(first.Context()))

	// An error leaves the text empty, which is wrong as well.
	inBlind, inGuarded := client.HGet(ctx, blind, "text").Val(), client.HGet(ctx, guarded, "text").Val()
	switch {
	case inBlind != "holder 1":
		return fmt.Errorf("the document without a guard says %q", inBlind)
	case inGuarded != "holder 2":
		return fmt.Errorf("the document with a guard says %q", inGuarded)
	case !errors.Is(late, fence.ErrLate):
		return fmt.Errorf("the guard did not say that the write was late: %w", late)
	}
	_, _ = fmt.Fprintf(out, "\nwithout a guard  it says %q: what holder 2 wrote under the lock is gone\n", inBlind)
	_, _ = fmt.Fprintf(out, "with a guard     it says %q: the late write was refused, %v\n", inGuarded, late)
	return nil
}
