package observe

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// scene is locks in fake time, which are seen.
type scene struct {
	*testing.T
	store  *memory.Store
	faults *backendtest.Faults
	*locker.Client
}

func play(t *testing.T, observed locker.Middleware, act func(scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		faults := new(backendtest.Faults)
		locks := locker.New(single.New(faults.Store(store)), locker.WithMiddleware(observed))
		act(scene{t, store, faults, locks})
		time.Sleep(time.Minute) // clean-ups end by themselves
	})
}

// quiet is a day without trouble: a lock is taken, extended, and unlocked.
func quiet(s scene) {
	l := s.lock(nil)
	time.Sleep(time.Minute)
	s.unlock(l)
}

// trouble is everything that the page has an expression for.
func trouble(s scene) {
	// Someone waits long, and someone gives up.
	l := s.lock(nil)
	waited := make(chan *locker.Lock)
	go func() { waited <- s.lock(nil) }()
	s.lock(locker.ErrWaitLimit, locker.WithWait(10*time.Second))
	s.unlock(l)
	s.unlock(<-waited)

	// The store fails.
	s.faults.Once(backendtest.SetNX, backendtest.Fail)
	s.lock(backendtest.ErrInjected)

	// Extensions fail until the last moment.
	l = s.lock(nil)
	time.Sleep(time.Second)
	s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
	time.Sleep(8500 * time.Millisecond)
	s.faults.Clear()
	time.Sleep(time.Second)
	s.unlock(l)

	// A lock is taken from its holder.
	l = s.lock(nil)
	s.store.Delete("key")
	<-l.Context().Done()
}

func (s scene) lock(want error, opts ...locker.Option) *locker.Lock {
	s.Helper()
	l, err := s.Lock(s.Context(), "key", opts...)
	if !errors.Is(err, want) {
		s.Errorf("Lock = %v; want %v", err, want)
	}
	return l
}

func (s scene) unlock(l *locker.Lock) {
	s.Helper()
	if err := l.Unlock(s.Context()); err != nil {
		s.Error(err)
	}
}
