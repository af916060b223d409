package differential

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A trial performs sequences on one subject.
type trial struct {
	subject
	open func(t *testing.T) (store, outside)
	seen map[string]int // counts the kinds of answers, if not nil

	patience time.Duration // with a wake
}

func newTrial(t *testing.T, s subject) *trial {
	return &trial{subject: s, open: s.prepare(t), patience: 30 * time.Second}
}

// A step is an operation that was performed.
type step struct {
	operation
	answer answer
	at     moment
}

// A failure is a sequence whose last answer is wrong.
type failure struct {
	steps  []step
	before []world  // the possible worlds before that answer
	right  []string // the right answers
}

// run performs ops on an empty store, until an answer is wrong.
func (tr *trial) run(t *testing.T, ops []operation) (f *failure) {
	tr.play(t, func(t *testing.T) { f = tr.perform(t, ops) })
	return f
}

// play runs one sequence, in fake time if the store is in this process. When the sequence ends, so do its
// watches, and waiters leave their queue in the background: a client that is closed under them dials again
// and again, and the bubble would end first.
func (tr *trial) play(t *testing.T, sequence func(t *testing.T)) {
	if !tr.fake {
		sequence(t)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		sequence(t)
		synctest.Wait()
	})
}

func (tr *trial) perform(t *testing.T, ops []operation) *failure {
	s, o := tr.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // the watches
	began := time.Now()
	var steps []step
	var watches []*watch
	worlds := map[string][]world{}
	for _, key := range keys {
		worlds[key] = []world{{kind: nothing}}
	}
	for _, op := range ops {
		st := step{operation: op}
		w := &watch{key: op.key}
		for _, w := range watches {
			w.before = w.wakes.Load()
		}
		before := time.Now()
		if op.call == "Watch" {
			st.answer = w.on(ctx, s, op)
			if st.answer.ok {
				watches = append(watches, w)
			}
		} else {
			st.answer = perform(ctx, s, o, op)
		}
		after := time.Now()
		st.at = moment{before.Sub(began), after.Sub(began), uint64(before.UnixMicro()), uint64(after.UnixMicro())}
		steps = append(steps, st)
		if op.call == "wait" {
			continue
		}

		known, right := tr.rules.next(worlds[op.key], st)
		if len(known) == 0 {
			return &failure{steps: steps, before: worlds[op.key], right: right}
		}
		worlds[op.key] = known
		free := !slices.ContainsFunc(known, func(w world) bool { return w.kind != nothing })
		if st.answer.ok && (op.call == "DeleteIf" || op.call == "Leave" && free) {
			for _, w := range watches {
				if w.key == op.key {
					w.owed = w.before + 1
				}
			}
		}
		if tr.seen != nil {
			tr.seen[sort(st)]++
		}
	}
	for _, w := range watches {
		if !w.woken(tr.patience) {
			return &failure{steps: steps, right: []string{fmt.Sprintf("who watches %q is woken", w.key)}}
		}
	}
	return nil
}

// next returns the worlds that are possible after a step. If its answer is wrong, there are none,
// and next returns the right answers.
func (r rules) next(before []world, st step) (known []world, right []string) {
	for _, w := range before {
		for _, o := range r.outcomes(w, st.operation, st.at) {
			if after, yes := r.admits(o, st.answer, st.at); yes {
				if !slices.Contains(known, after) {
					known = append(known, after)
				}
			}
			if text := r.say(o, st.at); !slices.Contains(right, text) {
				right = append(right, text)
			}
		}
	}
	return known, right
}

// A watch is one that a sequence has begun. It must be woken when its key is released. The contract
// allows lost wakes, since connections break, but here none breaks.
type watch struct {
	key    string
	wakes  atomic.Int64
	before int64 // wakes before the present operation
	owed   int64 // wakes that there must be in the end
}

func (w *watch) on(ctx context.Context, s store, op operation) answer {
	if op.late {
		done, cancel := context.WithCancel(ctx)
		cancel()
		ctx = done
	}
	err := s.Watch(ctx, op.key, func() { w.wakes.Add(1) })
	return answer{ok: err == nil, err: kindOf(err)}
}

// woken waits for it.
func (w *watch) woken(patience time.Duration) bool {
	for limit := time.Now().Add(patience); w.wakes.Load() < w.owed; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			return false
		}
	}
	return true
}

// sort returns the kind of an answer, for the counts.
func sort(st step) string {
	a := st.answer
	switch {
	case a.err != noError:
		return st.call + ": " + string(a.err)
	case a.foreign:
		return st.call + ": foreign"
	case a.holds > 1:
		return st.call + ": one more"
	case a.ok:
		return st.call + ": yes"
	}
	return st.call + ": no"
}

// shorten drops operations from the sequence of f while it still fails, in ever smaller parts, and
// returns the shortest sequence. A failure that depends on the time of a real server may not come
// again; then it returns f.
func (tr *trial) shorten(t *testing.T, f *failure) *failure {
	const attempts = 400
	limit := time.Now().Add(time.Minute)
	tried := 0
	tr.patience = time.Second // enough to find the shortest sequence
	for part := len(f.steps) / 2; part > 0; part /= 2 {
		for from := 0; from+part <= len(f.steps); {
			if tried++; tried > attempts || time.Now().After(limit) {
				return f
			}
			var ops []operation
			for i, st := range f.steps {
				if i < from || i >= from+part {
					ops = append(ops, st.operation)
				}
			}
			if shorter := tr.run(t, ops); shorter != nil {
				f = shorter
				continue // at the part that has moved up
			}
			from += part
		}
	}
	return f
}

// String returns all that helps to find the cause.
func (f *failure) String() string {
	var b strings.Builder
	for i, st := range f.steps {
		if st.call == "wait" {
			fmt.Fprintf(&b, "%4d  %v\n", i+1, st.operation)
			continue
		}
		fmt.Fprintf(&b, "%4d  %v  →  %v", i+1, st.operation, st.answer)
		fmt.Fprintf(&b, "  at %v–%v\n", st.at.from, st.at.to)
	}
	for _, w := range f.before {
		fmt.Fprintf(&b, "      before the last one: %v, last number %d\n", w, w.counter)
	}
	for _, r := range f.right {
		fmt.Fprintf(&b, "      right: %s\n", r)
	}
	return b.String()
}
