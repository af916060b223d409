package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// Watch is active once a quorum of nodes is. It wakes when w distinct nodes have hinted: on fewer, there is nothing to have
// yet.
func (q *quorum) Watch(ctx context.Context, key, _ string, wake func()) error {
	if err := locker.ValidateKey(key); err != nil {
		return &locker.Error{Op: "watch", Key: key, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return &locker.Error{Op: "watch", Key: key, Err: err}
	}
	nodes, cancel := context.WithCancel(ctx) // those that watch, if there are too few
	h := &hints{quorum: q, ctx: ctx, wake: wake, heard: make([]hint, len(q.nodes))}
	answers := make(chan answer, len(q.nodes))
	for i := range q.nodes {
		go func() {
			a := answer{node: i, err: errNoAnswer}
			defer func() { answers <- a }()
			a.err = q.nodes[i].Watch(nodes, key, "", func() { h.hear(i) })
		}()
	}
	b := q.ballot()
	unsupported := 0
	for b.granted < q.need && b.answered-b.granted <= q.spare() {
		select {
		case a := <-answers:
			if errors.Is(a.err, errors.ErrUnsupported) {
				unsupported++
				a.err = errNoWakes // beside a refusal, it does not mean: poll
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
	return q.refusal("watch", key, b.votes)
}

var errNoWakes = errors.New("no wake-ups")

// hints gathers what the nodes say for one waiter.
type hints struct {
	*quorum
	ctx  context.Context
	wake func()

	mu    sync.Mutex
	heard []hint      // by node
	late  *time.Timer // for what may not have been echoes
}

// hint is what a node has said since the last wake.
type hint struct {
	any     bool
	counted time.Time // long ago, it was about something else
	// A release hints on every node, and the first w have woken the waiter: what the others say until then is an echo.
	echo time.Time
}

// lateWake is the time within which the hints of a release mostly come.
const lateWake = 50 * time.Millisecond

// hear wakes at the last hint of a quorum. A hint is taken for an echo by mistake if its node had no part in the lease that
// the echo would be of, or has hinted before. So when w nodes have hinted and some did not count, it wakes a little later.
func (h *hints) hear(i int) {
	h.mu.Lock()
	now := time.Now()
	n := &h.heard[i]
	n.any = true
	if now.Before(n.echo) {
		n.echo = time.Time{}
	} else {
		n.counted = now
	}
	complete := h.count(func(n hint) bool { return h.fresh(n, now) }) >= h.need
	switch {
	case complete:
		for j, n := range h.heard {
			if !h.fresh(n, now) {
				h.heard[j].echo = now.Add(h.limit)
			}
		}
		h.forget()
	case h.late == nil && h.count(anyHint) >= h.need:
		h.late = time.AfterFunc(lateWake, h.wakeLate)
	}
	h.mu.Unlock()
	if complete {
		h.wake()
	}
}

func (h *hints) wakeLate() {
	h.mu.Lock()
	due := h.count(anyHint) >= h.need // it may have woken meanwhile
	if due {
		h.forget()
	}
	h.mu.Unlock()
	if due && h.ctx.Err() == nil {
		h.wake()
	}
}

// forget is called for each wake.
func (h *hints) forget() {
	for i := range h.heard {
		h.heard[i].any, h.heard[i].counted = false, time.Time{}
	}
	if h.late != nil {
		h.late.Stop()
		h.late = nil
	}
}

func (h *hints) count(which func(hint) bool) (nodes int) {
	for _, n := range h.heard {
		if which(n) {
			nodes++
		}
	}
	return nodes
}

func anyHint(n hint) bool { return n.any }

func (h *hints) fresh(n hint, now time.Time) bool {
	return !n.counted.IsZero() && now.Sub(n.counted) <= h.limit
}
