package etcd_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/etcdtest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Without a majority nothing can be granted or renewed. A holder is told of its loss by its own clock.
func TestWithoutAMajorityHoldersAreToldAndNothingIsGranted(t *testing.T) {
	c := etcdtest.Start(t, 3, etcdtest.Fast)
	client := dial(t, c.Endpoints())
	locks := locker.New(fenced.New(etcd.New(client)), locker.WithTTL(3*time.Second))
	l, err := locks.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	number := l.Fence()
	leads := leader(t, c, client, nil)
	for _, m := range c.Members {
		if m != leads {
			m.Pause()
		}
	}
	ended := make(chan time.Time, 1)
	context.AfterFunc(l.Context(), func() { ended <- time.Now() })
	select {
	case <-ended:
		if cause := context.Cause(l.Context()); !errors.Is(cause, locker.ErrLost) {
			t.Errorf("the context ended with %v; want ErrLost", cause)
		}
	case <-time.After(patience):
		t.Fatal("the holder is not told of its loss")
	}
	for _, key := range []string{"k", "free"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := locks.TryLock(ctx, key)
		cancel()
		var p interface{ Permanent() bool }
		if err == nil || errors.Is(err, locker.ErrHeld) || errors.As(err, &p) && p.Permanent() {
			t.Errorf("TryLock(%q) without a majority = %v; want an error that is neither held nor permanent", key, err)
		}
	}
	for _, m := range c.Members {
		m.Resume()
	}
	next, err := locks.Lock(t.Context(), "k", locker.WithWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	if next.Fence() <= number {
		t.Errorf("the number %d comes after %d", next.Fence(), number)
	}
}

// A watch that was cut off while its events were compacted can't know what has happened.
func TestAWatchThatMissedCompactedEventsWakes(t *testing.T) {
	c := etcdtest.Start(t, 3, etcdtest.Fast)
	client := dial(t, c.Endpoints())
	var follower *etcdtest.Member
	leads := leader(t, c, client, nil)
	for _, m := range c.Members {
		if m != leads {
			follower = m
		}
	}
	others := dial(t, []string{leads.URL()})
	store := etcd.New(others)
	if r, err := store.SetNX(t.Context(), "k", "token", 30*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	woken := make(bell, 1)
	if err := etcd.New(dial(t, []string{follower.URL()})).Watch(t.Context(), "k", woken.ring); err != nil {
		t.Fatal(err)
	}
	follower.Kill()
	if ok, err := store.DeleteIf(t.Context(), "k", "token"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	r, err := others.Put(t.Context(), "another", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := others.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	follower.Restart()
	woken.await(t, "the key was released while nobody watched")

	if r, err := store.SetNX(t.Context(), "k", "token", 30*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	eventually(t, "a release wakes", func() bool { // the watch may be on its way
		if r, err := store.SetNX(t.Context(), "k", "token", 30*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		if _, err := store.DeleteIf(t.Context(), "k", "token"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-woken:
			return true
		case <-time.After(time.Second):
			return false
		}
	})
}

// A lease that ends wakes its waiters, though nobody releases the lock.
func TestTheEndOfALeaseWakes(t *testing.T) {
	_, client := one(t)
	store := etcd.New(client)
	woken := make(bell, 1)
	if err := store.Watch(t.Context(), "k", woken.ring); err != nil {
		t.Fatal(err)
	}
	if r, err := store.SetNX(t.Context(), "k", "token", time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	woken.await(t, "the lease has ended")
	if r, err := store.SetNX(t.Context(), "k", "next", time.Second); err != nil || !r.OK {
		t.Errorf("SetNX after the end of the lease = %+v, %v", r, err)
	}
}

// A full cluster grants nothing. Holders keep their locks and can give them back.
func TestAFullClusterKeepsLocksAndGrantsNone(t *testing.T) {
	c, client := one(t, "--quota-backend-bytes", "16777216")
	locks := locker.New(single.New(etcd.New(client)), locker.WithTTL(30*time.Second))
	held, err := locks.Lock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	waste := strings.Repeat("x", 1<<20)
	eventually(t, "the cluster is full", func() bool {
		_, err := client.Put(t.Context(), "waste", waste)
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
	_, err = locks.TryLock(t.Context(), "free")
	var told *etcd.Error
	if errors.Is(err, locker.ErrHeld) || !errors.As(err, &told) || !strings.Contains(err.Error(), "disarm the alarm") {
		t.Errorf("TryLock of a full cluster = %v; want an error that says what to do", err)
	}
	wantClass(t, "TryLock", err, false, told != nil && told.Unsent())
	if err := held.Extend(t.Context(), 10*time.Second); err != nil {
		t.Errorf("Extend = %v", err)
	}
	report, err := etcd.New(client).Check(trial.Patient(t))
	if err != nil || report.Err() != nil {
		t.Errorf("Check = %v, %v; a full cluster is no danger to a lock", report, err)
	}
	wantProblems(t, report, etcd.ProblemMembers, etcd.ProblemSpace, etcd.ProblemAlarm)
	if err := held.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		l, err := locks.Lock(t.Context(), "free", locker.WithWait(patience))
		if err == nil {
			err = l.Unlock(t.Context())
		}
		waiting <- err
	}()
	r, err := client.Delete(t.Context(), "waste")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Defragment(t.Context(), c.Members[0].URL()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("a waiter of a cluster that was full = %v", err)
	}
}
