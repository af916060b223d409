package otellocker_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
)

// broken is a Locker that never returns.
type broken struct {
	locker.Locker
	end func()
}

func (b broken) Acquire(context.Context, contract.Request) (contract.Lease, error) {
	b.end()
	return contract.Lease{}, nil
}

func (b broken) Extend(context.Context, contract.Lease, time.Duration) (contract.Lease, error) {
	b.end()
	return contract.Lease{}, nil
}

func (b broken) Release(context.Context, contract.Lease) error {
	b.end()
	return nil
}

var ends = map[string]func(){
	"panics":             func() { panic("broken") },
	"ends the goroutine": runtime.Goexit,
}

// survive returns when f has returned, panicked or ended its goroutine.
func survive(f func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { _ = recover() }()
		f()
	})
	wg.Wait()
}

func TestALockerThatDoesNotReturnIsAnError(t *testing.T) {
	const failed = ` Error: the locker did not answer`
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s := newSDK()
			l := contract.Wrap(broken{end: end}, otellocker.New(s.options()...))
			ctx, lease := context.Background(), contract.Lease{Key: key, Granted: time.Now(), Expires: time.Now().Add(ttl)}
			survive(func() { _, _ = l.Acquire(ctx, contract.Request{Key: key, TTL: ttl}) })
			survive(func() { _, _ = l.Extend(ctx, lease, ttl) })
			survive(func() { _ = l.Release(ctx, lease) })

			want := map[string]string{
				"lock acquire": `{error.type="error" lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="error" lock.ttl=30.0}` + failed,
				"lock renew":   `{error.type="error" lock.key="invoice/42" lock.outcome="error" lock.ttl=30.0}` + failed,
				"lock release": `{error.type="error" lock.key="invoice/42"}` + failed,
			}
			for name, want := range want {
				span := s.only(t, name)
				span.EndTime = span.StartTime // it runs in real time
				if got := line(span, nil); got != name+" 0s root "+want {
					t.Errorf("%s; want %s", got, want)
				}
			}
			if n := s.level("lock.waiting"); n != 0 {
				t.Errorf("lock.waiting is %d; want 0", n)
			}
			if n := s.level("lock.renewals"); n != 1 {
				t.Errorf("lock.renewals counts %d; want 1", n)
			}
		})
	}
}

func TestWorkThatDoesNotReturnEndsItsHold(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			play(t, setup{}, func(x *scene) {
				survive(func() {
					_ = x.client.Do(x.ctx, key, func(context.Context, *locker.Lock) error {
						x.now(0, 1)
						end()
						return nil
					})
				})
			}, func(x *scene) {
				x.wantSpans(t, acquired, `lock hold 0s under caller {lock.key="invoice/42"} -> lock acquire`, released)
				x.wantMetrics(t, samples{}.with("0s"))
			})
		})
	}
}
