// Command http is a service that takes payments. A lock for each order keeps two requests, in any
// process of the service, from paying one order at the same time.
//
//	go run -C examples/otel ./http
//	REDIS_ADDR=localhost:6379 go run -C examples/otel ./http -listen localhost:8081
//	curl -i -X POST localhost:8080/orders/42/payment
//
// Without REDIS_ADDR it starts a small server of its own. The handler is in payment.go. This file
// opens the connection, and stops the service in order when it gets SIGTERM or Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// stopLimit is longer than requestLimit, so that requests under way can end.
const stopLimit = requestLimit + 5*time.Second

func main() {
	listen := flag.String("listen", "localhost:8080", "the address of the service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := run(ctx, log, *listen, os.Getenv("REDIS_ADDR"))
	stop()
	if err != nil {
		log.Error("the service failed", "err", err)
		os.Exit(1)
	}
}

// run opens what the service needs, and closes it when no request needs it any more.
func run(ctx context.Context, log *slog.Logger, listen, addr string) error {
	if addr == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
		log.Info("embedded server; to use your own, set REDIS_ADDR=host:port", "addr", addr)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	store, client := goredis.Open(&redis.Options{Addr: addr})
	// To send the spans somewhere, add an exporter here: docs/observability.md.
	tracers := sdktrace.NewTracerProvider()
	locks := newLocks(single.New(store), tracers)
	log.Info("listening", "addr", listener.Addr().String())
	err = serve(ctx, listener, newService(log, locks, tracers, newLedger()), locks)
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return errors.Join(err, client.Close(), tracers.Shutdown(last))
}

// newLocks makes the Client: one for all requests and keys. Each wait for a lock is a span.
func newLocks(l locker.Locker, tracers trace.TracerProvider) *locker.Client {
	return locker.New(l, locker.WithMiddleware(otellocker.New(otellocker.WithTracerProvider(tracers))))
}

// serve answers requests until ctx ends. Then it stops in this order: no new requests, the end of
// the requests under way, and the end of what the Client has left to send. The caller closes the
// connection to the store after that: a lock whose release is not sent stays locked until its lease
// ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, locks *locker.Client) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	return errors.Join(server.Shutdown(last), locks.Drain(last))
}
