// Package silent tests what becomes of a lock when a connection falls silent for good, as it does
// when a load balancer or a NAT forgets it: nothing is reset, and no byte comes any more.
package silent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A Proxy stands between a client and a server of any protocol over TCP.
type Proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	swallow bool          // the connection on which the client asks next
	reply   bool          // and its request arrives: only the reply is lost
	met     chan struct{} // closed when there is one
	mute    bool          // all connections are silent
	lost    int64         // commands of Redis on connections that fell silent
	open    map[net.Conn]bool
}

// Before returns a proxy for the server at target. It ends with the test.
func Before(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, open: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.link(client) })
		}
	})
	tb.Cleanup(func() {
		p.Stop()
		running.Wait()
	})
	return p
}

// Addr is the address for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Swallow makes the connection on which a client asks for something next silent for good. If reply is true,
// the server still gets what the client writes. The channel is closed when a connection is silent.
func (p *Proxy) Swallow(reply bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow, p.reply, p.met = true, reply, make(chan struct{})
	return p.met
}

// Mute makes all connections silent for good, those of the future too.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

// Cut ends all connections, those of the future too.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
	p.open = nil
}

// Stop is Cut, and nobody listens at the address any more.
func (p *Proxy) Stop() {
	p.listener.Close()
	p.Cut()
}

// link passes bytes on until one side ends, or for good until it is swallowed.
func (p *Proxy) link(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil || !p.add(client, server) {
		client.Close()
		return
	}
	var mu sync.Mutex
	isSilent := false // nothing goes to the client any more
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = copyIf(client, server, func([]byte) bool { mu.Lock(); defer mu.Unlock(); return !isSilent })
		mu.Lock()
		defer mu.Unlock()
		if !isSilent {
			client.Close()
		}
	})
	lost, fell := false, false
	_, _ = copyIf(server, client, func(b []byte) bool {
		if silent, reply := p.takes(b); silent {
			mu.Lock()
			isSilent = true
			mu.Unlock()
			lost, fell = !reply, true
		}
		if fell {
			p.loses(commandsIn(b))
		}
		return !lost
	})
	server.Close()
	back.Wait()
	client.Close()
}

// takes tells whether the connection on which the client has just written b falls silent.
func (p *Proxy) takes(b []byte) (silent, reply bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mute:
		return true, false
	case !p.swallow || !asks(b):
		return false, false
	}
	p.swallow = false
	close(p.met)
	return true, p.reply
}

// loses counts commands that have no answer.
func (p *Proxy) loses(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost += n
}

func (p *Proxy) swallowed() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Proxy) add(all ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range all {
		if p.open == nil {
			c.Close()
			continue
		}
		p.open[c] = true
	}
	return p.open != nil
}

// copyIf drops what it reads while pass is false.
func copyIf(to io.Writer, from io.Reader, pass func([]byte) bool) (n int64, err error) {
	buffer := make([]byte, 32<<10)
	for {
		k, err := from.Read(buffer)
		if err != nil {
			return n, err
		}
		if !pass(buffer[:k]) {
			continue
		}
		if _, err := to.Write(buffer[:k]); err != nil {
			return n, err
		}
		n += int64(k)
	}
}

const (
	ttl      = 2 * time.Second
	overdue  = 2 * time.Second // how much longer than its TTL a call may take
	machine  = time.Minute     // for a machine that stands still: without a limit, a call hangs for good
	patience = 2 * time.Minute // for a busy machine
)

// soon is how soon after the release a waiter has the lock whose attempt falls silent, on a machine that
// never stands still. The Client gives the attempt up after 2 s and makes the next one at once, over another
// connection. Over one that a client library tests by itself it would have to wait.
const soon = 3 * time.Second

// A Store has locks, and what people ask of them.
type Store interface {
	backends.Store
	backends.Inspector
	backends.Lister
	backends.Evictor
	backends.Identifier
}

// Run tests the store that over makes of a server at an address. Before, the server is at addr.
func Run[S Store, R any](t *testing.T, addr string, over func(t *testing.T, addr string) S, check func(S, context.Context) (R, error)) {
	locks := func(t *testing.T, addr string) locker.Locker { return single.New(over(t, addr)) }
	for name, reply := range map[string]bool{"the request is lost": false, "the reply is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("TryLock", func(t *testing.T) {
				t.Parallel()
				trial.WhileBusy(t, ttl, func(take testing.TB, ttl time.Duration) {
					ends(take, addr, ttl, func(addr string) locker.Locker { return locks(t, addr) }, reply)
				})
			})
			t.Run("a waiter", func(t *testing.T) {
				t.Parallel()
				trial.WhileBusy(t, soon, func(take testing.TB, soon time.Duration) {
					waits(take, addr, soon, func(addr string) locker.Locker { return locks(t, addr) }, reply)
				})
			})
		})
	}
	t.Run("holders", func(t *testing.T) {
		t.Parallel()
		trial.WhileBusy(t, 5*time.Second, func(take testing.TB, ttl time.Duration) {
			holds(take, t.Name(), ttl, func(addr string) locker.Locker { return locks(t, addr) }, addr)
		})
	})
	t.Run("calls for people", func(t *testing.T) {
		t.Parallel()
		looks(t, addr, func(addr string) map[string]func(context.Context) error {
			s := over(t, addr)
			return map[string]func(context.Context) error{
				"Check":   func(ctx context.Context) error { _, err := check(s, ctx); return err },
				"Inspect": func(ctx context.Context) error { _, err := s.Inspect(ctx, "key"); return err },
				"List":    func(ctx context.Context) error { _, err := s.List(ctx, "key", "", 1); return err },
				"Evict": func(ctx context.Context) error {
					_, err := s.Evict(ctx, "key", "print", backends.Eviction{})
					return err
				},
				"Identify": func(ctx context.Context) error { _, err := s.Identify(ctx); return err },
			}
		})
	})
}

// ends is about a TryLock without a deadline, and about the calls behind it.
func ends(t testing.TB, addr string, ttl time.Duration, over func(addr string) locker.Locker, reply bool) {
	proxy, key := Before(t, addr), fmt.Sprint(t.Name(), ttl)
	c, direct := locker.New(over(proxy.Addr()), locker.WithTTL(ttl)), locker.New(over(addr))
	warm(t, c, key)
	slowest := pulse(direct, key+" of the pulse")
	met, began := proxy.Swallow(reply), time.Now()
	type result struct {
		l   *locker.Lock
		err error
		at  time.Duration
	}
	tried, behind := make(chan result, 1), make(chan result, 1)
	go func() {
		l, err := c.TryLock(context.Background(), key)
		tried <- result{l, err, time.Since(began)}
	}()
	<-met
	go func() {
		l, err := c.Lock(context.Background(), key, locker.WithWait(patience))
		behind <- result{l, err, time.Since(began)}
	}()
	var r, next result
	select {
	case r = <-tried:
	case <-time.After(ttl + overdue + machine):
		t.Fatalf("TryLock did not return within %v", ttl+overdue+machine)
	}
	if r.err == nil { // the scene was not played
		_ = r.l.Unlock(t.Context())
	}
	next = <-behind
	still := slowest()
	t.Logf("TryLock after %v, the lock behind it after %v, with %v for a pair past the proxy: %v", r.at, next.at, still, r.err)
	if r.err == nil || errors.Is(r.err, locker.ErrHeld) || errors.Is(r.err, context.DeadlineExceeded) || outcome.Unsent(r.err) || outcome.Permanent(r.err) {
		t.Errorf("TryLock = %v, %v; want an unknown outcome", r.l, r.err)
	}
	names(t, r.err, proxy)
	want := ttl + overdue + 4*still // attempts over a good connection may be given up, too
	if r.at > want {
		t.Errorf("TryLock returned after %v; want it within %v", r.at, want)
	}
	if next.err != nil {
		t.Fatalf("the Lock behind it: %v", next.err)
	}
	if next.at > want {
		t.Errorf("the Lock behind it took %v; want it within %v", next.at, want)
	}
	if err := next.l.Unlock(t.Context()); err != nil {
		t.Logf("Unlock: %v", err)
		return
	}
	l, err := direct.TryLock(t.Context(), key) // nobody waits: what is there is left over, and would end with its lease
	if err != nil {
		t.Fatalf("the attempt has left something: %v", err)
	}
	_ = l.Unlock(t.Context())
}

// waits is about a waiter whose attempt after the release falls silent. What the Client adds, 3 s at
// most, is a sentence of lockertest in fake time.
func waits(t testing.TB, addr string, soon time.Duration, over func(addr string) locker.Locker, reply bool) {
	proxy, key := Before(t, addr), fmt.Sprint(t.Name(), soon)
	c, holder := locker.New(over(proxy.Addr())), locker.New(over(addr))
	warm(t, c, key)
	held, err := holder.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		l, err := c.Lock(context.Background(), key, locker.WithWait(30*time.Second))
		if err == nil {
			defer func() { _ = l.Unlock(context.Background()) }()
		}
		got <- err
	}()
	time.Sleep(500 * time.Millisecond) // it waits, or is about to: both are good
	met := proxy.Swallow(reply)
	if err := held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	released := time.Now()
	slowest := pulse(holder, key+" of the pulse")
	<-met
	select {
	case err := <-got:
		if err != nil {
			t.Errorf("the waiter has no lock within its wait: %v", err)
		}
		took, still := time.Since(released).Round(time.Millisecond), slowest()
		t.Logf("the waiter has the lock after %v", took)
		if want := soon + 4*still; took > want { // attempts over a good connection may be given up, too
			t.Errorf("the waiter has the lock %v after its release; want it within %v, with %v for a pair past the proxy", took, want, still)
		}
	case <-time.After(patience + machine):
		t.Error("the waiter hangs")
	}
}

// minHold needs no option of a store, although its default limit of a TTL is 30 s.
const minHold = 14 * time.Minute

// holds is about locks that are held while their connections fall silent under a renewal: the request is
// lost, or the reply. The server is well, so no lock is lost.
func holds(t testing.TB, prefix string, ttl time.Duration, over func(addr string) locker.Locker, addr string) {
	var all sync.WaitGroup
	hold := func(reply bool, opts ...locker.Option) {
		proxy, key := Before(t, addr), fmt.Sprint(prefix, reply, rand.Text()) // one of before may have its minimum hold
		c := locker.New(over(proxy.Addr()), locker.WithTTL(ttl))
		warm(t, c, key)
		l, err := c.Lock(t.Context(), key, append(opts, locker.WithWait(patience))...)
		if err != nil {
			t.Fatal(err)
		}
		met := proxy.Swallow(reply)
		all.Go(func() {
			<-met
			fell := time.Now()
			select {
			case <-l.Context().Done():
				t.Errorf("the lock is lost %v after its connection fell silent: %v", time.Since(fell).Round(time.Millisecond), context.Cause(l.Context()))
				return
			case <-time.After(3 * ttl):
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			if len(opts) == 0 {
				return
			}
			if _, err := locker.New(over(addr)).TryLock(t.Context(), key); !errors.Is(err, locker.ErrHeld) {
				t.Errorf("TryLock before the end of the minimum hold = %v; want it held", err)
			}
		})
	}
	for _, reply := range []bool{false, true} {
		hold(reply)
		hold(reply, locker.WithMinHold(minHold))
	}
	all.Wait()
}

// pulse takes key and releases it, again and again, past the proxy. slowest ends that and returns how
// long a pair took at most: what the machine and the server add to everything else.
func pulse(c *locker.Client, key string) (slowest func() time.Duration) {
	stop, most := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var longest time.Duration
		for {
			began := time.Now()
			if l, err := c.Lock(context.Background(), key, locker.WithWait(patience)); err == nil {
				_ = l.Unlock(context.Background())
			}
			longest = max(longest, time.Since(began))
			select {
			case <-stop:
				most <- longest
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() time.Duration { close(stop); return <-most }
}

// warm opens a connection and leaves it idle. Nothing is silent yet. On a busy machine a release may get
// no answer before the lease ends, which may cost the connection: then warm opens another one.
func warm(t testing.TB, c *locker.Client, key string) {
	t.Helper()
	for range 5 {
		l, err := c.Lock(t.Context(), key, locker.WithWait(patience))
		if err != nil {
			t.Fatal(err)
		}
		if err = l.Unlock(t.Context()); err == nil {
			return
		}
		t.Logf("opened again: %v", err)
	}
	t.Fatal("no release was confirmed")
}

// names fails if an error does not name the server.
func names(t testing.TB, err error, server *Proxy) {
	t.Helper()
	if !strings.Contains(fmt.Sprint(err), server.Addr()) {
		t.Errorf("%v does not name %s", err, server.Addr())
	}
}

// looks is about calls without a deadline that no lease ends, all at once. through makes them, by way
// of the proxy.
func looks(t *testing.T, addr string, through func(addr string) map[string]func(context.Context) error) {
	proxy := Before(t, addr)
	calls := through(proxy.Addr())
	for name, call := range calls { // they open connections, and leave them idle
		for began := time.Now(); ; {
			err := call(t.Context())
			if err == nil {
				break
			}
			if time.Since(began) > patience {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	proxy.Mute()
	type result struct {
		name string
		err  error
	}
	ended, began := make(chan result, len(calls)), time.Now()
	for name, call := range calls {
		go func() { ended <- result{name, call(context.Background())} }()
	}
	late := time.After(bounded.Limit + machine)
	for len(calls) > 0 {
		select {
		case r := <-ended:
			delete(calls, r.name)
			t.Logf("%s after %v: %v", r.name, time.Since(began).Round(time.Millisecond), r.err)
			if r.err == nil {
				t.Errorf("%s: nobody answers, and there is no error", r.name)
			}
			if r.name != "Evict" && strings.Contains(fmt.Sprint(r.err), "outcome") {
				t.Errorf("%s: %v; what only reads has no outcome", r.name, r.err)
			}
			names(t, r.err, proxy)
		case <-late:
			t.Fatalf("%v: did not end within %v", slices.Sorted(maps.Keys(calls)), bounded.Limit+machine)
		}
	}
	proxy.Cut() // else some pools wait for an answer when they are closed
}
