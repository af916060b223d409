// Command redlock keeps a lock on five independent servers. One is stopped while work is under the lock, and the work
// goes on; two more are stopped, and the loss is told before the lease ends, and why no lock can be had.
//
//	go run ./examples/redlock
//
// It starts its servers itself, and needs nothing installed. It exits with 1 if anything comes out otherwise.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const (
	nodes = 5
	key   = "nightly-report"
	ttl   = time.Second
)

func main() {
	logging.Disable() // of go-redis: its errors come back from the calls as well
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "redlock:", err)
		os.Exit(1)
	}
}

// run is the whole story.
func run(ctx context.Context, out io.Writer) error {
	began := time.Now()
	tell := func(format string, args ...any) {
		_, _ = fmt.Fprintf(out, "%5.2f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	servers, locks, closeAll, err := open()
	if err != nil {
		return err
	}
	defer closeAll()

	l, err := locks.Lock(ctx, key)
	if err != nil {
		return err
	}
	tell("five servers: locked, on three of them at least")

	servers[0].Close()
	first := l.Lease().Expires
	for l.Lease().Expires == first { //nolint:staticcheck // the very value: has it been extended?
		select {
		case <-l.Context().Done():
			return fmt.Errorf("one stopped server lost the lock: %w", context.Cause(l.Context()))
		case <-time.After(ttl / 100):
		}
	}
	tell("one stopped: the work goes on, the lock has been extended")

	servers[1].Close()
	servers[2].Close()
	<-l.Context().Done()
	tell("two more stopped: %v", context.Cause(l.Context()))
	if late := time.Since(l.Lease().Expires); late > 0 && !errors.Is(context.Cause(l.Context()), locker.ErrLost) {
		return fmt.Errorf("the loss was told %v after the lease had ended", late)
	}

	_, err = locks.Lock(ctx, key)
	var quorum *redlock.QuorumError
	if !errors.As(err, &quorum) || errors.Is(err, locker.ErrHeld) {
		return fmt.Errorf("with two of five servers, Lock says %w", err)
	}
	tell("a new attempt fails, and says why:")
	for i, vote := range quorum.Votes {
		_, _ = fmt.Fprintf(out, "         server %d  %s\n", i+1, vote.Outcome)
	}
	return nil
}

// open starts the servers and makes a quorum of three of them. With servers of your own, addresses take the place of
// embedded.Start, and quarantine stays on: package redlock says what each quorum tolerates.
func open() (servers []*embedded.Server, locks *locker.Client, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	var lockers []locker.Locker
	for range nodes {
		server, err := embedded.Start()
		if err != nil {
			return nil, nil, nil, err
		}
		store, conn := goredis.Open(&redis.Options{Addr: server.Addr()})
		closers = append(closers, server.Close, func() { _ = conn.Close() })
		servers, lockers = append(servers, server), append(lockers, single.New(store))
	}
	quorum, err := redlock.New(lockers)
	if err != nil {
		return nil, nil, nil, err
	}
	return servers, locker.New(quorum, locker.WithTTL(ttl)), closeAll, nil
}
