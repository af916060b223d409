package redlock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

// With 5 nodes and 2 permits there are 10 permits of nodes, enough for 3 quorums of 3.
func TestASemaphoreIsRefusedAsANodeAndNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, nodes := make([]*memory.Store, 5), make([]locker.Locker, 5)
		for i := range nodes {
			stores[i] = memory.New()
			nodes[i] = semaphore.New(stores[i], 2)
		}
		l, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Acquire(t.Context(), contract.Request{Key: "key", Token: "token", TTL: 10 * time.Second})
		var permanent interface{ Permanent() bool }
		if !errors.As(err, &permanent) || !permanent.Permanent() || errors.Is(err, locker.ErrHeld) || !strings.Contains(err.Error(), "can't count permits") {
			t.Errorf("Acquire = %v; want a permanent error that says why", err)
		}
		time.Sleep(time.Second) // the cleanup is in the background
		for i, s := range stores {
			if _, _, found := s.Get("key"); found {
				t.Errorf("node %d has a permit", i+1)
			}
		}
	})
}

// The calls of one Client do not wait for each other.
func TestReadersOfOneClientReadTogetherOverAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make([]locker.Locker, 3)
		for i := range nodes {
			nodes[i] = rwlock.New(memory.New()).Readers()
		}
		l, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		c := locker.New(l)
		locks := make(chan *locker.Lock, 5)
		for range cap(locks) {
			go func() {
				held, err := c.Lock(t.Context(), "key")
				if err != nil {
					t.Error(err)
				}
				locks <- held
			}()
		}
		time.Sleep(time.Second)
		if n := len(locks); n != cap(locks) {
			t.Errorf("%d of %d readers have the lock after a second", n, cap(locks))
		}
		for range cap(locks) {
			if err := (<-locks).Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
	})
}

func TestReadersAndWritersOverAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readers, writers := make([]locker.Locker, 5), make([]locker.Locker, 5)
		for i := range readers {
			rw := rwlock.New(memory.New())
			readers[i], writers[i] = rw.Readers(), rw.Writers()
		}
		read, err := redlock.New(readers)
		if err != nil {
			t.Fatal(err)
		}
		write, err := redlock.New(writers)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(l locker.Locker) (contract.Lease, error) {
			return l.Acquire(t.Context(), contract.Request{Key: "key", Token: contract.NewToken(), TTL: 10 * time.Second})
		}
		var held []contract.Lease
		for range 3 {
			lease, err := ask(read)
			if err != nil {
				t.Fatalf("a reader = %v", err)
			}
			if lease.Room != -1 {
				t.Errorf("a reader has Room %d; want -1", lease.Room)
			}
			held = append(held, lease)
		}
		if _, err := ask(write); !errors.Is(err, locker.ErrHeld) {
			t.Errorf("a writer beside readers = %v", err)
		}
		for _, lease := range held {
			if err := read.Release(t.Context(), lease); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		lease, err := ask(write)
		if err != nil {
			t.Fatalf("a writer = %v", err)
		}
		for _, l := range []locker.Locker{read, write} {
			if _, err := ask(l); !errors.Is(err, locker.ErrHeld) {
				t.Errorf("beside a writer = %v", err)
			}
		}
		if err := write.Release(t.Context(), lease); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	})
}
