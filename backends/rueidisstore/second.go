package rueidisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/rueidis"
)

const (
	silence = time.Second // how long the first connection may leave calls without an answer
	tries   = 8           // connections of the pool that are tried at once, if an idle one of it is silent too

	// A connection on which nothing was answered for so long is tested before the next call. A waiter
	// looks more often, so that costs it nothing.
	idle = 7 * time.Second
)

// A first is the connection to a server that all calls share, until it falls silent. Then they go over a second
// one, until the first answers or rueidis has given it up.
type first struct {
	client func() client.Client // that leads to the server alone; nil: the server has left the cluster
	addr   func() string
	left   *atomic.Int32 // see dedicate

	mu    sync.Mutex
	calls int           // without an answer
	since time.Time     // the last answer, or when the oldest call was sent that came after it
	idle  time.Duration // before that call
	doubt *doubt        // nil: it answers
}

func newFirst(c func() client.Client, addr func() string, left *atomic.Int32) *first {
	return &first{client: c, addr: addr, left: left, since: time.Now()}
}

// A doubt is whether the first connection still answers.
type doubt struct {
	from    time.Time       // from then on, calls wait until it is settled
	settled chan struct{}   // closed when it is known whether there is a second connection
	over    context.Context // ends with the doubt: the first connection has answered, or rueidis has given it up
	end     context.CancelFunc

	calls  sync.RWMutex // held for reading by each call over the second connection
	second client.DedicatedClient
	addr   string      // of the server that it leads to
	broke  atomic.Bool // the second connection did, or leads to a server that is a replica now
}

// over makes a call over one of the connections. While a second one is being opened, it waits.
func (e executor) over(ctx context.Context, call func(client.CommandClient) error) (err error) {
	f := e.firstConn()
	if f == nil {
		return call(e.client)
	}
	if d := f.doubted(); d != nil {
		select {
		case <-d.settled:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return driver.NotSent(ctx, f.addr(), ctx.Err())
		}
		if d.calls.TryRLock() { // else it is being closed
			defer d.calls.RUnlock()
			if d.second != nil && !d.broke.Load() && d.addr == f.addr() { // a Sentinel's client may know another master
				return d.call(ctx, call)
			}
		}
	}
	idle := f.before()
	err = errGone
	defer func() { err = f.after(ctx, err, idle) }()
	err = call(e.client)
	return err
}

// errGone is the error of a call that has not returned: rueidis panicked, or ended the goroutine.
var errGone = errors.New("the client library ended the call")

func (d *doubt) call(ctx context.Context, call func(client.CommandClient) error) (err error) {
	err = errGone
	defer func() {
		if !isAnswer(err) && ctx.Err() == nil || driver.IsDemoted(err) || driver.IsMoved(err) {
			d.broke.Store(true)
		}
	}()
	err = call(d.second)
	return err
}

func isAnswer(err error) bool { return err == nil || errors.As(err, new(*driver.ReplyError)) }

// before tells for how long the connection was idle.
func (f *first) before() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.calls == 1 {
		now := time.Now()
		f.since, f.idle = now, now.Sub(f.since)
	}
	return f.idle
}

// after begins a doubt if the ctx of a call has ended and nothing was answered.
func (f *first) after(ctx context.Context, err error, idle time.Duration) error {
	left := !isAnswer(err) && ctx.Err() != nil
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls--
	if !left {
		f.since, f.idle = time.Now(), 0
		return driver.EndedIdle(err, idle)
	}
	if f.doubt == nil {
		late := f.since.Add(silence)
		f.begin(late, late)
	}
	return onTheWay{err, f.doubt.over}
}

// onTheWay is the error of a call that may still arrive over the first connection.
type onTheWay struct {
	error
	over context.Context
}

func (e onTheWay) Unwrap() error         { return e.error }
func (e onTheWay) Late() context.Context { return e.over }

// doubted returns the doubt for which a call must wait. There is one if nothing was answered for a while.
func (f *first) doubted() *doubt {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.doubt == nil {
		switch quiet := now.Sub(f.since); {
		case f.calls > 0 && quiet >= silence:
			f.begin(now, now)
		case f.calls == 0 && quiet >= idle:
			f.begin(now, now.Add(silence))
		}
	}
	if f.doubt == nil || now.Before(f.doubt.from) {
		return nil
	}
	return f.doubt
}

func (f *first) doubtful() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.doubt != nil
}

// begin asks the first connection. If it has not answered at late, a second one is opened.
func (f *first) begin(from, late time.Time) {
	d := &doubt{from: from, settled: make(chan struct{})}
	d.over, d.end = context.WithCancel(context.Background())
	f.doubt = d
	go f.settle(d, late)
}

// settle ends a doubt. Nothing but a PING is sent twice.
func (f *first) settle(d *doubt, late time.Time) {
	to, answered := f.client(), make(chan struct{})
	go func() {
		defer close(answered)
		if to != nil {
			_ = ping(context.Background(), to)
		}
	}()
	timer := time.NewTimer(time.Until(late))
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
		d.addr = f.addr()
		d.second = f.openSecond(to, answered)
	}
	close(d.settled)
	<-answered
	f.mu.Lock()
	f.doubt, f.since, f.idle = nil, time.Now(), 0
	f.mu.Unlock()
	d.end()
	d.calls.Lock() // after the last one
	defer d.calls.Unlock()
	if d.second != nil {
		d.second.Close()
		d.second = nil
	}
}

// openSecond takes a connection out of the pool that answers. It returns nil if there is none, or when the first
// one has answered.
func (f *first) openSecond(to client.Client, answered <-chan struct{}) client.DedicatedClient {
	opened := make(chan client.DedicatedClient)
	waiting, leave := context.WithCancel(context.Background())
	defer leave()
	go func() {
		second, wasIdle := f.answering(waiting, to, 1)
		if second.c == nil && wasIdle {
			second, _ = f.answering(waiting, to, tries)
		}
		select {
		case opened <- second.c:
		case <-answered:
			second.giveBack()
		}
	}()
	select {
	case second := <-opened:
		return second
	case <-answered:
		return nil
	}
}

// answering takes n connections out of the pool, and returns the first that answers. wasIdle tells that one
// without an answer was in the pool before: a new one would have been answered while it was opened.
func (f *first) answering(waiting context.Context, to client.Client, n int) (_ taken, wasIdle bool) {
	all, silent := make(chan taken, n), make(chan bool, n)
	for range n {
		go func() {
			began := time.Now()
			second, err := dedicate(waiting, f.left, to)
			if err != nil {
				silent <- false
				return
			}
			idle := time.Since(began) < silence
			ctx, cancel := context.WithTimeout(context.Background(), silence)
			defer cancel()
			if ping(ctx, second.c) == nil {
				all <- second
				return
			}
			silent <- idle && ctx.Err() != nil // and not refused
			second.c.Close()                   // takes up to a second
		}()
	}
	for left := n; left > 0; left-- {
		select {
		case first := <-all:
			go func() {
				for range left - 1 {
					select {
					case other := <-all:
						other.giveBack()
					case <-silent:
					}
				}
			}()
			return first, false
		case idle := <-silent:
			wasIdle = wasIdle || idle
		}
	}
	return taken{}, wasIdle
}

func ping(ctx context.Context, c client.CommandClient) error {
	return c.Do(ctx, command(c, []any{"PING"})).NonRedisError()
}
