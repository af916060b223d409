package sloglocker_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const got = `level=DEBUG msg="lock acquired" key=invoice/42 outcome=acquired ttl=9s waited=0s attempts=1 contended=false trace=7`

// slowly grants a little later, so that the end of the hold before is logged first.
func slowly(next locker.Locker) locker.Locker { return slow{next} }

type slow struct{ locker.Locker }

func (l slow) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	defer time.Sleep(time.Millisecond)
	return l.Locker.Acquire(ctx, req)
}

// hooked has a hook for the begin of a hold that takes longer than the lease.
func hooked(next locker.Locker) locker.Locker { return hooks{next} }

type hooks struct{ locker.Locker }

func (h hooks) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := h.Locker.Acquire(ctx, req)
	contract.CallOf(ctx).OnHold(func(context.Context, contract.Lease) (context.Context, func(time.Time, error)) {
		time.Sleep(10 * time.Second)
		return nil, nil
	})
	return lease, err
}

// forgotten stands for a Client whose Lock became garbage: the garbage collector does not run in fake time.
func forgotten(next locker.Locker) locker.Locker { return &forgets{Locker: next} }

type forgets struct {
	locker.Locker
	told bool
}

func (f *forgets) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if !f.told {
		ctx, f.told = calls.With(ctx, calls.Abandoned), true
	}
	return f.Locker.Extend(ctx, lease, ttl)
}

var extensions = []outcome{
	{name: "abandoned, and still renewed", do: func(s *scene) {
		s.locks = locker.New(single.New(s.faults[0].Store(s.stores[0])), locker.WithTTL(9*time.Second), locker.WithMiddleware(forgotten, s.watch))
		l := s.lock()
		time.Sleep(8 * time.Second)
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=WARN msg="lock abandoned" key=invoice/42 trace=7`,
		`level=DEBUG msg="lock extended" key=invoice/42 ttl=9s left=6.028s trace=7`,
		`level=DEBUG msg="lock extended" key=invoice/42 ttl=9s left=6.028s trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=8s trace=7`,
	}},
	{name: "extended", do: func(s *scene) {
		l := s.lock()
		time.Sleep(4 * time.Second)
		if err := l.Extend(s.ctx, time.Minute); err != nil {
			s.Error(err)
		}
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=DEBUG msg="lock extended" key=invoice/42 ttl=9s left=6.028s trace=7`,
		`level=DEBUG msg="lock extended" key=invoice/42 ttl=1m0s left=7.788s trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=4s trace=7`,
	}},
	{name: "handed over within the Client", do: func(s *scene) {
		s.locks = locker.New(single.New(s.faults[0].Store(s.stores[0])), locker.WithTTL(9*time.Second), locker.WithBackoff(steady),
			locker.WithMaxHandovers(1), locker.WithMiddleware(s.watch, slowly))
		first, second := s.lock(), make(chan *locker.Lock)
		go func() { second <- s.lock() }()
		time.Sleep(time.Second)
		first.Unlock(s.ctx)
		next := <-second
		if next.Lease().Token != first.Lease().Token {
			s.Error("it was not handed over")
		}
		time.Sleep(time.Second)
		next.Unlock(s.ctx)
	}, want: []string{
		strings.Replace(got, "waited=0s", "waited=1ms", 1),
		`level=DEBUG msg="lock released" key=invoice/42 held=1s trace=7`,
		`level=DEBUG msg="lock acquired" key=invoice/42 outcome=acquired ttl=9s waited=1.001s attempts=4 contended=true trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=1s trace=7`,
	}},
	{name: "an extension fails, the next one succeeds", do: func(s *scene) {
		s.faults[0].Once(backendtest.ExpireIf, backendtest.Fail)
		l := s.lock()
		time.Sleep(6 * time.Second)
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=WARN msg="lock extension failed" key=invoice/42 ttl=9s left=6.028s error=… error_type=error trace=7`,
		`level=DEBUG msg="lock extended" key=invoice/42 ttl=9s left=4.018666667s trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=6s trace=7`,
	}},
	{name: "an extension is not answered in its time", do: func(s *scene) {
		s.faults[0].Once(backendtest.ExpireIf, backendtest.Hang)
		l := s.lock(locker.WithTTL(3 * time.Second))
		time.Sleep(2500 * time.Millisecond)
		l.Unlock(s.ctx)
	}, want: []string{
		strings.Replace(got, "9s", "3s", 1),
		`level=DEBUG msg="lock extended" key=invoice/42 ttl=3s left=1.338666667s trace=7`,
		`level=WARN msg="lock extension failed" key=invoice/42 ttl=3s left=502ms error=… error_type=timeout trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=2.5s trace=7`,
	}},
	{name: "an extension by hand is not answered in its time", do: func(s *scene) {
		s.faults[0].Set(backendtest.ExpireIf, backendtest.Hang)
		l := s.lock()
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		_ = l.Extend(ctx, time.Minute)
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=WARN msg="lock extension failed" key=invoice/42 ttl=1m0s left=7.908s error=… error_type=timeout trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=1s trace=7`,
	}},
	{name: "an extension is cut off by Unlock", do: func(s *scene) {
		s.faults[0].Set(backendtest.ExpireIf, backendtest.Hang)
		l := s.lock()
		time.Sleep(3 * time.Second)
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=DEBUG msg="lock released" key=invoice/42 held=3s trace=7`,
	}},
	{name: "an extension is cut off by the cancellation of the ctx", do: func(s *scene) {
		s.faults[0].Set(backendtest.ExpireIf, backendtest.Hang)
		ctx, cancel := context.WithCancel(s.ctx)
		l := s.lockUnder(ctx)
		time.Sleep(3 * time.Second)
		cancel()
		time.Sleep(time.Second)
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=DEBUG msg="lock released" key=invoice/42 held=4s trace=7`,
	}},
	{name: "an extension is cut off by the deadline of the ctx", do: func(s *scene) {
		s.faults[0].Set(backendtest.ExpireIf, backendtest.Hang)
		ctx, cancel := context.WithTimeout(s.ctx, 3*time.Second)
		defer cancel()
		l := s.lockUnder(ctx)
		time.Sleep(4 * time.Second)
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=DEBUG msg="lock released" key=invoice/42 held=4s trace=7`,
	}},
}

var minimumHolds = []outcome{
	{name: "unlocked before the end of a minimum hold", do: func(s *scene) {
		l := s.lock(locker.WithMinHold(20 * time.Second))
		time.Sleep(time.Second)
		l.Unlock(s.ctx)
	}, want: []string{
		strings.Replace(got, "9s", "20s", 1),
		`level=DEBUG msg="lock kept" key=invoice/42 ttl=19s left=18.798s trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=1s trace=7`,
	}},
	{name: "the store does not confirm a minimum hold at once", do: func(s *scene) {
		s.faults[0].Once(backendtest.ExpireIf, backendtest.Fail)
		s.lock(locker.WithMinHold(20 * time.Second)).Unlock(s.ctx)
	}, want: []string{
		strings.Replace(got, "9s", "20s", 1),
		`level=WARN msg="lock release not confirmed" key=invoice/42 left=19.798s error=… error_type=error trace=7`,
		`level=DEBUG msg="lock kept" key=invoice/42 ttl=20s left=19.798s trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=0s trace=7`,
	}},
}

var shared = []outcome{
	{name: "semaphore: the last permit, and none", do: func(s *scene) {
		s.locks = locker.New(semaphore.New(s.faults[0].Ordered(s.stores[0]), 1), locker.WithTTL(9*time.Second), locker.WithMiddleware(s.watch))
		l := s.lock()
		if _, err := s.locks.TryLock(s.ctx, key); err == nil {
			s.Error("two have the permit")
		}
		l.Unlock(s.ctx)
	}, want: []string{
		strings.Replace(strings.Replace(got, "42 ", "42 holds=1 ", 1), "contended=false", "contended=false room=0", 1),
		`level=DEBUG msg="lock busy" key=invoice/42 holds=1 outcome=busy ttl=9s waited=0s attempts=1 contended=true left=9s error=… error_type=held trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 holds=1 held=0s trace=7`,
	}},
	{name: "the holder has a label", do: func(s *scene) {
		s.locks = locker.New(single.New(s.faults[0].Store(s.stores[0])), locker.WithTTL(9*time.Second), locker.WithMiddleware(s.watch), locker.WithHolder("api-7f9c"))
		l := s.lock()
		if _, err := s.locks.TryLock(s.ctx, key); err == nil {
			s.Error("two have the lock")
		}
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=DEBUG msg="lock busy" key=invoice/42 outcome=busy ttl=9s waited=0s attempts=1 contended=true holder=api-7f9c left=9s error=… error_type=held trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=0s trace=7`,
	}},
	{name: "given away and resumed", do: func(s *scene) {
		ticket, err := s.lock().Transfer(s.ctx, time.Minute)
		if err != nil {
			s.Fatal(err)
		}
		l, err := s.locks.Resume(s.ctx, ticket)
		if err != nil {
			s.Fatal(err)
		}
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=DEBUG msg="lock extended" key=invoice/42 ttl=1m0s left=8.908s trace=7`,
		free,
		strings.Replace(got, "waited=0s", "waited=0s resumed=true", 1),
		free,
	}},
	{name: "given away, and not resumed in time", do: func(s *scene) {
		ticket, err := s.lock().Transfer(s.ctx, time.Second)
		if err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if _, err := s.locks.Resume(s.ctx, ticket); !errors.Is(err, locker.ErrLost) {
			s.Error(err)
		}
	}, want: []string{
		got,
		`level=DEBUG msg="lock extended" key=invoice/42 ttl=1s left=8.908s trace=7`,
		free,
		`level=DEBUG msg="lock busy" key=invoice/42 outcome=busy ttl=9s waited=0s resumed=true attempts=1 contended=false error=… error_type=held trace=7`,
	}},
	{name: "readers: there is room for any number", do: func(s *scene) {
		readers := rwlock.New(s.faults[0].Ordered(s.stores[0])).Readers()
		s.locks = locker.New(readers, locker.WithTTL(9*time.Second), locker.WithMiddleware(s.watch))
		s.lock().Unlock(s.ctx)
	}, want: []string{
		strings.Replace(got, "42 ", "42 fence=946684800000000 holds=1 ", 1),
		`level=DEBUG msg="lock released" key=invoice/42 fence=946684800000000 holds=1 held=0s trace=7`,
	}},
}

var ends = []outcome{
	{name: "lost before another hook has returned", do: func(s *scene) {
		s.locks = locker.New(single.New(s.faults[0].Store(s.stores[0])), locker.WithTTL(9*time.Second), locker.WithMiddleware(hooked, s.watch))
		s.lock().Unlock(s.ctx)
	}, want: []string{
		got,
		`level=ERROR msg="lock lost" key=invoice/42 held=0s reason=expired error=… error_type=lost trace=7`,
	}},
	{name: "loss by deletion, never unlocked", do: func(s *scene) {
		s.lock()
		s.stores[0].Delete(key)
	}, want: []string{
		got,
		`level=ERROR msg="lock lost" key=invoice/42 held=2.88s reason=stolen error=… error_type=lost trace=7`,
	}},
	{name: "loss by deletion, unlocked after the loss", do: func(s *scene) {
		l := s.lock()
		s.stores[0].Delete(key)
		<-l.Context().Done()
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=ERROR msg="lock lost" key=invoice/42 held=2.88s reason=stolen error=… error_type=lost trace=7`,
	}},
	{name: "loss that Unlock finds", do: func(s *scene) {
		l := s.lock()
		s.stores[0].Delete(key)
		if err := l.Unlock(s.ctx); !errors.Is(err, locker.ErrLost) {
			s.Error(err)
		}
	}, want: []string{
		got,
		`level=ERROR msg="lock lost" key=invoice/42 held=0s reason=stolen error=… error_type=lost trace=7`,
	}},
	{name: "loss by expiry", do: func(s *scene) {
		l := s.lock(locker.WithoutRenewal())
		time.Sleep(10 * time.Second)
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=ERROR msg="lock lost" key=invoice/42 held=8.908s reason=expired error=… error_type=lost trace=7`,
	}},
	{name: "loss by expiry after the end of the ctx", do: func(s *scene) {
		ctx, cancel := context.WithCancel(s.ctx)
		s.lockUnder(ctx)
		cancel()
	}, want: []string{
		got,
		`level=ERROR msg="lock lost" key=invoice/42 held=8.908s reason=expired error=… error_type=lost trace=7`,
	}},
	{name: "loss by a server that is down", do: func(s *scene) {
		s.lock()
		s.faults[0].Set(backendtest.All, backendtest.Fail)
	}, want: []string{
		got,
		`level=WARN msg="lock extension failed" key=invoice/42 ttl=9s left=6.028s error=… error_type=error trace=7`,
		`level=ERROR msg="lock lost" key=invoice/42 held=8.908s reason=unavailable error=… error_type=lost trace=7`,
	}},
	{name: "maximum hold", do: func(s *scene) {
		l := s.lock(locker.WithMaxHold(time.Second))
		<-l.Context().Done()
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=WARN msg="lock lost: held as long as allowed" key=invoice/42 held=1s reason=max_hold error=… error_type=lost trace=7`,
	}},
	{name: "maximum hold, never unlocked", do: func(s *scene) { s.lock(locker.WithMaxHold(time.Second)) }, want: []string{
		got,
		`level=WARN msg="lock lost: held as long as allowed" key=invoice/42 held=1s reason=max_hold error=… error_type=lost trace=7`,
	}},
	{name: "release fails, and is repeated", do: func(s *scene) {
		s.faults[0].Once(backendtest.DeleteIf, backendtest.Fail)
		l := s.lock()
		time.Sleep(time.Second)
		l.Unlock(s.ctx)
	}, want: []string{
		got,
		`level=WARN msg="lock release not confirmed" key=invoice/42 left=7.908s error=… error_type=error trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=1s trace=7`,
	}},
	{name: "release whose answer is lost", do: func(s *scene) {
		s.faults[0].Once(backendtest.DeleteIf, backendtest.LoseReply)
		s.lock().Unlock(s.ctx)
	}, want: []string{
		got,
		`level=WARN msg="lock release not confirmed" key=invoice/42 left=8.908s error=… error_type=error trace=7`,
		`level=DEBUG msg="lock released" key=invoice/42 held=0s trace=7`,
	}},
	{name: "release fails for good", do: func(s *scene) {
		s.faults[0].Set(backendtest.DeleteIf, backendtest.Fail)
		s.lock().Unlock(s.ctx)
	}, want: []string{
		got,
		`level=WARN msg="lock release not confirmed" key=invoice/42 left=8.908s error=… error_type=error trace=7`,
		`level=ERROR msg="lock release failed" key=invoice/42 held=0s error=… error_type=error trace=7`,
	}},
	{name: "release fails with a permanent error", do: func(s *scene) {
		s.faults[0].Set(backendtest.DeleteIf, backendtest.Permanent)
		s.lock().Unlock(s.ctx)
	}, want: []string{
		got,
		`level=ERROR msg="lock release failed" key=invoice/42 held=0s error=… error_type=error trace=7`,
	}},
}
