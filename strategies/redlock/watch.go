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
func (q *quorum) Watch(ctx context.Context, key string, wake func()) error {
	if err := locker.ValidateKey(key); err != nil {
		return &locker.Error{Op: "watch", Key: key, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return &locker.Error{Op: "watch", Key: key, Err: err}
	}
	nodes, cancel := context.WithCancel(ctx) // those that watch, if there are too few
	h := &hints{quorum: q, wake: wake, hinted: make([]time.Time, len(q.nodes)), echo: make([]time.Time, len(q.nodes))}
	answers := make(chan answer, len(q.nodes))
	for i := range q.nodes {
		go func() {
			a := answer{node: i, err: errNoAnswer}
			defer func() { answers <- a }()
			a.err = q.nodes[i].Watch(nodes, key, func() { h.hint(i) })
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
	wake func()

	mu     sync.Mutex
	hinted []time.Time // by node; long ago, it was about something else
	// A release hints on every node, and the first w have woken the waiter: what the others say until then is an echo.
	echo []time.Time
}

func (h *hints) hint(i int) {
	if h.counts(i) {
		h.wake()
	}
}

// counts tells whether the hint is the last one of a quorum.
func (h *hints) counts(i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.Before(h.echo[i]) {
		h.echo[i] = time.Time{}
		return false
	}
	h.hinted[i] = now
	count := 0
	for _, at := range h.hinted {
		if h.fresh(at, now) {
			count++
		}
	}
	if count < h.need {
		return false
	}
	for j, at := range h.hinted {
		if !h.fresh(at, now) {
			h.echo[j] = now.Add(h.limit)
		}
		h.hinted[j] = time.Time{}
	}
	return true
}

func (h *hints) fresh(at, now time.Time) bool {
	return !at.IsZero() && now.Sub(at) <= h.limit
}
