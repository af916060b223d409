package pagelocker

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Lock is what the page knows of a key. All times are those of this process. It is the JSON of the
// page; new fields may be added.
type Lock struct {
	Key      string   `json:"key"`
	State    string   `json:"state"`              // held, reserved, foreign, free or unknown: the store has not told
	Group    string   `json:"group,omitempty"`    // of the holds, where several may hold the key
	Holding  int      `json:"holding"`            // how many holds there are; Holds has 100 at most from a store
	Holds    []Hold   `json:"holds,omitempty"`    // those that end first are first
	Waiting  int      `json:"waiting"`            // calls of this process, and waiters of others
	Others   bool     `json:"others,omitempty"`   // others may wait too: the store can't tell how many
	Queue    []Waiter `json:"queue,omitempty"`    // the head first
	Reserved int      `json:"reserved,omitempty"` // holds that a store keeps for waiters
	Fence    uint64   `json:"fence,omitempty"`    // the last number that is known
	Print    string   `json:"print,omitempty"`    // of a foreign text
	History  []Past   `json:"history,omitempty"`  // the last one to end last

	read time.Time // when the store was asked
}

// Hold is one hold of a Lock.
type Hold struct {
	Holder     string        `json:"holder,omitempty"`  // see locker.WithHolder
	Here       bool          `json:"here,omitempty"`    // this process has it
	Since      time.Time     `json:"since,omitzero"`    // when it began, or was first seen
	Seen       bool          `json:"seen,omitempty"`    // Since is when it was first seen
	Earliest   time.Time     `json:"earliest,omitzero"` // with Seen: it began no earlier, by the clock of the store
	Expires    time.Time     `json:"expires"`           // unless it is renewed
	Lease      time.Duration `json:"lease_ns"`          // the whole lease, as far as it is known
	Fence      uint64        `json:"fence,omitempty"`
	Slot       int           `json:"slot,omitempty"` // of a semaphore with slots, from 1; 0: none
	Extensions int           `json:"extensions,omitempty"`
	Failing    bool          `json:"failing,omitempty"`   // the last extension failed
	Abandoned  bool          `json:"abandoned,omitempty"` // its *Lock became garbage without Unlock
	Foreign    bool          `json:"foreign,omitempty"`   // no Client wrote it
	Evicted    bool          `json:"evicted,omitempty"`   // it keeps the key closed after an eviction
	Print      string        `json:"print,omitempty"`     // names it for a release by force
}

// Waiter is a position in the queue. In a store it stands for a Client, whatever number of calls.
type Waiter struct {
	Label string    `json:"label,omitempty"`
	Here  bool      `json:"here,omitempty"`
	Calls int       `json:"calls,omitempty"` // of this process; 0: unknown
	Since time.Time `json:"since,omitzero"`  // of its oldest call
}

// Past is a hold that is over, or several of one holder that followed each other within half a
// second. Cause is a locker.LostReason, or one of:
//
//   - released: by its holder, in this process
//   - gone: the store has it no more, for whatever cause
//   - evicted: an operator ended it, by this page or by another program
//   - closed: no hold, but what kept the key closed after an eviction
type Past struct {
	Holder   string    `json:"holder,omitempty"`
	Here     bool      `json:"here,omitempty"`
	Since    time.Time `json:"since"`
	Seen     bool      `json:"seen,omitempty"`    // as in Hold
	Earliest time.Time `json:"earliest,omitzero"` // as in Hold
	Until    time.Time `json:"until"`
	Cause    string    `json:"cause"`
	Times    int       `json:"times"`
	Fence    uint64    `json:"fence,omitempty"`
}

func decoded(name string) (b [8]byte) {
	_, _ = hex.Decode(b[:], []byte(name[:min(len(name), 16)])) // what is no hex names nothing of ours
	return b
}

const jitter = 300 * time.Millisecond // between two answers about a lease that was not renewed

// lockOf makes a Lock of what a store says, and of what it said before (nil: nothing).
func lockOf(key string, s backends.State, before *Lock, read time.Time) *Lock {
	l := &Lock{
		Key: key, Group: s.Group, Holding: s.Holding, Waiting: max(s.Waiting, 0), Others: s.Waiting == backends.NotKnown,
		Reserved: s.Reserved, Fence: s.Fence, Print: s.Print, read: read,
	}
	for _, label := range s.Waiters {
		l.Queue = append(l.Queue, Waiter{Label: label})
	}
	for _, h := range s.Holds {
		own := Hold{
			Holder: h.Holder, Since: read, Seen: true, Expires: read.Add(h.Left), Lease: h.Left, Slot: h.Slot + 1,
			Foreign: h.Foreign, Evicted: h.Evicted, Print: h.Print,
		}
		if before != nil {
			if i := slices.IndexFunc(before.Holds, func(b Hold) bool { return b.Print == h.Print }); i >= 0 {
				b := before.Holds[i]
				own.Since, own.Earliest, own.Lease = b.Since, b.Earliest, max(b.Lease, own.Lease)
				if d := own.Expires.Sub(b.Expires); d > -jitter && d < jitter {
					own.Expires = b.Expires
				}
			}
		}
		// No number is drawn while somebody holds the key. After Since: the clocks differ.
		if drawn := drawnAt(s.Fence, read); s.Holding == 1 && !h.Evicted && !drawn.IsZero() && !drawn.After(own.Since) {
			own.Earliest = drawn
		}
		l.Holds = append(l.Holds, own)
	}
	switch {
	case s.Foreign:
		l.State = "foreign"
	case s.Holding > 0:
		l.State = "held"
	case s.Reserved > 0:
		l.State = "reserved"
	default:
		l.State = "free"
	}
	return l
}

// drawnAt is when a number was drawn, if it is a time in microseconds, as stores with a clock draw it.
func drawnAt(fence uint64, now time.Time) time.Time {
	const tooOld = 10 * 365 * 24 * time.Hour // a number that only counts
	if t := time.UnixMicro(int64(fence & (1<<62 - 1))); now.Sub(t) < tooOld {
		return t
	}
	return time.Time{}
}

// merge makes a Lock of what this process knows and what the store says (nil: nothing). The store may
// have answered some time ago. So a hold that it shows is left out if it was one of this process that has
// ended (over), or if this process has had the key alone since then. The mutex of the registry must be
// held.
func (k *keyed) merge(store *Lock, over map[[8]byte]bool) *Lock {
	l := &Lock{Key: k.key, State: "free"}
	if store != nil {
		*l = *store
		l.Holds, l.Queue = nil, slices.Clone(store.Queue)
	}
	for _, h := range k.holds {
		l.Holds = append(l.Holds, Hold{
			Holder: h.label, Here: true, Since: h.since, Expires: h.expires, Lease: h.ttl, Fence: h.fence,
			Extensions: h.extensions, Failing: h.failed, Abandoned: h.abandoned,
		})
		l.Fence = max(l.Fence, h.fence)
	}
	ours := len(l.Holds)
	if store != nil {
		for _, h := range store.Holds {
			name := decoded(h.Print)
			i := slices.IndexFunc(k.holds, func(own *hold) bool { return own.prints.has(name) })
			switch {
			case i >= 0:
				l.Holds[i].Print, l.Holds[i].Slot = h.Print, h.Slot
			case over[name], !k.alone.Before(store.read):
				l.Holding--
			default:
				l.Holds = append(l.Holds, h)
			}
		}
		for _, h := range l.Holds[:ours] {
			if h.Print == "" { // the store did not know it yet
				l.Holding++
			}
		}
	}
	l.Holding = max(l.Holding, len(l.Holds))
	slices.SortStableFunc(l.Holds, func(a, b Hold) int { return a.Expires.Compare(b.Expires) })
	switch {
	case l.Holding > 0:
		l.State = "held"
	case l.State == "held":
		l.State = "free"
	}
	l.queue(k.waits)
	for _, p := range k.past {
		l.History = append(l.History, Past{
			Holder: p.label, Here: p.here, Since: p.since, Seen: p.seen, Earliest: p.earliest, Until: p.until, Cause: p.cause, Times: p.times, Fence: p.fence,
		})
	}
	return l
}

// queue adds the calls of this process to the position of their Client, or behind the others.
func (l *Lock) queue(waits []*wait) {
	for _, w := range waits {
		i := slices.IndexFunc(l.Queue, func(q Waiter) bool { return q.Label == w.label && (q.Here || q.Calls == 0) })
		if i < 0 {
			l.Queue = append(l.Queue, Waiter{Label: w.label})
			l.Waiting++
			i = len(l.Queue) - 1
		}
		q := &l.Queue[i]
		if q.Calls++; q.Calls > 1 {
			l.Waiting++
		} else {
			q.Here, q.Since = true, w.since
		}
	}
}

// taken reports whether the key is known to keep callers out.
func (l *Lock) taken() bool { return l.State != "free" && l.State != "unknown" }

// Closed reports whether nobody holds the key, and what closes it is an eviction.
func (l *Lock) Closed() bool { return l.Holding == 1 && len(l.Holds) == 1 && l.Holds[0].Evicted }

// age is the begin of the oldest hold; zero: nobody holds it.
func (l *Lock) age() (oldest time.Time) {
	for _, h := range l.Holds {
		if oldest.IsZero() || h.Since.Before(oldest) {
			oldest = h.Since
		}
	}
	return oldest
}

// begin is when the oldest hold may have begun: not after age.
func (l *Lock) begin() (oldest time.Time) {
	for _, h := range l.Holds {
		if t := cmp.Or(h.Earliest, h.Since); oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
	}
	return oldest
}

// matches reports whether a key or a holder has the text, which is in lower case.
func (l *Lock) matches(text string) bool {
	in := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	return text == "" || in(l.Key) || slices.ContainsFunc(l.Holds, func(h Hold) bool { return in(h.Holder) }) ||
		slices.ContainsFunc(l.Queue, func(w Waiter) bool { return in(w.Label) })
}
