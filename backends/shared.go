package backends

import (
	"context"
	"fmt"
	"time"
)

// A SharedStore keeps any number of holds per key. Each hold has an expiry of its own. All holds of
// a key are of one group. The promises of [Store] on errors, ctx and ttl hold here as well.
type SharedStore interface {
	// Enter adds the hold token to key for ttl if key is free, or if its holds are of a.Group and
	// fewer than a.Limit. If the hold is there already, Enter grants it as well, with ttl from now,
	// and never shortens its life.
	//
	// If granted, the Result has in Holds how many holds the key has now, and in Room how many more
	// a.Limit admits beside them. If held, it has the number of holds in Holds, and in Left how long
	// it takes until so many of them have ended by themselves that the call would be admitted.
	//
	// The limit belongs to the call and not to the key. So a lower limit ends no hold, and admits
	// nobody until fewer are left.
	//
	// Enter leaves any other value under key alone. A value of another type is an error that
	// matches ErrWrongType. A value of this type that is no lock is held, as Foreign if it has no
	// expiry. A lock whose expiry another client has removed is Foreign too.
	//
	// Enter is sent once.
	Enter(ctx context.Context, key, token string, ttl time.Duration, a Admission) (Result, error)

	// Renew makes the hold token live for ttl from now, and never shortens its life. It returns
	// false if the hold has ended. No other hold lives longer by it. It may be resent.
	Renew(ctx context.Context, key, token string, ttl time.Duration) (ok bool, err error)

	// Leave ends the hold token, and wakes the watchers of key. It returns false if the hold has
	// ended already. It is sent once.
	Leave(ctx context.Context, key, token string) (ok bool, err error)

	Watcher
}

// An OrderedStore is a [SharedStore] that keeps a queue of waiters beside each key, as a
// [QueuedStore] does. When a hold ends, the room goes to the waiters at the head of the queue, as
// many as fit together: each has a reservation, as in a QueuedStore. Until it ends or its waiter
// enters, a reservation keeps others out as a hold does. It is in no Holds or Room. Its waiter is
// refused only if as many hold as its limit: others came in since, with a larger limit or by other
// software.
type OrderedStore interface {
	SharedStore

	// WatchQueued is Watch for one waiter, as in [QueuedStore]. When the head of the queue leaves, the
	// waiters behind it that fit now have a reservation.
	WatchQueued(ctx context.Context, key, waiter string, wake func()) error
}

// Admission says which holds of a key a hold may join.
type Admission struct {
	Group string // the holds of a key are all of one group
	Limit int    // at most this many holds of the group, this one included; 0: any number

	// Numbered gives the hold the number of its epoch, which the Result has in Fence. An epoch
	// begins when a hold enters while there is no other. Its number is greater than every number
	// that the key had before, as with [NumberedStore]. Reservations begin no epoch.
	Numbered bool

	// Slots gives the hold a number of its own, which the Result has in Slot: the lowest from 0 on
	// that no other hold of the key has. The hold keeps it until it ends. Limit must be at least 1
	// and at most [MaxSlots]; otherwise Enter is bad input.
	Slots bool

	// Turn says how Enter uses the queue; a store without one ignores it. With InOrder, Enter is
	// refused while the queue has a waiter before this one that does not fit and is not late. While
	// a waiter has a position or a reservation, all its calls have one Group and one Limit: a store
	// may count a call with others as another waiter.
	Turn
}

// Room is how many more holds the limit admits beside so many; -1: any number.
func (a Admission) Room(holds int) int {
	if a.Limit <= 0 {
		return -1
	}
	return max(a.Limit-holds, 0)
}

// MaxSlots is the largest limit of holds with slots.
const MaxSlots = 2047

// Validate says what is wrong with a.
func (a Admission) Validate() error {
	if a.Slots && (a.Limit < 1 || a.Limit > MaxSlots) {
		return fmt.Errorf("a limit of %d does not go with slots: use 1 to %d", a.Limit, MaxSlots)
	}
	return nil
}
