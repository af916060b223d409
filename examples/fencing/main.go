// Command fencing shows what a lock alone can't do: stop a holder that was paused until its lease ended.
// Its late write overwrites what the next holder has written, unless the resource compares the numbers
// of the grants.
//
//	go run ./examples/fencing
//	REDIS_ADDR=localhost:6379 go run ./examples/fencing
//
// Without REDIS_ADDR it starts a small server of its own. On your server, the counter of the lock stays
// for a day. The program exits with 1 unless the late write succeeds without the guard and fails with
// it. The code to copy is in document.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/fence"
	"github.com/redis/go-redis/v9/logging"
)

const (
	ttl      = time.Second
	runLimit = time.Minute // with a server that is far away
)

func main() {
	logging.Disable() // of go-redis: the calls return its errors too
	if err := run(context.Background(), os.Stdout, os.Getenv("REDIS_ADDR")); err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

// run lets two holders write in the wrong order, to both documents.
func run(ctx context.Context, out io.Writer, addr string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not done after %v", runLimit))
	defer cancel()
	if addr == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
	}
	s := open(addr)
	defer s.close(ctx)
	began := time.Now()
	printf := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) } // goes on if nobody reads
	tell := func(format string, args ...any) {
		printf("%5.2f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}

	first, err := s.locks.Lock(ctx, s.key, locker.WithTTL(ttl), locker.WithoutExtension())
	if err != nil {
		return err
	}
	defer first.Unlock(ctx) // lost by then
	tell("Holder 1 has the lock for %v, with number %d.", ttl, first.Fence())
	tell("It is paused: by its garbage collector, its hypervisor, a full disk. It no longer renews its lease.")

	second, err := s.locks.Lock(ctx, s.key)
	if err != nil {
		return err
	}
	defer second.Unlock(ctx)
	tell("Holder 2 has the lock, with number %d: the lease of holder 1 has ended.", second.Fence())
	if err := s.writeBlindly(ctx, "holder 2"); err != nil {
		return err
	}
	if err := s.writeGuarded(ctx, second.Fence(), "holder 2"); err != nil {
		return err
	}
	tell("Holder 2 writes to both documents.")

	// Holder 1 last looked at its context before the pause.
	tell("Holder 1 goes on. It does not know that its lease has ended, and writes.")
	if err := s.writeBlindly(ctx, "holder 1"); err != nil {
		return err
	}
	late := s.writeGuarded(ctx, first.Fence(), "holder 1")
	tell("When it looks at its context: %v", context.Cause(first.Context()))

	blind, guarded, err := s.read(ctx)
	if err != nil {
		return err
	}
	switch {
	case blind != "holder 1":
		return fmt.Errorf("the document without a guard says %q", blind)
	case guarded != "holder 2":
		return fmt.Errorf("the document with a guard says %q", guarded)
	case !errors.Is(late, fence.ErrLate):
		return fmt.Errorf("the guard did not say that the write was late: %w", late)
	}
	printf("\nwithout a guard  it says %q: what holder 2 wrote under the lock is gone\n", blind)
	printf("with a guard     it says %q: the late write was refused, %v\n", guarded, late)
	return nil
}
