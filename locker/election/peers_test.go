package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// peersBugs are what other elections have got wrong.
var peersBugs = []struct {
	says  string
	play  func(t *testing.T, s *race) (wrong error)
	naive enter // it must go wrong with this candidate
}{
	// https://github.com/kubernetes/client-go/issues/728
	// https://github.com/kubernetes/kubernetes/pull/139991
	{"nobody leads before the work of the last leader has returned", stopsSlowly, releasesFirst},
	// https://github.com/etcd-io/etcd/issues/21128
	{"a campaign whose reply is lost locks nobody out", campaignsInVain, forgetsItsKey},
	// https://github.com/etcd-io/etcd/issues/22123
	{"a resignation that is lost is sent again", resignsInVain, forgetsItsKey},
}

func TestThePeersBugsAreNotOurs(t *testing.T) {
	ours := func(_ context.Context, store backends.QueuedStore) candidacy {
		return election.New(locker.New(single.New(store)), key)
	}
	for _, bug := range peersBugs {
		t.Run(bug.says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := hold(t, ours, bug.play); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The same goes wrong with a candidate that does what such a library does.
func TestThePeersBugsAreFound(t *testing.T) {
	for _, bug := range peersBugs {
		t.Run(bug.says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := hold(t, bug.naive, bug.play)
				if err == nil {
					t.Error("nothing went wrong")
				}
				t.Log(err)
			})
		})
	}
}

func stopsSlowly(_ *testing.T, s *race) error {
	returned := make(chan time.Time, 1)
	resign := s.run(func(ctx context.Context, _ election.Term) error {
		<-ctx.Done()
		time.Sleep(3 * ttl)
		returned <- time.Now()
		return nil
	})
	time.Sleep(moment)
	led := s.next()
	resign()
	if began := <-led; began.Before(<-returned) {
		return errors.New("the next one leads, and the work of the last one goes on")
	}
	return nil
}

func campaignsInVain(_ *testing.T, s *race) error {
	s.faults.Once(backendtest.SetNX, backendtest.LoseReply)
	stop := s.run(func(ctx context.Context, _ election.Term) error {
		<-ctx.Done()
		return nil
	})
	time.Sleep(time.Millisecond) // the grant is there, and its candidate does not know
	stop()
	return s.nobody(s.next())
}

func resignsInVain(_ *testing.T, s *race) error {
	s.run(func(context.Context, election.Term) error {
		time.Sleep(moment)
		s.faults.Once(backendtest.DeleteIf, backendtest.Fail)
		return errEnough
	})
	time.Sleep(moment / 2)
	return s.nobody(s.next())
}

// A race is one election with a candidate whose store has faults, and another one.
type race struct {
	over   context.Context // the end of both processes
	enter  enter
	store  *memory.Store
	faults *backendtest.Faults
}

// A candidacy is an Election or a naive one.
type candidacy interface {
	Run(ctx context.Context, lead func(context.Context, election.Term) error) error
}

// enter makes a candidate in a process that ends with over.
type enter func(over context.Context, store backends.QueuedStore) candidacy

func hold(t *testing.T, enter enter, play func(*testing.T, *race) error) error {
	over, end := context.WithCancel(context.Background())
	s := &race{over: over, enter: enter, store: memory.New(), faults: new(backendtest.Faults)}
	err := play(t, s)
	end()
	time.Sleep(time.Minute) // cleanups and watches end by themselves
	synctest.Wait()
	return err
}

// run lets the candidate with the faults campaign until stop is called. Its process goes on.
func (s *race) run(lead func(context.Context, election.Term) error) (stop func()) {
	ctx, stop := context.WithCancel(s.over)
	go s.enter(s.over, s.faults.Queued(s.store)).Run(ctx, lead)
	return stop
}

// next lets the other one campaign. It tells when that leads.
func (s *race) next() <-chan time.Time {
	led := make(chan time.Time, 1)
	go s.enter(s.over, s.store).Run(s.over, func(ctx context.Context, _ election.Term) error {
		led <- time.Now()
		<-ctx.Done()
		return nil
	})
	return led
}

func (s *race) nobody(led <-chan time.Time) error {
	select {
	case <-led:
		return nil
	case <-time.After(3 * ttl):
		return errors.New("nobody has led for three times the TTL")
	}
}

// releasesFirst is a candidate that releases when its ctx ends, and not when lead has returned:
// client-go.
func releasesFirst(_ context.Context, store backends.QueuedStore) candidacy {
	return releasing{locker.New(single.New(store))}
}

type releasing struct{ client *locker.Client }

func (r releasing) Run(ctx context.Context, lead func(context.Context, election.Term) error) error {
	l, err := r.client.Lock(ctx, key)
	if err != nil {
		return err
	}
	go lead(ctx, election.Term{})
	<-ctx.Done()
	return l.Unlock(context.Background())
}

// forgetsItsKey is a candidate whose process renews all that it may have in the store. It removes
// nothing after a campaign that failed, and nothing again after a resignation that failed: package
// concurrency of etcd.
func forgetsItsKey(over context.Context, store backends.QueuedStore) candidacy {
	return session{over, store}
}

type session struct {
	over  context.Context
	store backends.QueuedStore
}

func (s session) Run(ctx context.Context, lead func(context.Context, election.Term) error) error {
	token := contract.NewToken()
	go s.renew(token)
	for {
		switch r, err := s.store.SetNX(ctx, key, token, ttl); {
		case err != nil:
			return err
		case r.OK:
			err := lead(ctx, election.Term{})
			_, lost := s.store.DeleteIf(s.over, key, token)
			return errors.Join(err, lost)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(ttl / 10):
		}
	}
}

func (s session) renew(token string) {
	for {
		select {
		case <-s.over.Done():
			return
		case <-time.After(ttl / 3):
			_, _ = s.store.ExpireIf(s.over, key, token, ttl)
		}
	}
}
