package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Watch is active once it is active on a quorum of nodes. It wakes when w distinct nodes have sent
// a wake-up: after fewer of them, no quorum can be free yet.
func (q *quorum) Watch(ctx context.Context, key, _ string, wake func()) error {
	if err := contract.ValidateKey(key); err != nil {
		return &locker.Error{Op: "watch", Key: key, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return &locker.Error{Op: "watch", Key: key, Err: err}
	}
	nodes, cancel := context.WithCancel(ctx) // also ends the watches of nodes if these are too few
	h := &wakeUps{quorum: q, ctx: ctx, wake: wake, heard: make([]nodeWakes, len(q.nodes))}
	answers := make(chan answer, len(q.nodes))
	for _, n := range q.nodes {
		go func() {
			a := answer{node: n, err: errNoAnswer}
			defer func() { answers <- a }()
			a.err = n.Watch(nodes, key, "", func() { h.hear(n.index) })
		}()
	}
	b := q.ballot()
	unsupported := 0
	for b.granted < q.need && b.answered-b.granted <= q.spare() {
		select {
		case a := <-answers:
			if errors.Is(a.err, errors.ErrUnsupported) {
				unsupported++
				a.err = errNoWakes // ErrUnsupported, beside another error, must not mean: poll
			}
			b.count(a)
		case <-ctx.Done():
			cancel()
			return &locker.Error{Op: "watch", Key: key, Err: ctx.Err()}
		}
	}
	if b.granted >= q.need {
		context.AfterFunc(ctx, cancel)
		return nil
	}
	cancel()
	if unsupported > 0 && unsupported == b.answered-b.granted {
		return fmt.Errorf("%w: %w", errNoWakes, errors.ErrUnsupported)
	}
	return q.noQuorum("watch", key, b.votes)
}

var errNoWakes = errors.New("no wake-ups")

// wakeUps collects the wake-ups of the nodes for one waiter.
type wakeUps struct {
	*quorum
	ctx  context.Context
	wake func()

	mu    sync.Mutex
	heard []nodeWakes // by node
	late  *time.Timer // wakes in case some were no echoes
}

// nodeWakes is the wake-ups of one node since the waiter was last woken.
type nodeWakes struct {
	any     bool
	counted time.Time // when one came that was no echo; an old one does not count
	// Every node sends a wake-up for a release, and the first w have woken the waiter. One that
	// comes from another node before this time is an echo.
	echo time.Time
}

// lateWake is the time within which most wake-ups of one release arrive.
const lateWake = 50 * time.Millisecond

// hear wakes the waiter at the last wake-up of a quorum. A wake-up is mistaken for an echo if its
// node had no part in the released lease, or had sent its own before. So when w nodes have sent
// one, but some did not count, hear wakes the waiter a little later. To count the wake-ups of each
// node would miss one whenever other nodes answer than before.
func (h *wakeUps) hear(i int) {
	h.mu.Lock()
	now := time.Now()
	n := &h.heard[i]
	n.any = true
	if now.Before(n.echo) {
		n.echo = time.Time{}
	} else {
		n.counted = now
	}
	complete := h.count(func(n nodeWakes) bool { return h.fresh(n, now) }) >= h.need
	switch {
	case complete:
		for j, n := range h.heard {
			if !h.fresh(n, now) {
				h.heard[j].echo = now.Add(h.limit)
			}
		}
		h.forget()
	case h.late == nil && h.count(anyWake) >= h.need:
		h.late = time.AfterFunc(lateWake, h.wakeLate)
	}
	h.mu.Unlock()
	if complete {
		h.wake()
	}
}

func (h *wakeUps) wakeLate() {
	h.mu.Lock()
	due := h.count(anyWake) >= h.need // hear may have woken the waiter meanwhile
	if due {
		h.forget()
	}
	h.mu.Unlock()
	if due && h.ctx.Err() == nil {
		h.wake()
	}
}

// forget is called for each wake of the waiter.
func (h *wakeUps) forget() {
	for i := range h.heard {
		h.heard[i].any, h.heard[i].counted = false, time.Time{}
	}
	if h.late != nil {
		h.late.Stop()
		h.late = nil
	}
}

func (h *wakeUps) count(which func(nodeWakes) bool) (nodes int) {
	for _, n := range h.heard {
		if which(n) {
			nodes++
		}
	}
	return nodes
}

func anyWake(n nodeWakes) bool { return n.any }

func (h *wakeUps) fresh(n nodeWakes, now time.Time) bool {
	return !n.counted.IsZero() && now.Sub(n.counted) <= h.limit
}
