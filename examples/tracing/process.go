package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// openLocks makes a Client that is seen twice: around the wait, which is what most programs want, and around each attempt.
// Both use the providers of the process.
func openLocks(t task) (*locker.Client, *redis.Client) {
	store, conn := goredis.Open(&redis.Options{Addr: t.Addr})
	attempts := locker.Wrap(single.New(store), otellocker.New())
	return locker.New(attempts, locker.WithMiddleware(otellocker.New()), locker.WithTTL(t.TTL)), conn
}

// app answers requests.
type app struct {
	task
	locks  *locker.Client
	tracer trace.Tracer
	told   <-chan struct{}
}

// order is the body of a request: what to do under the lock, and how long to wait for it.
type order struct {
	Work      time.Duration
	UntilTold bool          // and longer
	Wait      time.Duration // 0: without end
	Try       bool
}

// ServeHTTP goes on with the trace of the request.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := a.tracer.Start(ctx, r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	var o order
	err := json.NewDecoder(r.Body).Decode(&o)
	if err == nil {
		err = a.underLock(ctx, o, func(ctx context.Context, _ *locker.Lock) error {
			w.WriteHeader(http.StatusProcessing) // so that the driver knows who has the lock
			return a.work(ctx, o)
		})
	}
	status := http.StatusOK
	switch {
	case err == nil:
	case errors.Is(err, locker.ErrWaitLimit):
		status = http.StatusServiceUnavailable
	case errors.Is(err, locker.ErrHeld):
		status = http.StatusConflict
	default:
		status = http.StatusInternalServerError
	}
	answered(span, status)
	if err != nil {
		http.Error(w, err.Error(), status)
	}
}

func (a *app) underLock(ctx context.Context, o order, work func(context.Context, *locker.Lock) error) error {
	switch {
	case o.Try:
		l, err := a.locks.TryLock(ctx, a.Key)
		if err != nil {
			return err
		}
		defer l.Unlock(ctx)
		return work(l.Context(), l)
	case o.Wait > 0:
		return a.locks.Do(ctx, a.Key, work, locker.WithWait(o.Wait))
	}
	return a.locks.Do(ctx, a.Key, work)
}

// work has a ctx that ends if the lock is lost, and that makes its span a child of the hold.
func (a *app) work(ctx context.Context, o order) (err error) {
	ctx, span := a.tracer.Start(ctx, "work")
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}()
	select {
	case <-time.After(o.Work):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !o.UntilTold {
		return nil
	}
	select {
	case <-a.told:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answered notes the end of a request, at both of its ends.
func answered(span trace.Span, status int) {
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, http.StatusText(status))
	}
}

// serve is the main function of a child. It ends with its stdin, which the operating system closes however the parent ends,
// and tells then what was seen.
func serve() error {
	t, err := childTask()
	if err != nil {
		return err
	}
	signal.Ignore(os.Interrupt) // Ctrl-C reaches all processes of a terminal: the parent decides what it means
	seen := newSDK(t.Service)
	seen.setGlobal()
	locks, conn := openLocks(t)
	defer conn.Close()
	ctx, told := follow(os.Stdin)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:     &app{task: t, locks: locks, tracer: seen.tracer(), told: told},
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() { _ = server.Serve(listener) }() // the parent can tell
	fmt.Println(listener.Addr())
	<-ctx.Done()

	if _, err := fmt.Println(); err != nil { // nobody reads this: then nothing is worth waiting for, and Unix has ended us
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	collected, err := seen.collect(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(collected)
}
