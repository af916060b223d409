package lockertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// evictSentences are about an operator who ends a hold by force.
var evictSentences = []sentence{
	{"when an operator evicts a hold, the context ends with ErrLost, evicted, no later than Expires, and names the operator", needs(evicts), func(x *fixture) {
		x.evicted(func(l *locker.Lock) error { return x.lost(l) })
	}},
	{"Unlock of a lock that an operator has evicted unnoticed matches ErrLost, evicted, and names the operator", needs(evicts), func(x *fixture) {
		x.evicted(func(l *locker.Lock) error { return l.Unlock(x.Context()) })
	}},
	{"an evicted lock is held until its lease would have ended, and the error names the operator", needs(evicts), func(x *fixture) {
		for _, by := range operators {
			g := x.grant(x.key("k"+by), x.long)
			x.beneath.Evict(g.Key, by)
			began := time.Now()
			_, err := x.locker.Acquire(x.Context(), x.request(g.Key, x.long))
			x.wantHeld(err, g, began)
			x.wantEvictedBy("Acquire", err, by)
			if held, _ := errors.AsType[*locker.HeldError](err); held.Holder != by {
				x.Errorf("the holder is %q; want %q", held.Holder, by)
			}
		}
	}},
	{"a lock that is lost because another hold was evicted is not told as evicted", needs(evicts), func(x *fixture) {
		x.inTime(renewed, func(key string, ttl time.Duration) bool {
			l := x.lock(x.client(locker.WithTTL(ttl)), key)
			x.beneath.Delete(l.Key())
			x.grant(l.Key(), x.long)
			x.beneath.Evict(l.Key(), operators[0])
			lost := x.lost(l)
			if lost.Reason == locker.LostEvicted {
				x.Errorf("lost: %v", lost)
			}
			return taken(lost)
		})
	}},
}

// operators are their labels. The second has given none.
var operators = []string{"ann's host", ""}

// evicted checks the error of a hold that was evicted. On a slow machine it may have expired first, or
// the look of the strategy for the cause took too long.
func (x *fixture) evicted(end func(l *locker.Lock) error) {
	x.Helper()
	for _, by := range operators {
		x.inTime(renewed, func(key string, ttl time.Duration) bool {
			l := x.lock(x.client(locker.WithTTL(ttl)), key)
			x.beneath.Evict(l.Key(), by)
			began := time.Now()
			err := end(l)
			if !errors.Is(err, locker.ErrLost) && (x.repeated(began) || !x.Bubble && l.Lease().Ended()) {
				return false
			}
			x.wantLost("an evicted hold", err)
			if lost, _ := errors.AsType[*locker.LostError](err); lost.Reason != locker.LostEvicted {
				if x.Bubble {
					x.Errorf("lost: %v; want evicted", lost)
				}
				return x.Bubble
			}
			x.wantEvictedBy("an evicted hold", err, by)
			return true
		})
	}
}

// wantEvictedBy checks that err names the operator, for programs and for people.
func (x *fixture) wantEvictedBy(what string, err error, by string) {
	x.Helper()
	evicted, ok := errors.AsType[*locker.EvictedError](err)
	if !ok || evicted.By != by {
		x.Fatalf("%s: error %v; want one with an *EvictedError by %q", what, err, by)
	}
	says := "evicted by an operator"
	if by != "" {
		says = fmt.Sprintf("evicted by %q", by)
	}
	if !strings.Contains(err.Error(), says) {
		x.Errorf("%s: error %v; want it to say %s", what, err, says)
	}
}
