package differential

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/locker/fence"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// A guard is a value that accepts writes only in the order of their fences.
type guard interface {
	write(fence uint64, value string) (accepted bool, err error)
	// claim returns the value as well, unless the guard has another call for it.
	claim(fence uint64) (value string, told, accepted bool, err error)
	read() (value string, fence uint64, err error)
}

// A use is one call of a guard, with its answer.
type (
	use struct {
		call  string
		fence uint64
		value string
	}
	used struct {
		accepted bool
		told     bool // value is an answer
		value    string
		fence    uint64 // of a read
		unknown  bool
	}
	guarded struct { // the state of the model
		value string
		fence uint64
	}
)

// guardModel is the promise of package fence.
var guardModel = func() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{guarded{}} },
		Step: func(state, input, output any) []any {
			now, in, out := state.(guarded), input.(use), output.(used)
			if in.call == "read" {
				if out.unknown || out.value == now.value && out.fence == now.fence {
					return []any{now}
				}
				return nil
			}
			after, accepted := now, in.fence >= now.fence
			if accepted {
				if after.fence = in.fence; in.call == "write" {
					after.value = in.value
				}
			}
			switch {
			case out.unknown && accepted:
				return []any{now, after}
			case out.unknown:
				return []any{now}
			case out.accepted != accepted, accepted && out.told && out.value != now.value:
				return nil
			}
			return []any{after}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	m := model.ToModel()
	m.Partition = func(history []porcupine.Operation) [][]porcupine.Operation { return [][]porcupine.Operation{history} }
	return m
}()

// guards makes a new guard for each history.
var guards = map[string]func(t *testing.T) func() guard{
	"Register": func(*testing.T) func() guard { return func() guard { return &register{} } },
	"Script embedded": func(t *testing.T) func() guard {
		server, err := embedded.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		return scripts(t, dial(t, server.Addr()))
	},
	"Script": func(t *testing.T) func() guard { return scripts(t, dial(t, redistest.Start(t).Addr())) },
}

func scripts(t *testing.T, c *redis.Client) func() guard {
	n := 0
	return func() guard { n++; return script{t.Context(), c, fmt.Sprint("hash", n)} }
}

type register struct{ fence.Register[string] }

func (r *register) write(f uint64, value string) (bool, error) { return verdict(r.Write(f, value)) }

func (r *register) claim(f uint64) (value string, told, accepted bool, err error) {
	value, err = r.Claim(f)
	accepted, err = verdict(err)
	return value, true, accepted, err
}

func (r *register) read() (string, uint64, error) {
	value, f := r.Read()
	return value, f, nil
}

func verdict(err error) (bool, error) {
	if errors.Is(err, fence.ErrLate) {
		return false, nil
	}
	return err == nil, err
}

type script struct {
	ctx context.Context
	c   *redis.Client
	key string
}

func (s script) write(f uint64, value string) (bool, error) {
	return s.c.Eval(s.ctx, fence.Script, []string{s.key}, f, "value", value).Bool()
}

func (s script) claim(f uint64) (value string, told, accepted bool, err error) {
	accepted, err = s.c.Eval(s.ctx, fence.Script, []string{s.key}, f).Bool()
	return "", false, accepted, err
}

func (s script) read() (string, uint64, error) {
	fields, err := s.c.HMGet(s.ctx, s.key, "value", "fence").Result()
	if err != nil || fields[1] == nil {
		return "", 0, err
	}
	value, _ := fields[0].(string) // none if it was only claimed
	text, _ := fields[1].(string)
	f, err := strconv.ParseUint(text, 10, 64)
	return value, f, err
}

// recordUses lets holders use g at once, with fences that rise and are often late. Some throw their
// answers away, so the search must use the answers of the others.
func recordUses(t *testing.T, seed uint64, g guard) (history []porcupine.Operation) {
	var turn, latest atomic.Int64
	var mu sync.Mutex
	latest.Store(1)
	together(clients, func(c int) {
		random := rand.New(rand.NewPCG(seed, uint64(c)+1))
		for i := range perKey / clients {
			if random.IntN(3) == 0 {
				latest.Add(1)
			}
			in := use{call: pick(random, []string{"write", "write", "claim", "read"}), fence: uint64(max(latest.Load()-random.Int64N(4), 1)), value: fmt.Sprint(c, ".", i)}
			h := porcupine.Operation{ClientId: c, Input: in, Call: turn.Add(1)}
			runtime.Gosched()
			var out used
			var err error
			switch in.call {
			case "write":
				out.accepted, err = g.write(in.fence, in.value)
			case "claim":
				out.value, out.told, out.accepted, err = g.claim(in.fence)
			case "read":
				out.value, out.fence, err = g.read()
			}
			runtime.Gosched()
			h.Return = turn.Add(1)
			if err != nil {
				t.Errorf("%+v: %v", in, err)
			}
			out.unknown = random.IntN(1000) < unheard
			h.Output = out
			mu.Lock()
			history = append(history, h)
			mu.Unlock()
		}
	})
	for i := range history {
		if history[i].Output.(used).unknown {
			history[i].Return = turn.Load() + 1
		}
	}
	return history
}

func TestTheGuardIsLinearizable(t *testing.T) {
	histories := uint64(10)
	if full.Size() {
		histories = 125
	}
	first := seed()
	for name, prepare := range guards {
		t.Run(name, func(t *testing.T) {
			fresh := prepare(t)
			for i := range histories {
				linearizable(t, first+i, guardModel, recordUses(t, first+i, fresh()))
			}
		})
	}
}

// hastyRegister is a guard in two steps, which package fence calls wrong.
type hastyRegister struct {
	mu    sync.Mutex
	value string
	fence uint64
}

func (r *hastyRegister) write(f uint64, value string) (bool, error) {
	if _, last, _ := r.read(); f < last {
		return false, nil
	}
	runtime.Gosched()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value, r.fence = value, f
	return true, nil
}

func (r *hastyRegister) claim(f uint64) (value string, told, accepted bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f < r.fence {
		return "", true, false, nil
	}
	r.fence = f
	return r.value, true, true, nil
}

func (r *hastyRegister) read() (string, uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.fence, nil
}

// hastyScript is the same in Redis.
type hastyScript struct{ script }

func (s hastyScript) write(f uint64, value string) (bool, error) {
	if _, last, err := s.read(); err != nil || f < last {
		return false, err
	}
	return true, s.c.HSet(s.ctx, s.key, "fence", f, "value", value).Err()
}

// sloppyScript compares, but does not store the claimed fence.
type sloppyScript struct{ script }

func (s sloppyScript) claim(f uint64) (value string, told, accepted bool, err error) {
	_, last, err := s.read()
	return "", false, f >= last, err
}

func TestAGuardInTwoStepsIsNone(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	fresh := scripts(t, dial(t, server.Addr()))
	for name, broken := range map[string]func() guard{
		"a register that looks, then writes": func() guard { return &hastyRegister{} },
		"a hash: HMGET, then HSET":           func() guard { return hastyScript{fresh().(script)} },
		"a claim that is not kept":           func() guard { return sloppyScript{fresh().(script)} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(500) { // the first few, as a rule
				if !porcupine.CheckOperations(guardModel, recordUses(t, seed, broken())) {
					t.Logf("found in history %d", seed+1)
					return
				}
			}
			t.Error("it is not found")
		})
	}
}
