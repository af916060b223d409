package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// bench is a service over a store, with a provider that the test controls.
type bench struct {
	*ledger
	locks   *locker.Client
	handler http.Handler
	spans   *tracetest.SpanRecorder
	charges atomic.Int32
	charge  func(ctx context.Context, order string) error // nil: that of the ledger
}

func (b *bench) Charge(ctx context.Context, order string) error {
	b.charges.Add(1)
	if b.charge != nil {
		return b.charge(ctx, order)
	}
	return b.ledger.Charge(ctx, order)
}

func newBench(store backends.Store) *bench {
	b := &bench{ledger: newLedger(), spans: tracetest.NewSpanRecorder()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans))
	b.locks = newLocks(single.New(store), tracers)
	b.handler = newService(slog.New(slog.DiscardHandler), b.locks, tracers, b)
	return b
}

func (b *bench) post(order string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/orders/"+order+"/payment", nil)
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

func (b *bench) want(t *testing.T, w *httptest.ResponseRecorder, status int, charges int32) {
	t.Helper()
	if w.Code != status || b.charges.Load() != charges {
		t.Errorf("status %d (%s) and %d charges; want %d and %d", w.Code, strings.TrimSpace(w.Body.String()), b.charges.Load(), status, charges)
	}
	retry := status == http.StatusConflict || status == http.StatusServiceUnavailable
	if got := w.Header().Get("Retry-After"); retry != (got == "1") {
		t.Errorf("status %d with Retry-After %q", status, got)
	}
}

func TestTwoRequestsAtOnceChargeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(memory.New())
		answers := make(chan *httptest.ResponseRecorder, 2)
		for range 2 {
			go func() { answers <- b.post("42") }()
		}
		first, second := <-answers, <-answers
		if first.Code != http.StatusCreated {
			first, second = second, first
		}
		b.want(t, first, http.StatusCreated, 1)
		b.want(t, second, http.StatusOK, 1)
		b.want(t, b.post("43"), http.StatusCreated, 2)
	})
}

func TestARequestWaitsOnlySoLongForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(memory.New())
		b.charge = func(ctx context.Context, order string) error {
			time.Sleep(waitLimit + time.Second)
			return b.ledger.Charge(ctx, order)
		}
		first := make(chan *httptest.ResponseRecorder, 1)
		go func() { first <- b.post("42") }()
		synctest.Wait()
		began := time.Now()
		b.want(t, b.post("42"), http.StatusConflict, 1)
		if took := time.Since(began); took != waitLimit {
			t.Errorf("the answer took %v; want %v", took, waitLimit)
		}
		b.want(t, <-first, http.StatusCreated, 1)
	})
}

func TestNothingIsChargedWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, fault := range map[string]backendtest.Fault{
			"fails": backendtest.Fail, "refuses": backendtest.Permanent, "hangs": backendtest.Hang, "loses the reply": backendtest.LoseReply,
		} {
			faults := new(backendtest.Faults)
			b := newBench(faults.Store(memory.New()))
			faults.Set(backendtest.SetNX, fault)
			t.Log("the store " + name)
			b.want(t, b.post("42"), http.StatusServiceUnavailable, 0)
			faults.Clear()
			if err := b.locks.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			b.want(t, b.post("42"), http.StatusCreated, 1)
		}
	})
}

func TestAPaymentIsPaidEvenIfTheReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := new(backendtest.Faults)
		b := newBench(faults.Store(memory.New()))
		faults.Set(backendtest.DeleteIf, backendtest.Permanent)
		b.want(t, b.post("42"), http.StatusCreated, 1)
	})
}

func TestTheChargeStopsWhenTheLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		b := newBench(store)
		var cause error
		b.charge = func(ctx context.Context, _ string) error {
			store.Delete("payment/42")
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}
		b.want(t, b.post("42"), http.StatusInternalServerError, 1)
		if !errors.Is(cause, locker.ErrLost) {
			t.Errorf("the charge ended with %v", cause)
		}
		b.charge = nil
		b.want(t, b.post("42"), http.StatusCreated, 2)
	})
}

func TestAFailedChargeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(memory.New())
		b.charge = func(context.Context, string) error { return errors.New("no reply from the provider") }
		b.want(t, b.post("42"), http.StatusInternalServerError, 1)
	})
}

func TestABadOrderSendsNothing(t *testing.T) {
	faults := new(backendtest.Faults)
	b := newBench(faults.Store(memory.New()))
	b.want(t, b.post(strings.Repeat("4", locker.MaxKeyLength)), http.StatusBadRequest, 0)
	if n := faults.Calls(backendtest.All); n != 0 {
		t.Errorf("%d calls of the store", n)
	}
}

func TestTheLockIsPartOfTheTraceOfTheRequest(t *testing.T) {
	b := newBench(memory.New())
	const caller = "4bf92f3577b34da6a3ce929d0e0e4736"
	r := httptest.NewRequest(http.MethodPost, "/orders/42/payment", nil)
	r.Header.Set("Traceparent", "00-"+caller+"-00f067aa0ba902b7-01")
	b.handler.ServeHTTP(httptest.NewRecorder(), r)
	names := map[string]bool{}
	for _, span := range b.spans.Ended() {
		names[span.Name()] = true
		if id := span.SpanContext().TraceID().String(); id != caller {
			t.Errorf("span %q is in trace %s; want %s", span.Name(), id, caller)
		}
	}
	for _, want := range []string{"POST /orders/{order}/payment", "lock acquire", "lock hold"} {
		if !names[want] {
			t.Errorf("no span %q in %v", want, names)
		}
	}
}

// TestShutdownWaitsForPayments also sees that the lock is free when serve returns.
func TestShutdownWaitsForPayments(t *testing.T) {
	store := memory.New()
	b := newBench(store)
	charging, release := make(chan struct{}), make(chan struct{})
	b.charge = func(ctx context.Context, order string) error {
		close(charging)
		<-release
		return b.ledger.Charge(ctx, order)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served, answered := make(chan error, 1), make(chan int, 1)
	go func() { served <- serve(ctx, listener, b.handler, b.locks) }()
	go func() {
		resp, err := http.Post("http://"+listener.Addr().String()+"/orders/42/payment", "", nil)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	<-charging
	stop()
	select {
	case err := <-served:
		t.Fatalf("serve returned during a payment: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if status := <-answered; status != http.StatusCreated {
		t.Errorf("status %d", status)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, _, held := store.Get("payment/42"); held {
		t.Error("the lock is held after the end")
	}
}

// TestTheWholeServiceOnTheEmbeddedServer asks it as curl does.
func TestTheWholeServiceOnTheEmbeddedServer(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	log := &listening{addr: make(chan string, 1)}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, slog.New(slog.NewTextHandler(log, nil)), "127.0.0.1:0", "") }()
	select {
	case addr := <-log.addr:
		resp, err := http.Post("http://"+addr+"/orders/42/payment", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated || string(text) != "paid\n" {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
		stop()
	case err := <-ended:
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// listening finds the address of the service in its log.
type listening struct{ addr chan string }

func (l *listening) Write(p []byte) (int, error) {
	if _, addr, ok := bytes.Cut(p, []byte("msg=listening addr=")); ok {
		l.addr <- string(bytes.TrimSpace(addr))
	}
	return len(p), nil
}
