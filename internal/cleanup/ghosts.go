package cleanup

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

// ghosts are the entries whose cleanup was not answered, by key. To an attempt for the key, each may
// look like a holder.
type ghosts struct {
	count atomic.Int32
	byKey map[string]*entry // the latest one, and the others by next; guarded like all of leftovers
}

// add adds an entry, if it has a key.
func (g *ghosts) add(e *entry) {
	if e.Key == "" {
		return
	}
	if g.byKey == nil {
		g.byKey = map[string]*entry{}
	}
	e.next = g.byKey[e.Key]
	g.byKey[e.Key] = e
	g.count.Add(1)
}

func (g *ghosts) remove(e *entry) {
	if e.Key == "" {
		return
	}
	g.count.Add(-1)
	first := g.byKey[e.Key]
	switch {
	case first != e:
		for first.next != e {
			first = first.next
		}
		first.next = e.next
	case e.next == nil:
		delete(g.byKey, e.Key)
	default:
		g.byKey[e.Key] = e.next
	}
}

// haunted is [Queue.Haunted].
func (l *leftovers) haunted(key string) bool {
	if l.ghosts.count.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ghosts.byKey[key] != nil
}

// settle is [Queue.Settle].
func (l *leftovers) settle(ctx context.Context, key string) (found bool, err error) {
	if l.ghosts.count.Load() == 0 {
		return false, nil
	}
	var all []*entry
	l.mu.Lock()
	for e := l.ghosts.byKey[key]; e != nil; e = e.next {
		all = append(all, e)
	}
	l.mu.Unlock()
	for _, e := range all {
		if err := try(ctx, tryLimit, e.Remove); err != nil && !outcome.Permanent(err) {
			return true, err
		}
		l.mu.Lock()
		now := time.Now()
		l.finish(e) // its call confirms it
		l.hear(now)
		l.pump(now) // the other cleanups need not wait for the next probe
		l.mu.Unlock()
	}
	return len(all) > 0, nil
}

// GhostError says that the holder may be an earlier attempt of this process with an unknown
// outcome, whose cleanup was not answered.
type GhostError struct{ Err error }

func (e *GhostError) Error() string {
	return "not done: the lock may be held by an earlier attempt of this process, and its cleanup failed: " + e.Err.Error()
}

func (e *GhostError) Unwrap() error { return e.Err }

// Unsent says that nothing was done.
func (e *GhostError) Unsent() bool { return true }

// ErrorType is "ghost".
func (e *GhostError) ErrorType() string { return "ghost" }
