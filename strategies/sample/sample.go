// Package sample is package single without its queue. It shows the steps of
// docs/adding-a-strategy.md. The lock is a value under the key itself, with an expiry, and excludes
// the locks of single on the same key.
//
// With Redis the commands are
//
//	acquire   SET key token NX PX ttl    also if key holds token already; never shortens the TTL
//	extend    PEXPIRE key ttl            if key holds token and would end sooner
//	release   DEL key, PUBLISH a wake    if key holds token
//
// A release wakes all waiters, and any of them gets the lock.
//
// # What it does not promise
//
// What package single does not promise, sample does not promise either. While others wait in the
// queue of single, fair or fenced for the same key, waiters of sample starve.
package sample

import (
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that keeps its locks in store.
func New(store backends.Store) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return instance.Plain(store)
}
