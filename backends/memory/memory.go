// Package memory is a store in a map of this process: the reference for other backends, and the one to use in tests,
// in fake time too. It excludes goroutines, not processes; what it holds ends with the process.
package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{
		id:      rand.Text(),
		maxTTL:  backends.DefaultMaxTTL,
		entries: newTable[entry](),
		fences:  newTable[fence](),
		watches: make(map[string][]*watch),
		queues:  make(map[string]queue),
		turns:   make(map[place]*turn),
	}
	for _, opt := range opts {
		if opt != nil {
			opt(s)
		}
	}
	return s
}

// An Option changes what [New] returns.
type Option func(*Store)

// WithMaxTTL sets the longest life that the store gives a value; it is [backends.DefaultMaxTTL], 30 seconds,
// otherwise. A ttl is at least a millisecond, so a store with a lower limit refuses them all.
func WithMaxTTL(d time.Duration) Option {
	return func(s *Store) { s.maxTTL = d }
}

// A Store is a [backends.NumberedStore], a [backends.FencedStore], a [backends.NestedStore] and a
// [backends.QueuedStore], and with Legacy a [backends.LegacyStore]. The value of a lock, numbered
// or not, is a text, and so is what the plain commands work on. Nested holds are another type to
// them, and the other way about.
//
// It keeps time to the nanosecond, and calls wake functions before DeleteIf or Leave returns, in the order in which they
// were registered. It has no goroutine but the short ones in which the end of a context removes a watch and a reservation ends, so it
// can be used in a bubble of testing/synctest; but a store belongs in one bubble, since each has a time of its own.
//
// It goes by the monotonic clock. That clock stops while the machine is suspended, and here it may: the values are
// in the memory of the only process that can use them, which is suspended with them.
type Store struct {
	id     string
	maxTTL time.Duration

	mu      sync.Mutex
	ahead   time.Duration // of the clock of this process, since it jumped
	entries table[entry]
	fences  table[fence] // the last number of each key, which outlives the entry
	watches map[string][]*watch
	queues  map[string]queue
	turns   map[place]*turn
}

var (
	_ backends.NumberedStore = (*Store)(nil)
	_ backends.FencedStore   = (*Store)(nil)
	_ backends.NestedStore   = (*Store)(nil)
	_ backends.QueuedStore   = (*Store)(nil)
	_ backends.Identifier    = (*Store)(nil)
)

// SetNX implements [backends.Store]. It allocates nothing, except when the map has to grow.
func (s *Store) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	if err := s.check(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	res, _, err := s.grant(key, value, ttl, s.now())
	return res, err
}

// grant also tells whether value was there already.
func (s *Store) grant(key, value string, ttl time.Duration, now time.Time) (res backends.Result, again bool, err error) {
	e, found := s.entries.live(key, now)
	switch {
	case found && e.kind != text:
		return backends.Result{}, false, errWrongType
	case found && e.value != value:
		return backends.Result{Left: e.left(now), Foreign: e.expires.IsZero()}, false, nil
	}
	until := now.Add(ttl)
	if found && e.expires.After(until) { // what was extended since stays so
		until = e.expires
	}
	s.entries.put(key, entry{value: value, expires: until}, now)
	return backends.Result{OK: true}, found, nil
}

// ExpireIf implements [backends.Store]. A value without expiry stays as it is, and the answer is true: for ever is no
// shorter than ttl.
func (s *Store) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (ok bool, err error) {
	if err := s.check(ctx, ttl); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found := s.entries.live(key, now)
	switch {
	case found && e.kind != text:
		return false, errWrongType
	case !found || e.value != value:
		return false, nil
	}
	if until := now.Add(ttl); !e.expires.IsZero() && until.After(e.expires) {
		e.expires = until
		s.entries.put(key, e, now)
	}
	return true, nil
}

// DeleteIf implements [backends.Store].
func (s *Store) DeleteIf(ctx context.Context, key, value string) (ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ok, wakes, err := s.remove(key, value)
	wakeAll(wakes) // not under the mutex: the first thing a waiter does may be a call
	return ok, err
}

func (s *Store) remove(key, value string) (ok bool, wakes []func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e, found := s.entries.live(key, now)
	switch {
	case found && e.kind != text:
		return false, nil, errWrongType
	case !found || e.value != value:
		return false, nil, nil
	}
	return true, s.free(key, now), nil
}

// Identify implements [backends.Identifier]: every Store is a server of its own.
func (s *Store) Identify(ctx context.Context) (backends.Identity, error) {
	if err := ctx.Err(); err != nil {
		return backends.Identity{}, err
	}
	return backends.Identity{Server: s.id, Role: "master"}, nil
}

// now is the store's time. The mutex is held.
func (s *Store) now() time.Time { return time.Now().Add(s.ahead) }

// check refuses what must not reach the map.
func (s *Store) check(ctx context.Context, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ttl < minTTL {
		return refusal{fmt.Errorf("ttl %v is under the store's minimum of %v", ttl, minTTL)}
	}
	if ttl > s.maxTTL {
		return refusal{fmt.Errorf("ttl %v is over the store's limit of %v (see memory.WithMaxTTL)", ttl, s.maxTTL)}
	}
	return nil
}

const minTTL = time.Millisecond

var errWrongType = refusal{backends.ErrWrongType}

// refusal is an error that leaves no doubt: nothing was changed and nothing will be.
type refusal struct{ error }

func (refusal) Permanent() bool   { return true }
func (refusal) ErrorType() string { return "invalid" }
func (r refusal) Unwrap() error   { return r.error }
