package single_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// bySentinel returns a Client with its own client library, which the sentinels lead to the master.
func bySentinel(t *testing.T, s *redistest.Sentinel, store []redisstore.Option, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	return locker.New(single.New(goredis.New(beneath.DialSentinel(t, s), append(store, beneath.Long)...)), opts...)
}

func TestALockIsHeldThroughAFailoverBySentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	connect := func(opts ...locker.ClientOption) *locker.Client { return bySentinel(t, s, nil, opts...) }
	heldThroughFailover(t, connect, "invoice/42", s.Replicas()[0], func() { s.AwaitFailover(s.KillMaster()) })
}

// heldThroughFailover holds a lock that replica has. Meanwhile failover kills the master and makes
// replica the new one.
func heldThroughFailover(t *testing.T, connect func(...locker.ClientOption) *locker.Client, key string, replica *redistest.Server, failover func()) {
	l, err := connect(locker.WithTTL(2*patience)).Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica has the lock", func() bool {
		n, err := replica.Do("DBSIZE") // the replica has no other keys, and does not let the test read this one
		return err == nil && n != int64(0)
	})
	others := connect()
	over, used := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(used)
		for last := false; ; {
			select {
			case <-over:
				last = true
			case <-time.After(5 * time.Millisecond):
			}
			_, err := others.TryLock(t.Context(), key)
			if err == nil {
				t.Error("TryLock has granted a lock that is held")
			}
			extended := l.Extend(t.Context(), 2*patience)
			if errors.Is(extended, locker.ErrLost) || errors.Is(extended, locker.ErrHeld) {
				t.Errorf("Extend = %v", extended)
			}
			if last && errors.Is(err, locker.ErrHeld) && extended == nil {
				return // the new master has answered
			}
			if l.Context().Err() != nil {
				t.Errorf("the lock is lost: %v", context.Cause(l.Context()))
				return
			}
		}
	}()
	failover()
	close(over)
	<-used
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
	next, err := others.TryLock(t.Context(), key)
	if err != nil {
		t.Fatalf("the next TryLock = %v", err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// single does not promise this. Replication is asynchronous: a grant that has not reached the
// replica is made again after the promotion, and two hold the lock. The first holder learns of it
// at its next extension.
func TestAFailoverGrantsAgainWhatWasNotReplicated(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	s.Replicas()[0].CutReplication()
	first, err := bySentinel(t, s, nil, locker.WithTTL(2*patience)).Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	s.AwaitFailover(s.KillMaster())
	second := lockAfterFailover(t, bySentinel(t, s, nil, locker.WithTTL(2*patience)))
	if first.Context().Err() != nil || first.Lease().Ended() || second.Context().Err() != nil {
		t.Error("there are no two holders")
	}

	eventually(t, "the first holder learns of the loss", func() bool {
		err := first.Extend(t.Context(), 2*patience)
		if err == nil {
			t.Fatal("the first one has extended the lock of the second")
		}
		return errors.Is(err, locker.ErrLost)
	})
	if err := first.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock of the first = %v", err)
	}
	if err := second.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock of the second = %v", err)
	}
}

// With WithReplicas the first grant fails in the same situation.
func TestWithReplicasNothingIsGrantedThatAFailoverWouldGrantAgain(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	replicated := []redisstore.Option{redisstore.WithReplicas(1, 200*time.Millisecond)}
	s.Replicas()[0].CutReplication()
	_, err := bySentinel(t, s, replicated, locker.WithTTL(2*patience)).Lock(t.Context(), "key")
	if tooFew := (*redisstore.ReplicasError)(nil); !errors.As(err, &tooFew) || errors.Is(err, locker.ErrHeld) {
		t.Fatalf("Lock = %v", err)
	}
	if exists(t, s.Master(), "key") {
		t.Error("the grant that failed has left its key")
	}
	s.AwaitFailover(s.KillMaster())
	l := lockAfterFailover(t, bySentinel(t, s, nil))
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// lockAfterFailover locks as soon as the client library has found the new master.
func lockAfterFailover(t *testing.T, locks *locker.Client) *locker.Lock {
	t.Helper()
	var l *locker.Lock
	eventually(t, "the lock is granted", func() bool {
		var err error
		l, err = locks.TryLock(t.Context(), "key")
		if errors.Is(err, locker.ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	})
	return l
}
