package memory

import (
	"context"
	"slices"
)

// Watch implements [backends.Store]. DeleteIf and [Store.Delete] wake; the end of a value by expiry does not, since
// whoever was refused has been told when that will be. Once ctx is done wake is not called again, except by a
// DeleteIf that is under way.
func (s *Store) Watch(ctx context.Context, key string, wake func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &watch{wake: func() {
		if ctx.Err() == nil { // AfterFunc runs in its own time
			wake()
		}
	}}
	s.mu.Lock()
	s.watches[key] = append(s.watches[key], w)
	s.mu.Unlock()
	context.AfterFunc(ctx, func() { s.unwatch(key, w) })
	return nil
}

// watch has an identity, which a func has not.
type watch struct{ wake func() }

// unwatch makes a new slice: the old one may be in the hands of a DeleteIf. Watch may append in place, since that
// changes nothing within the length that a DeleteIf has seen.
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
