package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// An operation is one call of a store, a write of other software to its data, or a wait.
type operation struct {
	call   string
	key    string
	value  string // also the token of a hold
	group  string // of a hold
	limit  int
	ttl    time.Duration // also how long to wait
	number numbering
	to     uint64
	offset uint32
	on     bool
	late   bool // the ctx is done before the call
}

// Operations are drawn from these. There are few keys and values, so that operations meet. The
// names of some keys are easily confused. Some lives are shorter than a wait, and the others longer
// than a test.
var (
	keys   = []string{"k", "{k}", "k}"}
	values = []string{"", "a", "17", "\x80\x01"}
	groups = []string{"", "ann", "bob"}
	limits = []int{0, 1, 2, 3}
	ttls   = []time.Duration{10 * time.Millisecond, 10500 * time.Microsecond, 17 * time.Millisecond, 40 * time.Millisecond, time.Minute, maxTTL}
	noTTLs = []time.Duration{-time.Second, 0, 999 * time.Microsecond, maxTTL + 1}
	waits  = []time.Duration{time.Millisecond, 8 * time.Millisecond, 11 * time.Millisecond, 25 * time.Millisecond}
	raises = []uint64{0, 1, 2, 5, 20, 1<<53 - 2, 1<<53 - 1, 1 << 53}
)

// drawn has the weight of each call in three kinds of sequences: with all calls, about texts, and
// about holds. A value of another type only disturbs.
var drawn = []struct {
	call  string
	often [3]int
}{
	{"SetNX", [3]int{14, 14, 1}}, {"ExpireIf", [3]int{8, 8, 1}}, {"DeleteIf", [3]int{7, 7, 1}}, {"Watch", [3]int{2, 2, 2}},
	{"SetNXFenced", [3]int{14, 14, 1}}, {"RaiseFence", [3]int{8, 8, 1}},
	{"Enter", [3]int{18, 1, 30}}, {"Renew", [3]int{8, 1, 14}}, {"Leave", [3]int{8, 1, 14}},
	{"SetNXForever", [3]int{4, 4, 1}}, {"Get", [3]int{3, 3, 1}}, {"GetSet", [3]int{4, 4, 1}}, {"Left", [3]int{4, 4, 6}},
	{"Expire", [3]int{4, 4, 6}}, {"Delete", [3]int{5, 5, 5}}, {"TxExpireIf", [3]int{5, 5, 1}}, {"TxDeleteIf", [3]int{4, 4, 1}},
	{"GetBit", [3]int{2, 3, 1}}, {"SetBit", [3]int{4, 4, 1}},
	{"outside.Set", [3]int{3, 3, 1}}, {"outside.SetOther", [3]int{2, 1, 1}}, {"outside.SetShared", [3]int{2, 1, 2}},
	{"outside.Delete", [3]int{8, 6, 6}}, {"outside.Get", [3]int{3, 3, 3}}, {"wait", [3]int{7, 7, 7}},
}

// timed are the calls that take a ttl.
var timed = map[string]bool{
	"SetNX": true, "ExpireIf": true, "SetNXFenced": true, "Enter": true, "Renew": true, "Expire": true, "TxExpireIf": true,
}

// draw makes a sequence, the same for the same seed.
func draw(seed uint64, length int) []operation {
	r := rand.New(rand.NewPCG(seed, 0))
	about, sum := r.IntN(3), 0
	for _, d := range drawn {
		sum += d.often[about]
	}
	ops := make([]operation, length)
	for i := range ops {
		n, call := r.IntN(sum), ""
		for _, d := range drawn {
			if n -= d.often[about]; n < 0 {
				call = d.call
				break
			}
		}
		ops[i] = drawOne(r, call)
	}
	return ops
}

// drawOne draws all that an operation could need.
func drawOne(r *rand.Rand, call string) operation {
	op := operation{
		call: call, key: pick(r, keys), value: pick(r, values), group: pick(r, groups), limit: pick(r, limits), ttl: pick(r, ttls),
		number: pick(r, []numbering{byCount, byClock}), to: pick(r, raises), offset: r.Uint32N(20), on: r.IntN(2) == 0,
	}
	if r.IntN(4) > 0 { // after the greatest number a key has no more
		op.to = min(op.to, 20)
	}
	if r.IntN(2) == 0 { // so that it is often the value of the operation before
		op.value = values[1]
	}
	if r.IntN(2) == 0 {
		op.group = groups[1]
	}
	odd, wait, bad := r.IntN(100), pick(r, waits), pick(r, noTTLs)
	switch {
	case call == "wait":
		op.ttl = wait
	case call == "outside.Set" && op.on:
		op.ttl = 0
	case strings.HasPrefix(call, "outside."):
	case odd == 0:
		op.late = true
	case odd == 1 && timed[call]:
		op.ttl = bad
	}
	return op
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// String returns the operation as a call.
func (op operation) String() string {
	args := []string{fmt.Sprintf("%q", op.key)}
	quoted := func(s string) { args = append(args, fmt.Sprintf("%q", s)) }
	plain := func(v any) { args = append(args, fmt.Sprint(v)) }
	switch op.call {
	case "wait":
		return "wait " + op.ttl.String()
	case "Enter":
		quoted(op.group)
		plain(op.limit)
		quoted(op.value)
	case "GetBit":
		plain(op.offset)
	case "SetBit":
		plain(op.offset)
		plain(op.on)
	case "SetNX", "ExpireIf", "DeleteIf", "SetNXFenced", "RaiseFence", "Renew", "Leave", "SetNXForever", "GetSet", "TxExpireIf", "TxDeleteIf", "outside.Set":
		quoted(op.value)
	}
	switch {
	case timed[op.call], op.call == "outside.Set":
		plain(op.ttl)
	case op.call == "RaiseFence":
		plain(op.to)
	}
	if op.call == "SetNXFenced" {
		plain(op.number)
	}
	text := op.call + "(" + strings.Join(args, ", ") + ")"
	if op.late {
		text += " with a ctx that is done"
	}
	return text
}
