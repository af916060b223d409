package pagelocker

import (
	"context"
	"crypto/sha1" // the name that Redis stores give what was seen; it protects nothing
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

const (
	maxPast  = 40                     // holds in the history of a key
	maxIdle  = 1000                   // keys that are only history
	together = 500 * time.Millisecond // holds of one holder that are less apart are one in the history
	maxEnds  = 10_000                 // of holds of this process that a look at the store may still show

	forced, closed = string(locker.LostEvicted), "closed" // see Past
)

// registry is what this process holds and waits for, and what was held.
type registry struct {
	prints  bool          // there is a store whose holds are compared with ours
	lapse   time.Duration // nobody has looked for so long: nothing of the store is shown
	changed func()
	spare   sync.Pool // of *wait

	mu       sync.Mutex
	byKey    map[string]*keyed
	idle     []*keyed // that became idle, the first one first; some may be in use again
	label    string   // of the last token, to allocate it once
	waiting  int
	held     int
	acquired uint64
	lost     map[string]uint64 // by reason
	looked   time.Time         // when somebody last looked at what the store has
	ends     []end             // since then, the last one last
}

// end is when a hold of this process was over. A look that began before may have seen it.
type end struct {
	at     time.Time
	prints prints
}

// keyed is what the registry has of a key.
type keyed struct {
	key      string
	waits    []*wait   // in the order of the calls
	holds    []*hold   // in the order of the grants
	past     []past    // the last one to end last
	alone    time.Time // when this process last got the key for itself
	idleness int       // how often it is in idle
}

type wait struct {
	in    *keyed
	label string
	since time.Time
}

type hold struct {
	r          *registry
	in         *keyed
	label      string
	fence      uint64
	slot       int
	shared     bool      // others may have the key at the same time
	since      time.Time // when the hold began
	granted    time.Time // names the lease, together with the key
	expires    time.Time
	ttl        time.Duration
	extensions int
	failed     bool // the last extension failed
	forced     bool // it was evicted
	abandoned  bool
	prints     prints
}

// past is a hold that is over, or several.
type past struct {
	label        string
	here         bool // of this process
	since, until time.Time
	seen         bool      // since is when it was first seen
	earliest     time.Time // see Hold
	cause        string    // see Past
	times        int
	fence        uint64
	prints       prints // of the last
}

// prints are the two that stores make of a token: the first bytes of its SHA-256 and, where a
// server of Redis computes it, of its SHA-1.
type prints [2][8]byte

func printsOf(token string) (p prints) {
	sum, old := sha256.Sum256([]byte(token)), sha1.Sum([]byte(token))
	copy(p[0][:], sum[:])
	copy(p[1][:], old[:])
	return p
}

func (p prints) has(name [8]byte) bool {
	return name != [8]byte{} && (p[0] == name || p[1] == name)
}

// at returns what the registry has of key. The mutex must be held.
func (r *registry) at(key string) *keyed {
	k := r.byKey[key]
	if k == nil {
		k = &keyed{key: key}
		r.byKey[key] = k
	}
	return k
}

// labelOf does not keep the token in memory, as a part of its text would.
func (r *registry) labelOf(token string) string {
	if label := backends.HolderOf(token); label != r.label {
		r.label = strings.Clone(label)
	}
	return r.label
}

func (r *registry) wait(req contract.Request) *wait {
	w, _ := r.spare.Get().(*wait)
	if w == nil {
		w = new(wait)
	}
	r.mu.Lock()
	*w = wait{in: r.at(req.Key), label: r.labelOf(req.Token), since: time.Now()}
	w.in.waits = append(w.in.waits, w)
	r.waiting++
	r.mu.Unlock()
	r.changed()
	return w
}

func (r *registry) waited(w *wait) {
	r.mu.Lock()
	w.in.waits = without(w.in.waits, w)
	r.waiting--
	r.rest(w.in)
	w.in = nil
	r.mu.Unlock()
	r.spare.Put(w)
	r.changed()
}

// without keeps the capacity, so that a key that is locked again and again needs no memory.
func without[T comparable](list []T, gone T) []T {
	if i := slices.Index(list, gone); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

func (r *registry) begin(_ context.Context, lease contract.Lease) (context.Context, func(time.Time, error)) {
	h := &hold{
		r: r, fence: lease.Fence, slot: lease.Slot, shared: lease.Room != 0 || lease.Holds > 1,
		since: time.Now(), granted: lease.Granted, expires: lease.Expires, ttl: lease.Expires.Sub(lease.Granted),
	}
	if r.prints {
		h.prints = printsOf(lease.Token)
	}
	r.mu.Lock()
	h.in, h.label = r.at(lease.Key), r.labelOf(lease.Token)
	h.in.holds = append(h.in.holds, h)
	if !h.shared {
		h.in.alone = h.since
	}
	r.held++
	r.acquired++
	r.mu.Unlock()
	r.changed()
	return nil, h.end
}

func (r *registry) extended(lease contract.Lease, expires time.Time, ttl time.Duration, ok, abandoned bool) {
	r.mu.Lock()
	if k := r.byKey[lease.Key]; k != nil {
		for _, h := range k.holds {
			if !h.granted.Equal(lease.Granted) {
				continue
			}
			h.failed, h.abandoned = !ok, h.abandoned || abandoned
			if ok {
				h.extensions++
				h.expires, h.ttl = expires, ttl
			}
			break
		}
	}
	r.mu.Unlock()
	r.changed()
}

func (h *hold) end(at time.Time, cause error) {
	why := "released"
	if lost, ok := errors.AsType[*locker.LostError](cause); ok {
		why = string(lost.Reason)
	} else if errors.Is(cause, locker.ErrLost) {
		why = "lost"
	}
	r := h.r
	r.mu.Lock()
	r.held--
	r.ended(h.prints)
	h.in.holds = without(h.in.holds, h)
	if why != "released" {
		if r.lost == nil {
			r.lost = map[string]uint64{}
		}
		r.lost[why]++
	}
	if at.Before(h.since) { // another hook took longer than the lease
		at = h.since
	}
	if h.forced && why != "released" {
		why = forced
	}
	h.in.add(past{label: h.label, here: true, since: h.since, until: at, cause: why, times: 1, fence: h.fence, prints: h.prints})
	r.rest(h.in)
	r.mu.Unlock()
	r.changed()
}

// lookedAt is called before the store is asked.
func (r *registry) lookedAt(now time.Time) {
	r.mu.Lock()
	r.looked = now
	r.mu.Unlock()
}

// ended remembers the end of a hold, if somebody looks. The mutex must be held.
func (r *registry) ended(of prints) {
	now := time.Now() // a look that began while the release was on its way may have seen the hold
	switch {
	case !r.prints:
	case now.Sub(r.looked) > r.lapse:
		r.ends = nil
	default:
		r.ends = append(r.ends[max(len(r.ends)+1-maxEnds, 0):], end{now, of})
	}
}

// over adds the prints of holds of this process that have ended since then. The mutex must be held.
func (r *registry) over(over map[[8]byte]bool, since time.Time) map[[8]byte]bool {
	for i := len(r.ends) - 1; i >= 0 && !r.ends[i].at.Before(since); i-- {
		for _, name := range r.ends[i].prints {
			over[name] = true
		}
	}
	return over
}

// merge is what the store says of a key (nil: nothing), and what this process knows better. If the
// store has told nothing of the key, not even that it is free, a key that this process does not hold
// is unknown. The mutex must be held.
func (r *registry) merge(key string, store *Lock, over map[[8]byte]bool, told bool) *Lock {
	k := r.byKey[key]
	if k == nil {
		if store != nil && !slices.ContainsFunc(store.Holds, func(h Hold) bool { return over[decoded(h.Print)] }) {
			return store
		}
		k = &keyed{key: key}
	}
	l := k.merge(store, over)
	if !told && l.State == "free" {
		l.State = "unknown"
	}
	return l
}

// add puts a hold into the history, or adds it to the one before it.
func (k *keyed) add(p past) {
	if last := len(k.past) - 1; last >= 0 {
		l := &k.past[last]
		if l.label == p.label && l.here == p.here && l.cause == p.cause && p.cause != forced && p.since.Sub(l.until) < together && p.until.After(l.until) {
			l.until, l.fence, l.prints = p.until, p.fence, p.prints
			l.times++
			return
		}
	}
	if len(k.past) == maxPast {
		k.past = slices.Delete(k.past, 0, 1)
	}
	k.past = append(k.past, p)
}

// rest forgets keys that nobody uses, the oldest first. The mutex must be held.
func (r *registry) rest(k *keyed) {
	if len(k.waits)+len(k.holds) > 0 || k.idleness > 0 {
		return
	}
	k.idleness++
	r.idle = append(r.idle, k)
	for len(r.idle) > maxIdle {
		first := r.idle[0]
		r.idle[0] = nil
		r.idle = r.idle[1:]
		first.idleness--
		if len(first.waits)+len(first.holds) == 0 { // else it rests again later
			delete(r.byKey, first.key)
		}
	}
}

// saw puts a hold into the history that the store had and has no more, unless it was one of ours. Of
// those it is told only that they were evicted.
func (r *registry) saw(key string, h Hold, now time.Time, cause string, over map[[8]byte]bool) {
	name := decoded(h.Print)
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.at(key)
	defer r.rest(k)
	for _, ours := range k.holds {
		if ours.prints.has(name) {
			ours.forced = ours.forced || cause == forced
			return
		}
	}
	for i := range k.past {
		if p := &k.past[i]; p.prints.has(name) {
			if cause == forced && p.cause != "released" {
				p.cause = forced
			}
			return
		}
	}
	if over[name] {
		return
	}
	if k.alone.After(h.Since) && k.alone.Before(now) {
		now = k.alone // it was over when this process got the key
	}
	k.add(past{label: h.Holder, since: h.Since, seen: h.Seen, earliest: h.Earliest, until: now, cause: cause, times: 1, prints: prints{name}})
	slices.SortStableFunc(k.past, func(a, b past) int { return a.until.Compare(b.until) })
}
