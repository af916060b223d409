package interop_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// theirs is another implementation.
type theirs interface {
	// Acquire makes one attempt, or, to wait, as many as it takes.
	Acquire(ctx context.Context, key string, ttl time.Duration, wait bool) (theirLock, error)
	Refused(err error) bool // is this its way to say that someone has the lock?
	Lost(err error) bool    // ... and that it is not held any more?
}

type theirLock interface {
	Extend(ctx context.Context, ttl time.Duration) error
	Release(ctx context.Context) error
}

// pair is both sides, on the same servers.
type pair struct {
	servers servers
	ours    locker.Locker
	theirs  theirs
	waiters int // how many of theirs may wait for one key at once
}

const (
	long  = time.Minute     // a lease that does not end before the test
	short = 5 * time.Second // one that the test waits for: long enough to extend it in time on a machine that is slow
)

// sentences are what has to hold between us and any other implementation on the same key.
var sentences = []struct {
	sentence string
	check    func(t *testing.T, p pair, key string)
}{
	{"while they hold it we are refused", func(t *testing.T, p pair, key string) {
		theirs := p.take(t, key, long)
		stays := p.servers.mustStay(t, key)
		_, err := locker.New(p.ours).TryLock(t.Context(), key)
		wantHeld(t, err, long)
		stays()
		p.giveBack(t, theirs)
	}},
	{"a waiter of ours gets it when they release it", func(t *testing.T, p pair, key string) {
		theirs := p.take(t, key, long)
		asked := p.servers.asked(t, key)
		got := make(chan struct{})
		go func() {
			defer close(got)
			if l, err := locker.New(p.ours).Lock(t.Context(), key); err != nil {
				t.Errorf("Lock = %v", err)
			} else if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock = %v", err)
			}
		}()
		wait(t, "we ask for it", asked)
		p.giveBack(t, theirs)
		wait(t, "we get it", got)
	}},
	{"a waiter of ours gets it when their lease has run out, and not before", func(t *testing.T, p pair, key string) {
		start := time.Now()
		p.take(t, key, short)
		l, err := locker.New(p.ours).Lock(t.Context(), key)
		if err != nil {
			t.Fatalf("Lock = %v", err)
		}
		// A server cuts its time to milliseconds.
		if early := short - time.Since(start); early > 5*time.Millisecond {
			t.Errorf("we got it %v too early", early)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}},
	{"while we hold it they are refused", func(t *testing.T, p pair, key string) {
		l := p.lock(t, key, long)
		stays := p.servers.mustStay(t, key)
		p.wantRefused(t, key)
		stays()
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}},
	{"a waiter of theirs gets it when we release it", func(t *testing.T, p pair, key string) {
		l := p.lock(t, key, long)
		asked := p.servers.asked(t, key)
		got := make(chan struct{})
		go func() {
			defer close(got)
			if theirs, err := p.theirs.Acquire(t.Context(), key, long, true); err != nil {
				t.Errorf("their lock = %v", err)
			} else if err := theirs.Release(t.Context()); err != nil {
				t.Errorf("their release = %v", err)
			}
		}()
		wait(t, "they ask for it", asked)
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
		wait(t, "they get it", got)
	}},
	{"a waiter of theirs gets it when our lease has run out, and not before", func(t *testing.T, p pair, key string) {
		start := time.Now()
		p.acquire(t, key, short)
		theirs, err := p.theirs.Acquire(t.Context(), key, long, true)
		if err != nil {
			t.Fatalf("their lock = %v", err)
		}
		if early := short - time.Since(start); early > 5*time.Millisecond {
			t.Errorf("they got it %v too early", early)
		}
		p.giveBack(t, theirs)
	}},
	{"a lease that we extend keeps them out", func(t *testing.T, p pair, key string) {
		start := time.Now()
		lease, err := p.ours.Extend(t.Context(), p.acquire(t, key, short), long)
		if err != nil {
			t.Fatalf("Extend = %v", err)
		}
		for time.Since(start) < short+200*time.Millisecond {
			p.wantRefused(t, key)
			time.Sleep(50 * time.Millisecond)
		}
		if err := p.ours.Release(t.Context(), lease); err != nil {
			t.Errorf("Release = %v", err)
		}
	}},
	{"a lock that we keep alive keeps them out", func(t *testing.T, p pair, key string) {
		start := time.Now()
		l := p.lock(t, key, short)
		for time.Since(start) < short+time.Second {
			p.wantRefused(t, key)
			time.Sleep(50 * time.Millisecond)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}},
	{"a lease that they extend keeps us out", func(t *testing.T, p pair, key string) {
		start := time.Now()
		theirs := p.take(t, key, short)
		if err := theirs.Extend(t.Context(), long); err != nil {
			t.Fatalf("their extension = %v", err)
		}
		for time.Since(start) < short+200*time.Millisecond {
			_, err := locker.New(p.ours).TryLock(t.Context(), key)
			wantHeld(t, err, long)
			time.Sleep(50 * time.Millisecond)
		}
		p.giveBack(t, theirs)
	}},
	{"what they have lost to us they neither extend nor release", func(t *testing.T, p pair, key string) {
		theirs := p.take(t, key, long)
		p.servers.owner(t, key)
		p.servers.do(t, "DEL", key)
		l := p.lock(t, key, long)
		stays := p.servers.mustStay(t, key)
		if err := theirs.Extend(t.Context(), 2*long); !p.theirs.Lost(err) {
			t.Errorf("their extension = %v", err)
		}
		if err := theirs.Release(t.Context()); !p.theirs.Lost(err) {
			t.Errorf("their release = %v", err)
		}
		stays()
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}},
	{"what we have lost to them we neither extend nor release", func(t *testing.T, p pair, key string) {
		lease := p.acquire(t, key, long)
		p.servers.owner(t, key)
		p.servers.do(t, "DEL", key)
		theirs := p.take(t, key, long)
		stays := p.servers.mustStay(t, key)
		if _, err := p.ours.Extend(t.Context(), lease, 2*long); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Extend = %v", err)
		}
		if err := p.ours.Release(t.Context(), lease); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Release = %v", err)
		}
		stays()
		p.giveBack(t, theirs)
	}},
	{"many of both lose no update of what the lock guards", contend},
}

// interoperates runs the sentences between theirs and each of ours, on the same servers.
func interoperates(t *testing.T, n, waiters int, ours map[string]func(*testing.T, servers) locker.Locker,
	theirs func(*testing.T, servers) theirs) {
	t.Parallel()
	ss := servers(redistest.StartN(t, n))
	other := theirs(t, ss)
	// All at once, which t.Parallel would not do on few CPUs: most of them only wait.
	var all sync.WaitGroup
	defer all.Wait()
	for name, open := range ours {
		p := pair{servers: ss, ours: open(t, ss), theirs: other, waiters: waiters}
		for i, s := range sentences {
			all.Go(func() {
				t.Run(name+"/"+s.sentence, func(t *testing.T) { s.check(t, p, fmt.Sprintf("%s/%d", name, i)) })
			})
		}
	}
}

// contend lets workers of both sides add to a register that forgets an addition when two add at once.
func contend(t *testing.T, p pair, key string) {
	const workers, rounds = 4, 8
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	register := key + "/register"
	p.servers[0].Do("SET", register, "0")
	var holders atomic.Int32
	add := func() {
		if n := holders.Add(1); n != 1 {
			t.Errorf("%d hold it at once", n)
		}
		value, err := p.servers[0].Do("GET", register)
		if err != nil {
			t.Error(err)
			return
		}
		n, _ := strconv.Atoi(value.(string))
		if _, err := p.servers[0].Do("SET", register, strconv.Itoa(n+1)); err != nil {
			t.Error(err)
		}
		holders.Add(-1)
	}

	var all sync.WaitGroup
	for range workers {
		// A Client each: within one, they would stand in line.
		locks := locker.New(p.ours, locker.WithTTL(long),
			locker.WithBackoff(locker.Exponential(5*time.Millisecond, 40*time.Millisecond)))
		all.Go(func() {
			for range rounds {
				err := locks.Do(ctx, key, func(context.Context, *locker.Lock) error {
					add()
					return nil
				})
				if err != nil {
					t.Errorf("Do = %v", err)
				}
			}
		})
	}
	for range p.waiters {
		all.Go(func() {
			for range rounds {
				l, err := p.theirs.Acquire(ctx, key, long, true)
				if err != nil {
					t.Errorf("their lock = %v", err)
					return
				}
				add()
				if err := l.Release(ctx); err != nil {
					t.Errorf("their release = %v", err)
				}
			}
		})
	}
	all.Wait()
	total := strconv.Itoa((workers + p.waiters) * rounds)
	if value, err := p.servers[0].Do("GET", register); err != nil || value != total {
		t.Errorf("%v of %v additions are left (%v)", value, total, err)
	}
}

// take locks their way.
func (p pair) take(t *testing.T, key string, ttl time.Duration) theirLock {
	t.Helper()
	l, err := p.theirs.Acquire(t.Context(), key, ttl, false)
	if err != nil {
		t.Fatalf("their lock = %v", err)
	}
	return l
}

func (p pair) giveBack(t *testing.T, l theirLock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("their release = %v", err)
	}
}

// lock locks our way and keeps the lock alive.
func (p pair) lock(t *testing.T, key string, ttl time.Duration) *locker.Lock {
	t.Helper()
	l, err := locker.New(p.ours, locker.WithTTL(ttl)).TryLock(t.Context(), key)
	if err != nil {
		t.Fatalf("TryLock = %v", err)
	}
	return l
}

// acquire locks our way, for ttl and no longer.
func (p pair) acquire(t *testing.T, key string, ttl time.Duration) contract.Lease {
	t.Helper()
	lease, err := p.ours.Acquire(t.Context(), contract.Request{Key: key, Token: contract.NewToken(), TTL: ttl})
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	return lease
}

func (p pair) wantRefused(t *testing.T, key string) {
	t.Helper()
	if _, err := p.theirs.Acquire(t.Context(), key, long, false); err == nil || !p.theirs.Refused(err) {
		t.Errorf("their lock = %v", err)
	}
}

// wantHeld checks that err tells of a holder with a lease that ends within ttl.
func wantHeld(t *testing.T, err error, ttl time.Duration) {
	t.Helper()
	var held *locker.HeldError
	if !errors.Is(err, locker.ErrHeld) || !errors.As(err, &held) || held.Foreign || held.Left <= 0 || held.Left > ttl {
		t.Errorf("TryLock = %#v", err)
	}
}
