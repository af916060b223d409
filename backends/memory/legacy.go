package memory

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Legacy returns the same store with the plain commands. It has a type of its own because its Get
// and Delete differ from those of Store, which are for tests.
func (s *Store) Legacy() *LegacyStore { return &LegacyStore{s} }

// A LegacyStore is a Store that is also a [backends.LegacyStore].
type LegacyStore struct{ *Store }

var (
	_ backends.LegacyStore  = (*LegacyStore)(nil)
	_ backends.FencedStore  = (*LegacyStore)(nil)
	_ backends.OrderedStore = (*LegacyStore)(nil)
	_ backends.Identifier   = (*LegacyStore)(nil)
)

// MaxTTL implements [backends.LegacyStore].
func (l *LegacyStore) MaxTTL() time.Duration { return l.maxTTL }

// SetNXForever implements [backends.LegacyStore]. A value of any type keeps the key from being set.
func (l *LegacyStore) SetNXForever(ctx context.Context, key, value string) (ok bool, err error) {
	err = l.do(ctx, key, func(_ entry, there bool, now time.Time) {
		if ok = !there; ok {
			l.entries.put(key, entry{value: value}, now)
		}
	})
	return ok, err
}

// Get implements [backends.LegacyStore].
func (l *LegacyStore) Get(ctx context.Context, key string) (value string, found bool, err error) {
	err = l.doText(ctx, key, func(e entry, there bool, _ time.Time) {
		value, found = e.value, there
	})
	return value, found, err
}

// GetSet implements [backends.LegacyStore].
func (l *LegacyStore) GetSet(ctx context.Context, key, value string) (old string, found bool, err error) {
	err = l.doText(ctx, key, func(e entry, there bool, now time.Time) {
		old, found = e.value, there
		l.entries.put(key, entry{value: value}, now)
	})
	return old, found, err
}

// Left implements [backends.LegacyStore], for a value of any type.
func (l *LegacyStore) Left(ctx context.Context, key string) (left time.Duration, found bool, err error) {
	err = l.do(ctx, key, func(e entry, there bool, now time.Time) {
		left, found = e.left(now), there
	})
	return left, found, err
}

// Expire implements [backends.LegacyStore], for a value of any type.
func (l *LegacyStore) Expire(ctx context.Context, key string, ttl time.Duration) (found bool, err error) {
	if err := l.check(ctx, ttl); err != nil {
		return false, err
	}
	err = l.do(ctx, key, func(e entry, there bool, now time.Time) {
		if found = there; found {
			e.expires, e.set = now.Add(ttl), true
			l.entries.put(key, e, now)
		}
	})
	return found, err
}

// Delete implements [backends.LegacyStore], for a value of any type.
func (l *LegacyStore) Delete(ctx context.Context, key string) (found bool, err error) {
	err = l.do(ctx, key, func(_ entry, there bool, _ time.Time) {
		found = there
		delete(l.entries.rows, key)
	})
	return found, err
}

// TxExpireIf implements [backends.LegacyStore].
func (l *LegacyStore) TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (ok bool, err error) {
	if err := l.check(ctx, ttl); err != nil {
		return false, err
	}
	err = l.doText(ctx, key, func(e entry, there bool, now time.Time) {
		if ok = there && e.value == value; ok {
			e.expires = now.Add(ttl)
			l.entries.put(key, e, now)
		}
	})
	return ok, err
}

// TxDeleteIf implements [backends.LegacyStore].
func (l *LegacyStore) TxDeleteIf(ctx context.Context, key, value string) (ok bool, err error) {
	err = l.doText(ctx, key, func(e entry, there bool, _ time.Time) {
		if ok = there && e.value == value; ok {
			delete(l.entries.rows, key)
		}
	})
	return ok, err
}

// GetBit implements [backends.LegacyStore].
func (l *LegacyStore) GetBit(ctx context.Context, key string, offset uint32) (on bool, err error) {
	err = l.doText(ctx, key, func(e entry, _ bool, _ time.Time) {
		on = bit(e.value, offset)
	})
	return on, err
}

// SetBit implements [backends.LegacyStore]. A new value has no expiry; an existing one keeps its
// expiry.
func (l *LegacyStore) SetBit(ctx context.Context, key string, offset uint32, on bool) (was bool, err error) {
	err = l.doText(ctx, key, func(e entry, _ bool, now time.Time) {
		was = bit(e.value, offset)
		e.value = withBit(e.value, offset, on)
		l.entries.put(key, e, now)
	})
	return was, err
}

// bit returns bit n of a value: in byte n/8, the highest bit first.
func bit(value string, n uint32) bool {
	return int(n/8) < len(value) && value[n/8]&mask(n) != 0
}

func withBit(value string, n uint32, on bool) string {
	bytes := make([]byte, max(len(value), int(n/8)+1))
	copy(bytes, value)
	if on {
		bytes[n/8] |= mask(n)
	} else {
		bytes[n/8] &^= mask(n)
	}
	return string(bytes)
}

func mask(n uint32) byte { return 0x80 >> (n % 8) }

// doText is do for commands that need a text.
func (l *LegacyStore) doText(ctx context.Context, key string, command func(e entry, found bool, now time.Time)) error {
	wrong := false
	err := l.do(ctx, key, func(e entry, found bool, now time.Time) {
		if wrong = found && e.kind != text; !wrong {
			command(e, found, now)
		}
	})
	if wrong {
		return errWrongType
	}
	return err
}

// do runs one command on the entry of key, or on the zero entry if there is none.
func (l *LegacyStore) do(ctx context.Context, key string, command func(e entry, found bool, now time.Time)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	e, found := l.entries.live(key, now)
	command(e, found, now)
	return nil
}
