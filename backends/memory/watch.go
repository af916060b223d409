package memory

import (
	"context"
	"slices"
)

// Watch implements [backends.Store]. DeleteIf and [Store.Delete] wake. The expiry of a value does
// not: a caller that finds the key held learns when it expires. Once ctx is done wake is not
// called again, except by a DeleteIf that is under way.
func (s *Store) Watch(ctx context.Context, key string, wake func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &watch{wake: func() {
		if ctx.Err() == nil { // AfterFunc may run later than the end of ctx
			wake()
		}
	}}
	s.mu.Lock()
	s.watches[key] = append(s.watches[key], w)
	s.mu.Unlock()
	context.AfterFunc(ctx, func() { s.unwatch(key, w) })
	return nil
}

// watch gives a wake function an identity, since functions can't be compared.
type watch struct{ wake func() }

// unwatch makes a new slice: a DeleteIf may be using the old one. Watch may append in place, since
// that does not change the elements which a DeleteIf sees.
func (s *Store) unwatch(key string, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.Clone(s.watches[key])
	rest = slices.DeleteFunc(rest, func(other *watch) bool { return other == w })
	if len(rest) == 0 {
		delete(s.watches, key)
		return
	}
	s.watches[key] = rest
}

func wake(watches []*watch) {
	for _, w := range watches {
		w.wake()
	}
}
