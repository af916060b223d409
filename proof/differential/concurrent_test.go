package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/lockstep-go/lockstep/proof/full"
)

// A part has the calls of the clients in one history. Types that exclude each other on a key have
// separate parts, since most calls would otherwise fail.
type part struct {
	name  string
	calls []string
}

var parts = []part{
	{"texts", []string{
		"SetNX", "SetNX", "ExpireIf", "DeleteIf", "DeleteIf", "SetNXFenced", "SetNXFenced", "RaiseFence",
		"SetNXForever", "Get", "GetSet", "Delete", "TxExpireIf", "TxDeleteIf", "GetBit", "SetBit",
	}},
	{"holds", []string{"Enter", "Enter", "Enter", "Renew", "Leave", "Leave", "Left", "Delete"}},
}

const (
	clients = 8
	perKey  = 160 // operations of all clients on one key, before they go on to the next
	// unheard is how many of a thousand calls end without an answer. Such a call may have its
	// effect at any later time, and makes the search longer.
	unheard = 20
)

// TestConcurrentCallsAreLinearizable uses porcupine to find an order of all calls in which the
// model gives the same answers. A call may not come before another that was answered when it began.
// No value ends during the test.
func TestConcurrentCallsAreLinearizable(t *testing.T) {
	operations := 1_600
	if full.Size() {
		operations = 20_000
	}
	first := seed()
	for _, s := range subjects {
		if s.fake && s.name != "memory" {
			continue // the embedded server executes one call after the other
		}
		open := s.prepare(t)
		for _, p := range parts {
			if s.rules.scriptless && p.name == "holds" {
				continue
			}
			t.Run(s.name+"/"+p.name, func(t *testing.T) {
				store, _ := open(t)
				history := record(t, first, operations, p, store, s.rules)
				linearizable(t, first, s.rules.asModel(), history)
			})
		}
	}
}

// record lets clients perform operations at once, on one key after the other. Call and Return are
// values of a counter: a call that returned before another one began has the lower ones. No clock
// is needed.
func record(t *testing.T, seed uint64, operations int, p part, s store, r rules) (history []porcupine.Operation) {
	var turn atomic.Int64
	var lost int
	for round := range uint64(operations / perKey) {
		var mu sync.Mutex
		together(clients, func(c int) {
			random := rand.New(rand.NewPCG(seed+round, uint64(c)+1))
			for range perKey / clients {
				op := drawOne(random, pick(random, p.calls))
				op.key, op.late, op.ttl = fmt.Sprintf("key %d", round), false, time.Hour
				op.number, op.to = byCount, min(op.to, 20)
				deaf, patience := random.IntN(1000) < unheard, time.Duration(random.IntN(300))*time.Microsecond
				h := porcupine.Operation{ClientId: c, Input: op, Call: turn.Add(1)}
				runtime.Gosched() // so that calls overlap even on one processor
				got := r.undated(ask(t.Context(), s, op, deaf, patience))
				runtime.Gosched()
				h.Output, h.Return = got, turn.Add(1)
				mu.Lock()
				history = append(history, h)
				if got.err == unknown && !deaf {
					lost++
				}
				mu.Unlock()
			}
		})
	}
	if lost > operations/100 {
		t.Errorf("%d of %d calls failed on a store that is in order", lost, operations)
	}
	for i := range history {
		if history[i].Output.(answer).err == unknown {
			history[i].Return = turn.Load() + 1 // or never
		}
	}
	return history
}

// together runs do for each of n clients at once.
func together(n int, do func(client int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for c := range n {
		all.Go(func() {
			<-start
			do(c)
		})
	}
	close(start)
	all.Wait()
}

// unknown is the outcome of a call without an answer.
const unknown failing = "unknown"

// ask performs op. If deaf, the ctx ends soon and the answer is thrown away: over a network the
// call may have been executed, be under way, or never have been sent.
func ask(ctx context.Context, s store, op operation, deaf bool, patience time.Duration) answer {
	if deaf {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		perform(ctx, s, nil, op)
		return answer{err: unknown}
	}
	return perform(ctx, s, nil, op)
}

// undated sets the time that is left to the whole hour that every value lives, since a history has
// no time. A call that failed has an unknown outcome.
func (r rules) undated(a answer) answer {
	switch a.err {
	case noError, wrongType, permanent:
	default:
		return answer{err: unknown}
	}
	if a.left > time.Hour-10*time.Minute && a.left <= time.Hour+r.slack {
		a.left = time.Hour
	}
	return a
}

// asModel returns the model of the sequences for porcupine.
func (r rules) asModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: byKey,
		Init:      func() []any { return []any{world{kind: nothing}} },
		Step: func(state, input, output any) (next []any) {
			for _, o := range r.outcomes(state.(world), input.(operation), moment{}) {
				if got := output.(answer); got.err == unknown {
					if o.fence[0] != 0 { // only a call that counts has a fence
						o.after.counter = o.fence[0]
					}
					next = append(next, o.after)
				} else if after, yes := r.admits(o, got, moment{}); yes {
					next = append(next, after)
				}
			}
			if output.(answer).err == unknown {
				next = append(next, state) // or never
			}
			return next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v → %v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
	return model.ToModel()
}

func byKey(history []porcupine.Operation) (parts [][]porcupine.Operation) {
	of := map[string]int{}
	for _, h := range history {
		key := h.Input.(operation).key
		if _, known := of[key]; !known {
			of[key] = len(parts)
			parts = append(parts, nil)
		}
		parts[of[key]] = append(parts[of[key]], h)
	}
	return parts
}

// searching limits the search for an order, which is much faster if there is one.
const searching = 2 * time.Minute

func linearizable(t *testing.T, seed uint64, m porcupine.Model, history []porcupine.Operation) {
	t.Helper()
	for _, part := range m.Partition(history) {
		switch verdict, info := porcupine.CheckOperationsVerbose(m, part, searching); verdict {
		case porcupine.Ok:
		case porcupine.Illegal:
			page := t.ArtifactDir() + "/history.html"
			if err := porcupine.VisualizePath(m, info, page); err != nil {
				t.Error(err)
			}
			t.Fatalf("seed %d: %d calls have no order; how far one goes is shown by %s, which stays with go test -artifacts",
				seed, len(part), page)
		default:
			t.Fatalf("seed %d: no order of %d calls was found in %v, nor that there is none", seed, len(part), searching)
		}
	}
}
