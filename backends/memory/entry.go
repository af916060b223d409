package memory

import "time"

// An entry is the value under a key. A call for one kind fails on any other kind.
type entry struct {
	kind    kind
	value   string    // text
	share   *share    // shared
	expires time.Time // zero: never
	set     bool      // expires is from LegacyStore.Expire, and not from the holds of the share
}

type kind byte

const (
	text kind = iota
	shared
	other // any type that this package does not write
)

// left returns 0 for an entry that never expires.
func (e entry) left(now time.Time) time.Duration {
	if e.expires.IsZero() {
		return 0
	}
	return e.expires.Sub(now)
}

func (e entry) expired(now time.Time) bool {
	return !e.expires.IsZero() && !now.Before(e.expires)
}
