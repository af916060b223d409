package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const (
	requestLimit = 10 * time.Second // of a request: its wait and its work
	waitLimit    = 2 * time.Second  // for the lock, within requestLimit
)

// service answers POST /orders/{order}/payment.
type service struct {
	log    *slog.Logger
	locks  *locker.Client
	tracer trace.Tracer
	orders payments
}

// payments is the database and the payment provider. Charge must stop when ctx ends.
type payments interface {
	Paid(ctx context.Context, order string) (bool, error)
	Charge(ctx context.Context, order string) error
}

func newService(log *slog.Logger, locks *locker.Client, tracers trace.TracerProvider, orders payments) http.Handler {
	s := &service{log, locks, tracers.Tracer("github.com/lockstep-go/lockstep/examples/otel/http"), orders}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{order}/payment", s.payment)
	return mux
}

// payment continues the trace of the request, so that the span of the lock becomes a part of it.
func (s *service) payment(w http.ResponseWriter, r *http.Request) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := s.tracer.Start(ctx, r.Pattern, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()

	order := r.PathValue("order")
	status, text, err := s.pay(ctx, order)
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	level := slog.LevelInfo
	if status >= http.StatusInternalServerError {
		level = slog.LevelError
		span.SetStatus(codes.Error, text)
	}
	s.log.Log(ctx, level, text, "order", order, "status", status, "trace", span.SpanContext().TraceID(), "err", err)
	if status == http.StatusConflict || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // fails if the caller is gone
}

// pay charges an order once. A caller may repeat a request after each of its answers, since Paid
// comes before Charge, and the lock lets nobody come between the two. The lock makes that rare, not
// impossible: in the database, let a unique key on the order refuse the second payment.
func (s *service) pay(ctx context.Context, order string) (status int, text string, err error) {
	key := "payment/" + order
	if err := contract.ValidateKey(key); err != nil {
		return http.StatusBadRequest, "not the name of an order", err
	}
	var began, paid, charged bool
	err = s.locks.Do(ctx, key, func(ctx context.Context, _ *locker.Lock) (err error) {
		began = true
		if paid, err = s.orders.Paid(ctx, order); err != nil || paid {
			return err
		}
		err = s.orders.Charge(ctx, order) // ctx ends if the lock is lost
		charged = err == nil
		return err
	}, locker.WithWait(waitLimit))
	switch {
	case charged: // err, if there is one, is about the release: the lock is free when its lease ends
		return http.StatusCreated, "paid", err
	case paid:
		return http.StatusOK, "this order was paid before", err
	case began: // the work failed, or the lock was lost: another request may be at work already
		return http.StatusInternalServerError, "the outcome is unknown: repeat the request to learn it", err
	case errors.Is(err, locker.ErrHeld):
		return http.StatusConflict, "another request pays this order", err
	}
	return http.StatusServiceUnavailable, "nothing was charged: no lock to be had", err
}

// ledger stands for the database and the provider in this example.
type ledger struct {
	mu   sync.Mutex
	paid map[string]bool
}

func newLedger() *ledger { return &ledger{paid: map[string]bool{}} }

func (l *ledger) Paid(_ context.Context, order string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.paid[order], nil
}

// Charge takes a while, as a provider does.
func (l *ledger) Charge(ctx context.Context, order string) error {
	select {
	case <-time.After(300 * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paid[order] = true
	return nil
}
