package observe

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// scene is locks in fake time, which are seen.
type scene struct {
	*testing.T
	store  *memory.Store
	faults *backendtest.Faults
	*locker.Client
	pool   *locker.Client // of one permit
	leader *leader
}

// leader stands for an election, which lasts longer than a scene.
type leader struct {
	hook func(context.Context, election.Term) func(election.End)
	end  func(election.End)
}

// leads begins a term if there is none.
func (l *leader) leads() {
	if l.end == nil {
		l.end = l.hook(context.Background(), election.Term{})
	}
}

// ends ends the term.
func (l *leader) ends(reason locker.LostReason) {
	l.end(election.End{At: time.Now(), Reason: string(reason)})
	l.end = nil
}

func play(t *testing.T, observed contract.Middleware, leader *leader, act func(scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		faults := new(backendtest.Faults)
		locks := locker.New(single.New(faults.Store(store)), locker.WithMiddleware(observed))
		pool := locker.New(semaphore.New(memory.New(), 1), locker.WithMiddleware(observed))
		act(scene{t, store, faults, locks, pool, leader})
		time.Sleep(time.Minute) // clean-ups end by themselves
	})
}

// quiet is a day without trouble: a lock is taken, extended, and unlocked.
func quiet(s scene) {
	s.leader.leads()
	l := s.lock(nil)
	time.Sleep(time.Minute)
	s.unlock(l)
}

// trouble is everything that the page has an expression for.
func trouble(s scene) {
	// The leader loses its lock again and again.
	for range 5 {
		s.leader.leads()
		s.leader.ends(locker.LostUnavailable)
	}

	// A permit is the last one.
	permit, err := s.pool.Lock(s.Context(), "key")
	if err != nil {
		s.Error(err)
	}
	s.unlock(permit)

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

	// A server that was restarted grants nothing.
	restarted := &redisstore.QuarantineError{Until: time.Now().Add(time.Minute)}
	s.faults.Once(backendtest.SetNX, func(context.Context, func(context.Context) error) error { return restarted })
	s.lock(restarted)

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
