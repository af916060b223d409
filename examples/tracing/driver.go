package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// request is one that the driver sends, and what is to come of it.
type request struct {
	name   string // of the root of its trace
	to     *process
	order  order
	answer int // the status

	ctx  context.Context // of its root
	held chan struct{}   // closed when it has the lock
}

const (
	arrival  = 10 * time.Millisecond // between two requests
	patience = 3 * time.Second       // with a server that may not be there
)

// play lets all requests contend for the lock, and takes it from the last one. What was seen of that comes from the
// driver and both processes.
func play(ctx context.Context, addr string, p plan) (requests []*request, seen telemetry, err error) {
	conn := redis.NewClient(&redis.Options{Addr: addr})
	defer conn.Close()
	if err := reach(ctx, conn); err != nil {
		return nil, telemetry{}, fmt.Errorf("no server at %s: %w", addr, err)
	}
	key := "tracing/" + rand.Text()[:8] // a name of its own for each run: others may use the same server
	var apps []*process
	for _, service := range []string{"app-1", "app-2"} {
		app, err := start(ctx, task{Service: service, Addr: addr, Key: key, TTL: p.ttl})
		if err != nil {
			return nil, telemetry{}, err
		}
		defer app.stop()
		apps = append(apps, app)
	}
	d := newDriver(ctx)
	add := func(name string, to *process, o order, answer int) *request {
		r := &request{name: name, to: to, order: o, answer: answer, held: make(chan struct{})}
		requests = append(requests, r)
		return r
	}

	// The first one keeps the lock until two others have found it held.
	var short, all sync.WaitGroup
	first := d.send(&all, add("request 1", apps[0], order{Work: p.work, UntilTold: true}, http.StatusOK))
	d.wait(first.held)
	d.send(&short, add("gives up", apps[1], order{Work: p.work, Wait: p.work * 3 / 4}, http.StatusServiceUnavailable))
	d.send(&short, add("TryLock", apps[1], order{Work: p.work, Try: true}, http.StatusConflict))
	for i := 1; i < p.requests; i++ {
		d.send(&all, add(fmt.Sprintf("request %d", i+1), apps[i%2], order{Work: p.work}, http.StatusOK))
	}
	short.Wait()
	apps[0].tell()
	all.Wait()

	last := d.send(&all, add("loses it", apps[1], order{UntilTold: true}, http.StatusInternalServerError))
	d.wait(last.held)
	d.steal(conn, key, last)
	all.Wait()
	if d.ctx.Err() != nil {
		return nil, telemetry{}, context.Cause(d.ctx)
	}

	seen, err = d.sdk.collect(ctx)
	for _, app := range apps {
		if err != nil {
			break
		}
		var of telemetry
		of, err = app.finish()
		seen.add(of)
	}
	return requests, seen, err
}

func reach(ctx context.Context, conn *redis.Client) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer in %v", patience))
	defer cancel()
	return conn.Ping(ctx).Err()
}

// driver sends requests. The first one that goes wrong ends all.
type driver struct {
	ctx  context.Context
	fail context.CancelCauseFunc
	sdk  *sdk
}

func newDriver(ctx context.Context) *driver {
	d := &driver{sdk: newSDK("driver")}
	d.ctx, d.fail = context.WithCancelCause(ctx)
	return d
}

// send returns before the request is answered, but not before the next one is to come.
func (d *driver) send(group *sync.WaitGroup, r *request) *request {
	group.Go(func() {
		if err := d.post(r); err != nil {
			d.fail(fmt.Errorf("%s: %w", r.name, err))
		}
	})
	select {
	case <-time.After(arrival):
	case <-d.ctx.Done():
	}
	return r
}

func (d *driver) wait(held <-chan struct{}) {
	select {
	case <-held:
	case <-d.ctx.Done():
	}
}

// steal does to the lock of a request what no software that shares the server should do.
func (d *driver) steal(conn *redis.Client, key string, from *request) {
	if d.ctx.Err() != nil {
		return
	}
	ctx, span := d.sdk.tracer().Start(from.ctx, "DEL key", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	n, err := conn.Del(ctx, key).Result()
	if err == nil && n == 0 {
		err = errors.New("the lease was over before it could be deleted: try a longer -ttl")
	}
	if err != nil {
		d.fail(err)
	}
}

// post makes the root of a trace, whose name goes with the request: see https://www.w3.org/TR/trace-context/
func (d *driver) post(r *request) error {
	ctx, span := d.sdk.tracer().Start(d.ctx, r.name, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	r.ctx = ctx
	body, err := json.Marshal(r.order)
	if err != nil {
		return err
	}
	listening := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			if code == http.StatusProcessing {
				close(r.held)
			}
			return nil
		},
	})
	req, err := http.NewRequestWithContext(listening, http.MethodPost, "http://"+r.to.addr+"/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answered(span, resp.StatusCode)
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != r.answer {
		err = fmt.Errorf("answered with %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return err
}
