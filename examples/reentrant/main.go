// Command reentrant runs a job that holds a lock and calls a function that takes the same lock. Another
// job waits until both are released. The name of an owner in the context says which job a call is for.
//
//	go run ./examples/reentrant
//	REDIS_ADDR=localhost:6379 go run ./examples/reentrant
//
// Without REDIS_ADDR it starts a small server of its own. It exits with 1 if the other job got the lock
// in between.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // of go-redis: the calls return its errors too
	if err := run(context.Background(), os.Stdout, os.Getenv("REDIS_ADDR")); err != nil {
		fmt.Fprintln(os.Stderr, "reentrant:", err)
		os.Exit(1)
	}
}

// account is what the jobs work on. Both of its functions take the lock, and close calls bookFees.
type account struct {
	locks *locker.Client
	key   string
	story *story
}

// close books the fees and closes the account under one lock, so that no fee comes in between.
func (a *account) close(ctx context.Context, job string) error {
	return a.locks.Do(ctx, a.key, func(ctx context.Context, l *locker.Lock) error {
		a.story.tell("%s closes the account, hold %d", job, l.Lease().Holds)
		if err := a.bookFees(ctx, job); err != nil {
			return err
		}
		a.story.tell("%s has closed it", job)
		return nil
	})
}

func (a *account) bookFees(ctx context.Context, job string) error {
	return a.locks.Do(ctx, a.key, func(_ context.Context, l *locker.Lock) error {
		a.story.tell("%s books fees, hold %d", job, l.Lease().Holds)
		time.Sleep(50 * time.Millisecond) // the work
		return nil
	})
}

func run(ctx context.Context, out io.Writer, addr string) error {
	if addr == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	a := &account{
		locks: locker.New(reentrant.New(goredis.New(client))),
		key:   "account/" + rand.Text()[:8], // a new name for each run: others may use the same server
		story: &story{out: out},
	}
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, job := range []string{"job 1", "job 2"} {
		wg.Go(func() { errs[i] = a.close(locker.ContextWithOwner(ctx, job), job) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return a.story.check()
}

// story is what happened, in order.
type story struct {
	mu    sync.Mutex
	out   io.Writer
	lines []string
}

func (s *story) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	s.lines = append(s.lines, line)
	_, _ = fmt.Fprintln(s.out, line)
}

// check returns an error unless each job did all its steps before the other one began.
func (s *story) check() error {
	of := func(job string) []string {
		return []string{job + " closes the account, hold 1", job + " books fees, hold 2", job + " has closed it"}
	}
	one, two := of("job 1"), of("job 2")
	if !slices.Equal(s.lines, append(one, two...)) && !slices.Equal(s.lines, append(two, one...)) {
		return fmt.Errorf("the jobs got in each other's way: %q", s.lines)
	}
	return nil
}
