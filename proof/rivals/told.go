package rivals

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/history"
)

// A Witness tells of what its Locker grants, in lines:
//
//	grant ID GROUP ASKED ANSWERED UNTIL NUMBER KEY OWNER
//	until ID TIME      the lease does not end before
//	release ID TIME    the release is about to be sent
//
// Times are in ns since 1970. Until when a lease lasts is what its holder believes. The group of a
// hold that takes the place of another one is "resumed".
type Witness struct {
	locker.Locker
	Group string
	Tell  func(line string)
}

// Acquire makes one attempt, and tells of a grant.
func (w Witness) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := w.Locker.Acquire(ctx, req)
	if err == nil {
		w.grant(w.Group, req, lease)
	}
	return lease, err
}

// Transfer makes one attempt, and tells of a grant.
func (w Witness) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	lease, err := w.Locker.Transfer(ctx, from, req)
	if err == nil {
		w.grant("resumed", req, lease)
	}
	return lease, err
}

// grant tells the key that was asked for, whatever the lease says.
func (w Witness) grant(group string, req contract.Request, lease contract.Lease) {
	answered := time.Now()
	w.Tell(fmt.Sprintf("grant %d %s %d %d %d %d %q %q", nameOf(lease.Token), group,
		lease.Granted.UnixNano(), answered.UnixNano(), lease.Expires.UnixNano(), lease.Fence, req.Key, req.Owner))
}

// Extend tells of the new end.
func (w Witness) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	longer, err := w.Locker.Extend(ctx, lease, ttl)
	if err == nil {
		w.Say("until", lease.Token, longer.Expires)
	}
	return longer, err
}

// Release tells of itself before it is sent.
func (w Witness) Release(ctx context.Context, lease contract.Lease) error {
	w.Say("release", lease.Token, time.Now())
	return w.Locker.Release(ctx, lease)
}

// Say tells of what happened to the lease with a token.
func (w Witness) Say(what, token string, at time.Time) {
	w.Tell(fmt.Sprintf("%s %d %d", what, nameOf(token), at.UnixNano()))
}

// nameOf names a grant without its token, which is a secret.
func nameOf(token string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(token)) // it never fails
	return h.Sum64()
}

// A Tenure is one hold, as its program has told of it.
type Tenure struct {
	Who, Key, Group        string
	Owner                  string // of a lock that nests
	Asked, Answered, Until int64
	Released, Done         int64 // 0: not
	Number                 uint64

	id uint64
}

// End is until when the store must keep a tenure: until its release, or the end of its lease.
func (t Tenure) End() int64 {
	if t.Released > 0 {
		return min(t.Released, t.Until)
	}
	return t.Until
}

// Grant returns the grant of a tenure. Those of readers may have the same number.
func (t Tenure) Grant() history.Grant {
	return history.Grant{Key: t.Key, Who: t.Who, Asked: t.Asked, Answered: t.Answered, Fence: t.Number, Shared: t.Group == "read"}
}

// A Record has what programs have told.
type Record struct {
	tb testing.TB

	mu      sync.Mutex
	told    []*Tenure
	byID    map[uint64]*Tenure
	refused []int64
}

// NewRecord returns an empty record. A program that tells of an error fails the test.
func NewRecord(tb testing.TB) *Record {
	return &Record{tb: tb, byID: map[uint64]*Tenure{}}
}

// Hear takes a line of a program: of a [Witness], or one of these. It passes over any other line.
//
//	done ID TIME       the work of a job has succeeded
//	refused TIME       an attempt that was held was sent then
//	error TEXT         something that must not happen
func (r *Record) Hear(who, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var id uint64
	var at int64
	g := &Tenure{Who: who}
	what, rest, _ := strings.Cut(line, " ")
	switch {
	case what == "error":
		r.tb.Errorf("%s: %s", who, rest)
	case what == "refused" && scan(rest, "%d", &at):
		r.refused = append(r.refused, at)
	case what == "grant" && scan(rest, "%d %s %d %d %d %d %q %q", &g.id, &g.Group, &g.Asked, &g.Answered, &g.Until, &g.Number, &g.Key, &g.Owner):
		r.byID[g.id] = g
		r.told = append(r.told, g)
	case !scan(rest, "%d %d", &id, &at) || r.byID[id] == nil: // it is from package testing
	case what == "until":
		r.byID[id].Until = max(r.byID[id].Until, at)
	case what == "release" && r.byID[id].Released == 0:
		r.byID[id].Released = at
	case what == "done":
		r.byID[id].Done = at
	}
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

// Tenures returns a copy of all tenures, in the order in which they were told.
func (r *Record) Tenures() []Tenure {
	return r.since(0)
}

// since leaves out the first n.
func (r *Record) since(n int) (all []Tenure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.told[min(n, len(r.told)):] {
		all = append(all, *t)
	}
	return all
}

func (r *Record) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.told)
}

// Refused returns when attempts were sent that were held, where programs tell of these.
func (r *Record) Refused() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int64(nil), r.refused...)
}

// Now returns what has been told of a tenure since it was returned.
func (r *Record) Now(t Tenure) Tenure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.byID[t.id]
}

// Patience is how long a test waits for a grant that must come, even on a busy machine.
const Patience = 2 * time.Minute

// Next waits for a tenure that was answered after an instant and fits, and returns the first that
// was told.
func (r *Record) Next(tb testing.TB, after time.Time, fits func(Tenure) bool) Tenure {
	tb.Helper()
	seen := 0
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, t := range r.since(seen) {
			seen++
			if t.Answered > after.UnixNano() && fits(t) {
				return t
			}
		}
	}
	tb.Fatalf("nothing was granted for %v", Patience)
	return Tenure{}
}
