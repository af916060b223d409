package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/redis/go-redis/v9"
)

const ttl = 10 * time.Second // of every lease, unless a case sets another

// bench is one run.
type bench struct {
	settings
	out     io.Writer
	servers []*lab.Server // the same for all contenders
	admins  []*redis.Client
	keys    atomic.Int64 // given to turns so far
	npm     npm
}

// start starts servers until there are n.
func (b *bench) start(n int) error {
	for len(b.servers) < n {
		s, err := lab.StartServer(b.pinned)
		if err != nil {
			return err
		}
		b.servers = append(b.servers, s)
		b.admins = append(b.admins, redis.NewClient(&redis.Options{Addr: s.Addr}))
	}
	return nil
}

func (b *bench) close() {
	b.npm.remove()
	for i, s := range b.servers {
		_ = b.admins[i].Close()
		s.Kill()
	}
}

// addrs are the addresses of the first n servers.
func (b *bench) addrs(n int) []string {
	var all []string
	for _, s := range b.servers[:n] {
		all = append(all, s.Addr)
	}
	return all
}

// size chooses between the full and the short run.
func (b *bench) size(full, short int) int {
	if b.short {
		return short
	}
	return full
}

func (b *bench) time(full, short time.Duration) time.Duration {
	if b.short {
		return short
	}
	return full
}

// patience is the time limit of a turn that should take almost no time. Some peers never end.
func (b *bench) patience() time.Duration { return b.time(20*time.Second, 2*time.Second) }

// half and third are the numbers of repetitions of costly cases.
func (b *bench) half() int { return (b.repeat + 1) / 2 }

func (b *bench) third() int { return (b.repeat + 2) / 3 }

// A turn is the work of one contender in one repetition. Everything that it opens is closed when it
// is over, even if it hangs.
type turn struct {
	*bench
	contender
	sent    atomic.Int64 // commands of the clients that count them
	key     string       // of this turn alone
	working sync.WaitGroup

	mu     sync.Mutex
	ends   []func()
	ended  bool
	strays []error // see stray
}

var errOver = errors.New("the turn is over")

// open opens a client of the contender.
func (t *turn) open(p place) (*locks, error) {
	l, err := t.contender.open(p)
	if err != nil {
		return nil, err
	}
	if !t.after(l.close) {
		return nil, errOver
	}
	return l, nil
}

// after calls end at the end of the turn. If the turn has ended, it calls end at once and returns
// false.
func (t *turn) after(end func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		go end()
		return false
	}
	t.ends = append(t.ends, end)
	return true
}

// stray notes a call that failed, and reports whether the turn may go on. A contender whose calls
// fail now and then is still measured, and the report names the failures.
func (t *turn) stray(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.strays) == 100 {
		return false
	}
	t.strays = append(t.strays, err)
	return true
}

func (t *turn) strayed() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.strays)
}

// end closes everything and gives the goroutines a moment to stop. A goroutine may remain that
// holds a lock and cannot release it any more.
func (t *turn) end() {
	t.mu.Lock()
	ends := t.ends
	t.ends, t.ended = nil, true
	t.mu.Unlock()
	wait := func(most time.Duration, do func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			do()
		}()
		select {
		case <-done:
		case <-time.After(most):
		}
	}
	wait(t.time(10*time.Second, time.Second), func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	})
	wait(t.time(time.Second, 100*time.Millisecond), t.working.Wait)
}

// everybody gives each contender of a table a turn in each repetition, in random order, and notes
// its figures. A turn that is over its time limit is left.
func (b *bench) everybody(tb *table, repeat int, limit time.Duration, what func(*turn) ([]float64, error)) error {
	tb.repetitions = repeat
	for rep := range repeat {
		for _, i := range rand.Perm(len(tb.rows)) {
			r := tb.rows[i]
			if len(r.broke) >= 2 {
				continue // it would take the time limit again
			}
			b.progress("%s: repetition %d of %d, %s", tb.title, rep+1, repeat, r.name)
			t := &turn{bench: b, contender: r.contender, key: fmt.Sprintf("bench:%d", b.keys.Add(1))}
			began := time.Now()
			figures, err := within(limit, func() ([]float64, error) { return what(t) })
			took := time.Since(began)
			t.end()
			b.tell("%s: %s: %.2f in %v, closed in %v, %v", tb.title, r.name, figures, took.Round(time.Millisecond),
				(time.Since(began) - took).Round(time.Millisecond), err)
			if err != nil {
				r.broke = append(r.broke, err)
			} else {
				r.note(figures)
				r.strays = append(r.strays, t.strayed()...)
			}
			if err := b.settle(); err != nil {
				return err
			}
		}
	}
	b.progress("")
	return nil
}

// settle keeps the rest of one contender from the next: it deletes the keys, and waits until the
// closed clients send no more commands. 1,000 clients may send 100,000 commands a second, for
// seconds.
func (b *bench) settle() error {
	for _, admin := range b.admins {
		if err := admin.FlushAll(context.Background()).Err(); err != nil {
			return err
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			before, err := executed(admin)
			if err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
			after, err := executed(admin)
			if err != nil {
				return err
			}
			if after-before <= 20 {
				break
			}
		}
	}
	return nil
}

var errSlow = errors.New("not done")

func within[T any](limit time.Duration, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(limit):
		var none T
		return none, fmt.Errorf("%w in %v", errSlow, limit)
	}
}

func (b *bench) print(format string, args ...any) {
	_, _ = fmt.Fprintf(b.out, format, args...) // an error has no other place to go
}

// tell writes a line under -v.
func (b *bench) tell(format string, args ...any) {
	if b.verbose {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// progress shows the present turn on a terminal.
func (b *bench) progress(format string, args ...any) {
	info, err := os.Stderr.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 && !b.short && !b.verbose {
		fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
	}
}
