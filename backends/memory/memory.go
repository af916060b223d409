// Package memory is a store in a map of this process. It is the reference for other backends, and
// the store to use in tests, also in fake time. It excludes goroutines, not processes. Its data
// ends with the process.
package memory

import (
	"context"
	"crypto/rand"
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
		turns:   make(map[waiting]*turn),
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

// WithMaxTTL sets the longest life that the store gives a value. The default is
// [backends.DefaultMaxTTL], 30 seconds. A ttl is at least a millisecond, so with a lower limit the
// store rejects every ttl.
func WithMaxTTL(d time.Duration) Option {
	return func(s *Store) { s.maxTTL = d }
}

// A Store is a [backends.NumberedStore], a [backends.FencedStore], a [backends.OrderedStore], a
// [backends.QueuedStore], a [backends.Inspector], a [backends.Lister], a [backends.Evictor], a
// [backends.TransferStore] and a [backends.SharedTransferStore]. Its Legacy is a
// [backends.LegacyStore] as well. The value of a lock, numbered or not, is a text, and the plain
// commands work on texts. Shared holds are another type.
//
// It keeps time to the nanosecond. It calls wake functions before DeleteIf or Leave returns, in the
// order in which they were registered.
//
// It can be used in a testing/synctest bubble: its only goroutines are short, at the end of a
// context and at the end of a reservation. Use a store in one bubble only, since each bubble has
// its own time.
//
// It uses the monotonic clock. That clock stops while the machine is suspended. This does no harm
// here: the only process that can use the values is suspended as well.
type Store struct {
	id     string
	maxTTL time.Duration

	mu      sync.Mutex
	ahead   time.Duration // of the clock of this process, by Jump
	entries table[entry]
	fences  table[fence] // the last number of each key; it outlives the entry
	watches map[string][]*watch
	queues  map[string]queue
	turns   map[waiting]*turn
}

var (
	_ backends.NumberedStore = (*Store)(nil)
	_ backends.FencedStore   = (*Store)(nil)
	_ backends.OrderedStore  = (*Store)(nil)
	_ backends.QueuedStore   = (*Store)(nil)
	_ backends.Identifier    = (*Store)(nil)
	_ backends.Inspector     = (*Store)(nil)
	_ backends.Lister        = (*Store)(nil)
	_ backends.Evictor       = (*Store)(nil)

	_ backends.TransferStore       = (*Store)(nil)
	_ backends.SharedTransferStore = (*Store)(nil)
)

// Prompt tells that no call waits for anything.
func (s *Store) Prompt() bool { return true }

// SetNX implements [backends.Store]. It allocates only if the map must grow.
func (s *Store) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	if err := s.check(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	res, _, err := s.grant(key, value, ttl, s.now())
	return res, err
}

// grant also returns whether value was there already.
func (s *Store) grant(key, value string, ttl time.Duration, now time.Time) (res backends.Result, again bool, err error) {
	e, found := s.entries.live(key, now)
	switch {
	case found && e.kind != text:
		return backends.Result{}, false, errWrongType
	case found && e.value != value:
		return backends.Result{Left: e.left(now), Foreign: e.expires.IsZero(), Holder: backends.InTheWay(backends.LabelOf(e.value))}, false, nil
	}
	until := now.Add(ttl)
	if found && e.expires.After(until) { // an extension in between must not be undone
		until = e.expires
	}
	s.entries.put(key, entry{value: value, expires: until}, now)
	return backends.Result{OK: true}, found, nil
}

// ExpireIf implements [backends.Store]. A value without expiry stays as it is, and ok is true: it
// lives longer than ttl.
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
	wakeAll(wakes) // not under the mutex: a wake function may call the store
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

// now returns the store's time. The mutex must be held.
func (s *Store) now() time.Time { return time.Now().Add(s.ahead) }

// check returns the error of a call that must change nothing.
func (s *Store) check(ctx context.Context, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return backends.CheckTTL(ctx, ttl, s.maxTTL, "memory.WithMaxTTL")
}

var (
	errWrongType  = backends.AsPermanent(backends.ErrWrongType)
	errOtherGroup = backends.AsPermanent(backends.ErrOtherGroup)
)
