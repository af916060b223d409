// Command redlock keeps a lock on five independent servers. One is stopped while the lock is held, and
// the work goes on. Two more are stopped, and the holder learns that the lock is lost. After that no
// lock can be had, and the error says which servers did not answer.
//
//	go run ./examples/redlock
//
// It starts its servers itself. It exits with 1 if one of these steps turns out differently.
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
	logging.Disable() // of go-redis: the calls return its errors too
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "redlock:", err)
		os.Exit(1)
	}
}

// run locks, stops servers, and checks what the holder is told.
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
	for l.Lease().Expires == first { //nolint:staticcheck // the same value until the lease is renewed
		select {
		case <-l.Context().Done():
			return fmt.Errorf("one stopped server lost the lock: %w", context.Cause(l.Context()))
		case <-time.After(ttl / 100):
		}
	}
	tell("one stopped: the work goes on, and the lease was renewed")

	servers[1].Close()
	servers[2].Close()
	<-l.Context().Done()
	tell("two more stopped: %v", context.Cause(l.Context()))
	if cause := context.Cause(l.Context()); !errors.Is(cause, locker.ErrLost) {
		return fmt.Errorf("the context ended with %w, not with a loss", cause)
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

// open starts the servers and makes a quorum of three. With servers of your own, use their addresses in
// place of embedded.Start. Package redlock says how many servers each quorum can do without.
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
