// Command ops shows what people who run locks see of them. Two services want the same locks. The
// page at the address that it prints shows who holds them and who waits. The lines that it prints
// show the same from a shell.
//
//	go run ./examples/ops
//	REDIS_ADDR=localhost:6379 go run ./examples/ops -listen localhost:8081
//
// Without REDIS_ADDR it starts a small server of its own. Both services are in this process, with a
// Client each. Only the first one feeds the page. What the second one does comes from the store.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const (
	prefix = "ops/"
	path   = "/debug/locks/"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "the address of the page")
	flag.Parse()
	logging.Disable() // of go-redis: the calls return its errors too
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *listen, os.Getenv("REDIS_ADDR"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ops:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, listen, addr string) error {
	if addr == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	store, client := goredis.Open(&redis.Options{Addr: addr})
	defer client.Close()

	// Whoever reaches this address may release locks by force: a service asks who it is.
	page := pagelocker.New(pagelocker.WithStore(store, prefix),
		pagelocker.WithCheck(func(ctx context.Context) (pagelocker.Check, error) {
			r, err := store.Check(ctx)
			return pagelocker.Check{Server: r.Version, Findings: r.Findings, ClockSkew: r.ClockSkew}, err
		}),
		pagelocker.WithRelease(store, func(*http.Request) (string, bool) { return "operator", true }))
	checkout := locker.New(fenced.New(store), locker.WithHolder("checkout/1"), locker.WithMiddleware(page.Middleware))
	billing := locker.New(fenced.New(store), locker.WithHolder("billing/1"))

	mux := http.NewServeMux()
	mux.Handle(path, page)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(page.Close) // it ends the streams

	_, _ = fmt.Fprintf(out, `The page:     http://%[1]s%[2]s
Its metrics:  http://%[1]s%[2]smetrics
From a shell, in the folder cmd/lockstep:
  export LOCKSTEP_STORE=redis://%[3]s
  go run . list -prefix %[4]s
  go run . inspect %[4]sreport
  go run . run -w 30s %[4]sreport -- sleep 5
Ctrl-C ends it.
`, listener.Addr(), path, addr, prefix)

	var working sync.WaitGroup
	for range 3 {
		working.Go(func() { work(ctx, checkout) })
		working.Go(func() { work(ctx, billing) })
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	working.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(last), checkout.Drain(last), billing.Drain(last))
}

// work takes one lock after the other, most often the same one, and holds it for a while.
func work(ctx context.Context, locks *locker.Client) {
	for ctx.Err() == nil {
		key := prefix + "report"
		if n := rand.IntN(6); n < 3 {
			key = fmt.Sprintf("%saccount/%d", prefix, n)
		}
		_ = locks.Do(ctx, key, func(ctx context.Context, _ *locker.Lock) error { // whatever fails, it goes on
			pause(ctx, time.Second+rand.N(8*time.Second))
			return nil
		}, locker.WithTTL(8*time.Second))
		pause(ctx, rand.N(3*time.Second))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
