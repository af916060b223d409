package legacy

import (
	"sync"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// grants are the leases that a Locker has granted, for recipes where the store does not show whose
// a lock is. Without them any Release would free the lock of any holder. So would the cleanup
// that a [locker.Client] makes after an attempt that may never have been granted.
type grants[G any] struct {
	over func(*G) bool // reports that a grant can be forgotten; nil: only forget removes it

	mu      sync.Mutex
	of      map[grantee]*G
	sweepAt int
}

// A grantee identifies a lease.
type grantee struct{ key, token string }

func name(l contract.Lease) grantee { return grantee{l.Key, l.Token} }

// remember also removes the grants that are over, each time when their number has doubled. So the
// cost per grant is constant.
func (gs *grants[G]) remember(l contract.Lease, g *G) {
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

// get returns nil if l was not granted here, or is forgotten.
func (gs *grants[G]) get(l contract.Lease) *G {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.of[name(l)]
}

func (gs *grants[G]) forget(l contract.Lease) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	delete(gs.of, name(l))
}
