// Package rwlock is a read-write lock: any number of readers hold a key together, or one writer
// holds it alone. Readers and writers are two Lockers over the same store.
//
// With Redis the key has a sorted set of holds, as in package semaphore, and one more member that
// names the group of the holds: read or write. A hold may join the others if it is a reader and
// they are.
//
//	acquire   ZADD key TIME+ttl token    if nobody holds the key, or a reader asks and readers hold
//	                                     it, and no waiter stands before it that has to wait
//	          SET counter number         a new number if nobody held the key
//	extend    ZADD key TIME+ttl token    if the token is there and would end sooner
//	release   ZREM key token             and reservations for the head of the queue: one writer, or
//	                                     all readers up to the next writer
//
// # What it promises
//
// A writer holds the key alone. Readers and writers are granted it in the order of their requests,
// across processes. So readers that follow each other without a gap do not starve a writer: a
// reader that asks after a writer waits until the writer has had its turn. After a writer, all
// readers up to the next writer are woken in one step. Each hold has its own deadline: a dead
// reader ends at its own, whatever the other readers renew.
//
// Grants have a number, as in package fenced: one for each epoch. An epoch begins when the key is
// taken while nobody holds it. So the number of a writer is greater than that of every reader and
// writer before, and a reader has the number of the readers that it joins. A resource that has seen
// the number of a reader rejects the late write of a writer before it.
//
// # What it does not promise
//
// What package fair does not promise, rwlock does not promise either. A reader can't become a
// writer without a release: two readers that try would wait for each other. A goroutine that holds
// the lock for reading and takes it again for reading may deadlock with a writer that asked in
// between, as with sync.RWMutex.
package rwlock

import (
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// An RW is a read-write lock for each key.
type RW struct{ readers, writers locker.Locker }

// New returns a read-write lock that keeps its holds and their queue in store.
func New(store backends.OrderedStore) *RW {
	if l := instance.Missing(store); l != nil {
		return &RW{l, l}
	}
	return &RW{
		readers: instance.Shared(store, admit("read", 0)),
		writers: instance.Shared(store, admit("write", 1)),
	}
}

// Readers returns the Locker for reading: any number of its leases are valid at once.
func (rw *RW) Readers() locker.Locker { return rw.readers }

// Writers returns the Locker for writing: its lease is valid alone.
func (rw *RW) Writers() locker.Locker { return rw.writers }

func admit(group string, limit int) func(contract.Request) backends.Admission {
	a := backends.Admission{Group: group, Limit: limit, Numbered: true, Turn: backends.Turn{InOrder: true}}
	return func(contract.Request) backends.Admission { return a }
}
