package redlock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// QuorumError says why there was no quorum, with the vote of each node that had answered by then.
// It matches [locker.ErrHeld] unless more nodes failed, or did not answer within the limit, than
// the quorum can do without. So contention and an outage are different errors.
type QuorumError struct {
	Needed int // the quorum
	Votes  []Vote
}

// Vote is the answer of one node.
type Vote struct {
	Outcome Outcome
	Err     error         // nil if Granted
	Latency time.Duration // of the answer; 0 if Pending
}

// Outcome is a vote as one word.
type Outcome string

// The outcomes. After Pending or Failed it is unknown what the node did.
const (
	Granted Outcome = "granted" // did what it was asked to do
	Held    Outcome = "held"    // someone else has the lock there
	Lost    Outcome = "lost"    // does not have the lease any more
	Failed  Outcome = "failed"  // an error
	Pending Outcome = "pending" // had not answered when the question was decided
)

var (
	errNoAnswer  = errors.New("no answer")
	errOvertaken = errors.New("overtaken by another grant")
)

// Error says whether it is contention, counts the votes, and lists each vote that is not Granted
// with the number of its node, from 1.
func (e *QuorumError) Error() string {
	var text strings.Builder
	if e.contended() {
		text.WriteString("held by someone else: ")
	}
	fmt.Fprintf(&text, "%d of %d nodes granted, %d needed", e.count(Granted, nil), len(e.Votes), e.Needed)
	separator := ": "
	for i, v := range e.Votes {
		if v.Outcome != Granted {
			fmt.Fprintf(&text, "%snode %d: %s", separator, i+1, v)
			separator = "; "
		}
	}
	return text.String()
}

// String returns the outcome, or a text that says more.
func (v Vote) String() string {
	var held *locker.HeldError
	var own *locker.Error
	var evicted *locker.EvictedError
	switch {
	case errors.As(v.Err, &evicted) && errors.As(v.Err, &held) && held.Left > 0:
		return fmt.Sprintf("%v, closed for %v more", evicted, held.Left.Round(time.Millisecond))
	case errors.As(v.Err, &evicted):
		return evicted.Error()
	case errors.As(v.Err, &held) && held.Foreign:
		return "held by a value without expiry"
	case errors.As(v.Err, &held) && held.Left > 0:
		return fmt.Sprintf("held for %v more", held.Left.Round(time.Millisecond))
	case v.Outcome == Failed && errors.As(v.Err, &own):
		return own.Err.Error()
	case v.Outcome == Failed || errors.Is(v.Err, errOvertaken):
		return v.Err.Error()
	case v.Outcome == Pending:
		return "not waited for"
	}
	return string(v.Outcome)
}

// Is matches locker.ErrHeld for contention. It matches locker.ErrForeignKey if values without
// expiry prevent a quorum.
func (e *QuorumError) Is(target error) bool {
	switch target {
	case locker.ErrHeld:
		return e.contended()
	case locker.ErrForeignKey:
		return e.foreign()
	}
	return false
}

// Unwrap returns the errors of the nodes that failed, unless it is contention. If an operator has
// evicted the hold, or what is in the way was evicted, it returns each [locker.EvictedError].
func (e *QuorumError) Unwrap() []error {
	var errs []error
	contended := e.contended()
	for _, v := range e.Votes {
		var evicted *locker.EvictedError
		switch {
		case v.Outcome == Failed && !contended:
			errs = append(errs, v.Err)
		case errors.As(v.Err, &evicted):
			errs = append(errs, evicted)
		}
	}
	return errs
}

// evicted reports whether so many nodes have lost the lease because an operator has ended it there
// that no quorum is possible.
func (e *QuorumError) evicted() bool {
	return e.count(Lost, func(err error) bool { return errors.As(err, new(*locker.EvictedError)) }) > e.spare()
}

// Permanent reports whether so many nodes have permanent errors that no quorum is possible.
func (e *QuorumError) Permanent() bool { return e.count(Failed, backends.Permanent) > e.spare() }

// Unsent reports whether every node failed before anything was sent to it.
func (e *QuorumError) Unsent() bool {
	for _, v := range e.Votes {
		if v.Outcome != Failed || !backends.Unsent(v.Err) {
			return false
		}
	}
	return true
}

// ErrorType is "quorum".
func (e *QuorumError) ErrorType() string { return "quorum" }

// Quorum counts the votes that are Granted, and all votes.
func (e *QuorumError) Quorum() contract.Quorum {
	return contract.Quorum{Granted: int32(e.count(Granted, nil)), Size: int32(len(e.Votes))}
}

func (e *QuorumError) spare() int { return len(e.Votes) - e.Needed }

// count counts the votes with this outcome and such an error; nil: any.
func (e *QuorumError) count(o Outcome, such func(error) bool) (n int) {
	for _, v := range e.Votes {
		if v.Outcome == o && (such == nil || such(v.Err)) {
			n++
		}
	}
	return n
}

// contended reports whether a node is held and the failed nodes alone did not prevent a quorum.
func (e *QuorumError) contended() bool {
	return e.count(Held, nil) > 0 && e.count(Failed, nil) <= e.spare()
}

func (e *QuorumError) foreign() bool {
	return e.count(Held, func(err error) bool { return errors.Is(err, locker.ErrForeignKey) }) > e.spare()
}

// left returns when enough nodes are free for a quorum, if no holder extends; 0: unknown. It is
// called only for an Acquire that found contention: some nodes are held, and fewer than a quorum
// granted.
func (e *QuorumError) left() time.Duration {
	var lefts []time.Duration
	for _, v := range e.Votes {
		if v.Outcome == Held {
			var held *locker.HeldError
			if !errors.As(v.Err, &held) || held.Left == 0 {
				return 0
			}
			lefts = append(lefts, held.Left)
		}
	}
	slices.Sort(lefts)
	return lefts[min(e.Needed-e.count(Granted, nil), len(lefts))-1]
}

// holder is the label that most of the nodes name which are held; empty: they name none.
func (e *QuorumError) holder() (most string) {
	named := map[string]int{}
	for _, v := range e.Votes {
		var held *locker.HeldError
		if errors.As(v.Err, &held) && held.Holder != "" {
			if named[held.Holder]++; named[held.Holder] > named[most] {
				most = held.Holder
			}
		}
	}
	return most
}

// noQuorum returns the error of an operation that no quorum carried out.
func (q *quorum) noQuorum(op, key string, votes []Vote) error {
	e := &QuorumError{Needed: q.need, Votes: votes}
	if op == "acquire" && e.contended() {
		return &locker.HeldError{Key: key, Left: e.left(), Attempts: 1, Foreign: e.foreign(), Holder: e.holder(), Err: e}
	}
	return &locker.Error{Op: op, Key: key, Err: e}
}

// lost returns the error for a lease that too many nodes have lost.
func (q *quorum) lost(lease contract.Lease, votes []Vote) error {
	if !lease.Expires.IsZero() && lease.Ended() {
		return locker.Lost(lease)
	}
	e, reason := &QuorumError{Needed: q.need, Votes: votes}, locker.LostQuorum
	if e.evicted() {
		reason = locker.LostEvicted
	}
	return &locker.LostError{Key: lease.Key, Reason: reason, Err: e}
}
