package legacy

import (
	"sync"

	"github.com/lockstep-go/lockstep/locker"
)

// grants is what a Locker remembers of the leases it has given, for recipes where nothing in the store tells whose a lock
// is. Without it any Release would free whoever has the lock, and so would the clean-up of a [locker.Client] after an
// attempt that it has left, and that may never have been granted.
type grants[G any] struct {
	over func(*G) bool // tells that a grant need not be remembered any more; nil: until forget

	mu      sync.Mutex
	of      map[grantee]*G
	sweepAt int
}

// A grantee is what names a lease.
type grantee struct{ key, token string }

func name(l locker.Lease) grantee { return grantee{l.Key, l.Token} }

// remember drops what is over whenever there are twice as many as after the last time, which is a constant cost per
// grant.
func (gs *grants[G]) remember(l locker.Lease, g *G) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.of == nil {
		gs.of, gs.sweepAt = make(map[grantee]*G), minSweep
	}
	if gs.over != nil && len(gs.of) >= gs.sweepAt {
		for of, g := range gs.of {
			if gs.over(g) {
				delete(gs.of, of)
			}
		}
		gs.sweepAt = max(minSweep, 2*len(gs.of))
	}
	gs.of[name(l)] = g
}

const minSweep = 128

// get returns nil if l was not granted here, or is over.
func (gs *grants[G]) get(l locker.Lease) *G {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.of[name(l)]
}

func (gs *grants[G]) forget(l locker.Lease) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	delete(gs.of, name(l))
}
