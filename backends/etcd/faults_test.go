package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/internal/verify/etcdtest"
	"github.com/lockstep-go/lockstep/internal/verify/history"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A team is some programs that take one lock and give it back, again and again.
type team struct {
	began  time.Time
	grants atomic.Int64

	mu      sync.Mutex
	holds   []history.Hold
	numbers []history.Grant
	wrong   []error // that say that the lock is held, or that are permanent
	failed  map[string]int
}

const programs = 4

// play lets a team work during do, and checks what it has seen.
func play(t *testing.T, c *etcdtest.Cluster, do func(client *clientv3.Client, worksOn func(what string))) {
	t.Helper()
	tm := &team{began: time.Now(), failed: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range programs {
		locks := locker.New(fenced.New(etcd.New(dial(t, c.Endpoints()))), locker.WithTTL(3*time.Second), locker.WithWait(20*time.Second))
		all.Go(func() { tm.work(ctx, fmt.Sprint("program ", i), locks) })
	}
	worksOn := func(what string) {
		t.Helper()
		enough := tm.grants.Load() + 10
		eventually(t, "the team works on "+what, func() bool { return tm.grants.Load() >= enough })
	}
	worksOn("before the fault")
	do(dial(t, c.Endpoints()), worksOn)
	cancel()
	all.Wait()
	for _, o := range history.Overlaps(tm.holds) {
		t.Errorf("two holders: %v", o)
	}
	for _, i := range history.Inversions(tm.numbers) {
		t.Errorf("the numbers fall: %v", i)
	}
	for _, err := range tm.wrong {
		t.Errorf("the wrong class of error: %v", err)
	}
	t.Logf("%d grants; errors: %v", tm.grants.Load(), tm.failed)
}

func (tm *team) work(ctx context.Context, who string, locks *locker.Client) {
	for ctx.Err() == nil {
		asked := time.Since(tm.began)
		l, err := locks.Lock(ctx, "k")
		answered := time.Since(tm.began)
		if err != nil {
			tm.note(ctx, err)
			continue
		}
		lease := l.Lease()
		select {
		case <-l.Context().Done():
		case <-time.After(2 * time.Millisecond):
		}
		// A hold ends at its Expires, as it was when we looked last, whatever the holder learned by then.
		end := min(time.Since(tm.began), lease.Expires.Sub(tm.began))
		tm.mu.Lock()
		if end > answered {
			tm.holds = append(tm.holds, history.Hold{Key: "k", Who: who, Start: int64(answered), End: int64(end)})
		}
		tm.numbers = append(tm.numbers, history.Grant{Key: "k", Who: who, Asked: int64(asked), Answered: int64(answered), Fence: l.Fence()})
		tm.mu.Unlock()
		tm.grants.Add(1)
		if err := l.Unlock(context.WithoutCancel(ctx)); err != nil {
			tm.note(ctx, err)
		}
	}
}

func (tm *team) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	tm.mu.Lock()
	defer tm.mu.Unlock()
	var p interface{ Permanent() bool }
	if errors.As(err, &p) && p.Permanent() {
		tm.wrong = append(tm.wrong, err)
	}
	kind := "other"
	for name, target := range map[string]error{"wait limit": locker.ErrWaitLimit, "lost": locker.ErrLost} {
		if errors.Is(err, target) {
			kind = name
		}
	}
	tm.failed[kind]++
}

func TestTheLeaderIsKilled(t *testing.T) {
	c := etcdtest.Start(t, 3, etcdtest.Fast)
	play(t, c, func(client *clientv3.Client, worksOn func(string)) {
		for range 2 {
			old := leader(t, c, client)
			old.Kill()
			worksOn("while the old leader is down")
			old.Restart()
			worksOn("after its restart")
		}
	})
}

func TestTheLeaderIsStoppedAndGoesOn(t *testing.T) {
	c := etcdtest.Start(t, 3, etcdtest.Fast)
	play(t, c, func(client *clientv3.Client, worksOn func(string)) {
		for range 2 {
			old := leader(t, c, client)
			old.Pause()
			worksOn("while the old leader is stopped")
			old.Resume()
			worksOn("when it believes for a moment that it leads")
		}
	})
}

func TestAMemberIsCutOffFromTheOthers(t *testing.T) {
	c := etcdtest.Start(t, 3, etcdtest.Fast)
	play(t, c, func(client *clientv3.Client, worksOn func(string)) {
		old := leader(t, c, client)
		c.Isolate(old)
		eventually(t, "another member leads", func() bool {
			for _, m := range c.Members {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				state, err := client.Status(ctx, m.URL())
				cancel()
				if m != old && err == nil && state.Leader == state.Header.MemberId {
					return true
				}
			}
			return false
		})
		worksOn("while clients still reach the member that is cut off")
		c.Heal()
		worksOn("when it is back")
	})
}

func TestMembersAreAddedAndRemoved(t *testing.T) {
	c := etcdtest.Start(t, 3, etcdtest.Fast)
	play(t, c, func(client *clientv3.Client, worksOn func(string)) {
		fourth := join(t, c, func(ctx context.Context, peers []string) error {
			_, err := client.MemberAdd(ctx, peers)
			return err
		})
		worksOn("with a fourth member")
		old := leader(t, c, client)
		state, err := client.Status(t.Context(), old.URL())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the leader is removed", func() bool { // etcd refuses it until the new member is up
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err = client.MemberRemove(ctx, state.Header.MemberId)
			return err == nil || strings.Contains(err.Error(), "not found")
		})
		if now := leader(t, c, dial(t, []string{fourth.URL()})); now == old {
			t.Errorf("%s still leads", old.Name)
		}
		worksOn("without the old leader")
	})
}

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
	leads := leader(t, c, client)
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
	leads := leader(t, c, client)
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
	locks := locker.New(single.New(etcd.New(client)), locker.WithTTL(10*time.Second))
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
	report, err := etcd.New(client).Check(t.Context())
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
