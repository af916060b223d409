package rueidis

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/rueidis"
)

const (
	silence = time.Second // how long the first connection may leave calls without an answer
	tries   = 3           // connections of the pool that are tried: some may be as silent as the first
)

// A first is the connection that all calls share, until it falls silent. Then they go over a second one,
// until the first answers or rueidis has given it up. A cluster's client does not tell which node a call
// goes to, so its calls stay where they are.
type first struct {
	mu    sync.Mutex
	calls int       // without an answer
	since time.Time // the last answer, or when the oldest call was sent that came after it
	doubt *doubt    // nil: it answers
}

// A doubt is whether the first connection still answers.
type doubt struct {
	since   time.Time     // what was sent then has no answer
	settled chan struct{} // closed when it is known whether there is a second connection

	calls  sync.RWMutex // held for reading by each call over the second connection
	second client.DedicatedClient
	broke  atomic.Bool // the second connection did
}

// line returns the connection for a call, and what to do after the call with its error. While a second
// connection is being opened, line waits.
func (e executor) line(ctx context.Context) (over client.CommandClient, after func(error), err error) {
	if e.cluster {
		return e.client, func(error) {}, nil
	}
	if d := e.silent(); d != nil {
		select {
		case <-d.settled:
		case <-ctx.Done():
			return nil, nil, driver.NotSent(ctx, e.addr(), ctx.Err())
		}
		if d.calls.TryRLock() { // else it is being closed
			if d.second != nil && !d.broke.Load() {
				return d.second, func(err error) { d.after(ctx, err) }, nil
			}
			d.calls.RUnlock()
		}
	}
	e.first.before()
	return e.client, func(err error) { e.after(ctx, err) }, nil
}

func (d *doubt) after(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		d.broke.Store(true)
	}
	d.calls.RUnlock()
}

func (f *first) before() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.calls == 1 {
		f.since = time.Now()
	}
}

// after begins a doubt if the ctx of a call has ended and nothing was answered.
func (e executor) after(ctx context.Context, err error) {
	f := &e.first
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls--
	switch {
	case err == nil || ctx.Err() == nil:
		f.since = time.Now()
	case f.doubt == nil:
		e.begin()
	}
}

// silent returns a doubt that has lasted for long.
func (e executor) silent() *doubt {
	f := &e.first
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.doubt == nil && f.calls == 0 || time.Since(f.since) < silence:
		return nil
	case f.doubt == nil:
		e.begin()
	}
	return f.doubt
}

func (e executor) begin() {
	e.first.doubt = &doubt{since: e.first.since, settled: make(chan struct{})}
	go e.settle(e.first.doubt)
}

// settle ends a doubt. Nothing but a PING is sent twice.
func (e executor) settle(d *doubt) {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = ping(context.Background(), e.client)
	}()
	select {
	case <-answered:
	case <-time.After(time.Until(d.since.Add(silence))):
		d.second = e.open(answered)
	}
	close(d.settled)
	<-answered
	e.first.mu.Lock()
	e.first.doubt, e.first.since = nil, time.Now()
	e.first.mu.Unlock()
	d.calls.Lock() // after the last one
	defer d.calls.Unlock()
	if d.second != nil {
		d.second.Close()
		d.second = nil
	}
}

// open opens a connection that answers. It returns nil if none does, or when the first one has answered.
func (e executor) open(answered <-chan struct{}) client.DedicatedClient {
	opened := make(chan client.DedicatedClient)
	go func() {
		var second client.DedicatedClient
		for n := 0; n < tries && second == nil; n++ {
			second = e.dedicate()
		}
		select {
		case opened <- second:
		case <-answered:
			if second != nil {
				second.Close()
			}
		}
	}()
	select {
	case second := <-opened:
		return second
	case <-answered:
		return nil
	}
}

func (e executor) dedicate() client.DedicatedClient {
	c, _ := e.client.Dedicate()
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	if ping(ctx, c) != nil {
		c.Close()
		return nil
	}
	return c
}

func ping(ctx context.Context, c client.CommandClient) error {
	return c.Do(ctx, command(c, []any{"PING"})).NonRedisError()
}
