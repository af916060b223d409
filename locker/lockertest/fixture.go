package lockertest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A fixture is what one sentence works with: the Locker, the Disturber, and the checks.
type fixture struct {
	reporter
	Harness // with the defaults filled in

	locker  locker.Locker
	beneath beneath
	id      string        // makes keys unique on a server that others use too
	long    time.Duration // a ttl that does not end during a sentence
	short   time.Duration // a ttl whose end the sentence waits for
	// patience is the limit of what must happen soon. It is well under long: otherwise a lease that
	// ends by itself would look like a cleanup that works.
	patience time.Duration
	ctx      context.Context
	options  []locker.ClientOption // the tests of this package give Clients a bug by these
}

// reporter is what a sentence needs of a *testing.T. The tests of this package use another one, to
// check that a sentence fails for a Locker that breaks it.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
	Cleanup(func())
}

const (
	maxTTL  = 30 * time.Second       // of a store without options
	short   = 100 * time.Millisecond // a ttl whose end the test waits for, see fixture.short
	tick    = time.Millisecond       // between polls
	slack   = 50 * time.Millisecond  // in fake time: the limit of what takes no time by itself
	pollCap = 250 * time.Millisecond // the longest sleep of a waiter
	limit   = 5 * time.Minute        // of a sentence
	drained = 10 * time.Minute       // in fake time: until all work in the background is over
)

func newFixture(t *testing.T, r reporter, h Harness, s sentence) *fixture {
	if h.MaxTTL == 0 {
		h.MaxTTL = maxTTL
	}
	if h.Cause == nil {
		h.Cause = backendtest.ErrInjected
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	r.Cleanup(cancel)
	x := &fixture{reporter: r, Harness: h, id: rand.Text(), long: min(h.MaxTTL/2, 3*time.Minute), short: max(short, (h.Resolution / 3).Truncate(time.Millisecond)), ctx: ctx}
	x.patience = x.long / 3
	l, d := h.New(t)
	over, end := context.WithCancel(context.Background())
	x.locker, x.beneath = l, beneath{Disturber: d, x: x, needs: s.needs, over: over}
	x.Cleanup(func() {
		if h.Bubble {
			time.Sleep(drained)
		}
	})
	x.Cleanup(func() {
		if !h.NoFaults {
			d.Fault(All, nil)
		}
		end()
	})
	return x
}

// Context ends after limit, so that a call that hangs is reported.
func (x *fixture) Context() context.Context { return x.ctx }

// beneath is the Disturber. It checks that a sentence names what it needs.
type beneath struct {
	Disturber
	x     *fixture
	needs []need
	over  context.Context // ends with the sentence
}

func (b beneath) use(n need) {
	if !slices.Contains(b.needs, n) {
		b.x.Fatalf("the sentence needs a Disturber that can %s, and does not say so", n)
	}
}

func (b beneath) SetForeign(key string) { b.use(foreign); b.Disturber.SetForeign(key) }
func (b beneath) SetOther(key string)   { b.use(foreign); b.Disturber.SetOther(key) }
func (b beneath) Evict(key, by string)  { b.use(evicts); b.Disturber.Evict(key, by) }

func (b beneath) Fault(op Op, f backendtest.Fault) { b.use(faults); b.Disturber.Fault(op, b.ending(f)) }

func (b beneath) FaultOnce(op Op, all ...backendtest.Fault) {
	b.use(faults)
	for _, f := range all {
		b.Disturber.FaultOnce(op, b.ending(f))
	}
}

// ending ends the ctx of a call in f with the sentence. Otherwise a call whose ctx has no end would
// hang for ever, and a bubble waits for all its goroutines.
func (b beneath) ending(f backendtest.Fault) backendtest.Fault {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, execute func(context.Context) error) error {
		ctx, cancel := context.WithCancel(ctx)
		context.AfterFunc(b.over, cancel) // not when f returns: a watch that f began goes on
		return f(ctx, execute)
	}
}

// stall makes calls of op wait until release is called or the sentence ends.
func (x *fixture) stall(op Op) (release func()) {
	until := make(chan struct{})
	release = sync.OnceFunc(func() {
		x.beneath.Fault(op, nil)
		close(until)
	})
	x.Cleanup(release)
	x.beneath.Fault(op, backendtest.Stall(until, nil))
	return release
}

// key returns a key that no other sentence uses, and deletes it at the end of the sentence.
func (x *fixture) key(name string) string { return x.own(name + x.id + name) }

func (x *fixture) own(key string) string {
	x.Cleanup(func() { x.beneath.Delete(key) })
	return key
}

func (x *fixture) request(key string, ttl time.Duration) contract.Request {
	return contract.Request{Key: key, Token: rand.Text(), TTL: ttl, Turn: contract.Turn{Waiter: rand.Text()}}
}

// A grant is a lease, and when its Acquire began and returned.
type grant struct {
	contract.Lease
	ttl         time.Duration
	began, came time.Time
}

// bare names the lease. Since it has no Expires, only the store knows whether it has ended.
func (g grant) bare() contract.Lease {
	return contract.Lease{Key: g.Key, Token: g.Token, Owner: g.Owner}
}

// grant acquires key with a new token, which must succeed.
func (x *fixture) grant(key string, ttl time.Duration) grant {
	x.Helper()
	return x.granted(x.request(key, ttl))
}

// granted makes a request that must be granted. In real time a short lease may have ended when the
// answer comes. Then granted asks for a longer one, and may have to wait for the end of the short
// one.
func (x *fixture) granted(req contract.Request) grant {
	x.Helper()
	var leftover time.Time // a short lease that was granted too late has ended by then
	for {
		began := time.Now()
		lease, err := x.locker.Acquire(x.Context(), req)
		switch {
		case err == nil:
			return grant{lease, req.TTL, began, time.Now()}
		case errors.Is(err, locker.ErrHeld) && began.Before(leftover):
			time.Sleep(tick)
			req.Token = rand.Text()
			continue
		case x.Bubble || req.TTL > x.patience/4 || errors.Is(err, locker.ErrHeld) || outcome.Permanent(err):
			x.Fatalf("Acquire: %v; want it granted", err)
		}
		leftover = time.Now().Add(x.patience)
		req.Token, req.TTL = rand.Text(), 3*req.TTL
	}
}

// heldBy makes an attempt with another token, which must find the lock held by g.
func (x *fixture) heldBy(g grant, ttl time.Duration) {
	x.Helper()
	began := time.Now()
	_, err := x.locker.Acquire(x.Context(), x.request(g.Key, ttl))
	x.wantHeld(err, g, began)
}

// release releases a lease, which must not have ended.
func (x *fixture) release(lease contract.Lease) {
	x.Helper()
	if err := x.locker.Release(x.Context(), lease); err != nil {
		x.Fatalf("Release: %v", err)
	}
}

// livesUntil checks that the lock is granted again soon after the Expires of lease, and not before.
// A grant whose answer may be late proves nothing.
func (x *fixture) livesUntil(lease contract.Lease) {
	x.Helper()
	x.eventually("the lock is free", func() bool {
		next, err := x.locker.Acquire(x.Context(), x.request(lease.Key, x.long))
		now := time.Now()
		switch {
		case err == nil && now.Before(lease.Expires):
			x.Fatalf("another attempt was granted %v before Expires", lease.Expires.Sub(now))
		case err == nil:
			x.release(next)
			return true
		case !errors.Is(err, locker.ErrHeld):
			x.Fatalf("Acquire: %v", err)
		}
		return false
	})
}

// inTime calls do with a longer ttl each time, until do returns true: the machine was fast enough
// for the ttl. In fake time it always is. Each try has its own key: what the one before has left is still
// released, and a release without a token (legacy's recipes) would free the lock of the next.
func (x *fixture) inTime(ttl time.Duration, do func(key string, ttl time.Duration) bool) {
	x.Helper()
	for ; ; ttl *= 3 {
		switch {
		case do(x.key(rand.Text()), ttl):
			return
		case x.Bubble || ttl > x.patience/4:
			x.Fatalf("the lease ended too soon, or this machine is too slow for a ttl of %v", ttl)
		}
	}
}

// answered plays a scene about the release of a lock that is gone, each time with another key, until it
// returns true. In fake time it is played once.
func (x *fixture) answered(scene func(key string) bool) {
	x.Helper()
	for i := range 10 {
		if scene(x.key("gone " + strconv.Itoa(i))) {
			return
		}
	}
	x.Fatalf("this machine is too slow: no release had an answer in time")
}

// repeated tells whether a release that began then may have been sent again, since the first request had
// no answer in time. The Client can't tell then that the lock was gone before. In fake time, and if the
// release did not take long, it was not.
func (x *fixture) repeated(began time.Time) bool { return !x.Bubble && time.Since(began) > renewed/2 }

// soon checks, in fake time, that at most limit has passed since then.
func (x *fixture) soon(what string, then time.Time, limit time.Duration) {
	x.Helper()
	if took := time.Since(then); x.Bubble && took > limit {
		x.Errorf("%s after %v; want at most %v", what, took, limit)
	}
}

// answer waits for the result of a call in the background.
func answer[T any](x *fixture, what string, from <-chan T) T {
	x.Helper()
	select {
	case a := <-from:
		return a
	case <-time.After(x.patience):
		x.Fatalf("not within %v: %s", x.patience, what)
		panic("unreachable")
	}
}

// together runs do n times at the same time.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}
