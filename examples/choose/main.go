// Command choose takes a lock with the strategy and the store that flags or the environment name. A
// program does this to leave the choice to its operator.
//
//	go run ./examples/choose
//	go run ./examples/choose -strategy fenced
//	go run ./examples/choose -strategy semaphore -permits 3 -order -slots
//	go run ./examples/choose -strategy redlock -quorum 4 -backend embedded -addr a,b,c,d,e
//	go run ./examples/choose -strategy redlock -backend goredis -addr host1:6379,host2:6379,host3:6379
//	LOCK_STRATEGY=reentrant LOCK_BACKEND=redigo LOCK_ADDR=localhost:6379 go run ./examples/choose
//
// Without a backend it starts a small server of its own for each address, whatever the address is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // of go-redis: the calls return its errors too
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, os.Getenv, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "choose:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, env func(string) string, args []string) error {
	c, key, err := configure(env, args)
	if err != nil {
		return err
	}
	l, closeStores, err := strategies.New(ctx, c, stores)
	if err != nil {
		return err
	}
	defer closeStores() //nolint:errcheck // the work is done
	locks := locker.New(l, locker.WithTTL(10*time.Second))
	return locks.Do(ctx, key, func(_ context.Context, l *locker.Lock) error {
		_, err := fmt.Fprintf(out, "%s on %s holds %q until %s", c.Strategy, c.Backend, l.Key(), l.Lease().Expires.Format(time.TimeOnly))
		if fence := l.Fence(); fence > 0 {
			_, err = fmt.Fprintf(out, ", fence %d", fence)
		}
		if c.Slots {
			_, err = fmt.Fprintf(out, ", slot %d", l.Lease().Slot)
		}
		_, _ = fmt.Fprintln(out)
		return err
	}, locker.WithWait(5*time.Second))
}

// configure lets flags win over the environment.
func configure(env func(string) string, args []string) (c strategies.Config, key string, err error) {
	or := func(name, otherwise string) string {
		if value := env(name); value != "" {
			return value
		}
		return otherwise
	}
	flags := flag.NewFlagSet("choose", flag.ContinueOnError)
	flags.StringVar(&c.Strategy, "strategy", or("LOCK_STRATEGY", "single"), strings.Join(strategies.Names(), ", "))
	flags.StringVar(&c.Backend, "backend", or("LOCK_BACKEND", "embedded"), "embedded, memory, goredis or redigo")
	addrs := flags.String("addr", or("LOCK_ADDR", "localhost:6379"), "address of the store, or those of all nodes, with commas")
	quorum, err := strconv.Atoi(or("LOCK_QUORUM", "0"))
	if err != nil {
		return c, "", fmt.Errorf("LOCK_QUORUM: %w", err)
	}
	flags.IntVar(&c.Quorum, "quorum", quorum, "of how many nodes; 0: a bare majority")
	flags.IntVar(&c.Permits, "permits", 0, "of a semaphore: how many may hold the lock at once")
	flags.BoolVar(&c.Order, "order", false, "of a semaphore: permits in the order of the requests")
	flags.BoolVar(&c.Slots, "slots", false, "of a semaphore: a number for each permit")
	flags.Float64Var(&c.Drift, "drift", 0, "part of the TTL by which clocks may drift apart; 0: the default")
	flags.StringVar(&key, "key", "choose/example", "name of the lock")
	if err := flags.Parse(args); err != nil {
		return c, "", err
	}
	c.Addrs = strings.Split(*addrs, ",")
	return c, key, nil
}
