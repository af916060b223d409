package differential

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// An instant counts from the beginning of a run.
type instant = time.Duration

// A moment is when a call was under way: by the clock of the test, and in µs by the wall clock for
// the numbers that follow it.
type moment struct {
	from, to         instant
	wallFrom, wallTo uint64
}

// A life says when a value ends: between two instants, or never.
type life struct{ earliest, latest instant }

var forever = life{math.MaxInt64, math.MaxInt64}

func (l life) String() string {
	if l == forever {
		return "without expiry"
	}
	return fmt.Sprintf("until %v–%v", l.earliest, l.latest)
}

// no is the life of a value that does not exist.
var no life

func later(a, b life) life { return life{max(a.earliest, b.earliest), max(a.latest, b.latest)} }

// could tells whether a value may exist during at, and whether it may have ended.
func (l life) could(at moment) (live, dead bool) {
	dead = at.to >= l.earliest && l != forever
	return l != no && (!dead || at.from < l.latest), dead
}

// A world is a possible value of a key, and the last number of its grants.
type world struct {
	kind    kind
	value   string // of a text
	end     life   // of the key
	group   string // of holds
	holds   [4]life
	counter uint64
}

type kind string

const (
	nothing kind = "nothing"
	text    kind = "text"
	shared  kind = "holds"
	others  kind = "holds of others"
	list    kind = "a list"
)

// rules are the differences between stores.
type rules struct {
	// slack is the resolution of the store's time: a life may be so much longer, and the time left
	// wrong by as much.
	slack time.Duration
	// scriptless says that numbers and holds fail.
	scriptless bool
}

// An outcome is a possible result of an operation: an answer, and the world after it.
type outcome struct {
	answer answer    // except these two:
	left   life      // the answer's left is the rest of this life
	fence  [2]uint64 // the answer's fence is one of these, and becomes the counter
	after  world
}

// outcomes returns all right outcomes of op in the world w.
func (r rules) outcomes(w world, op operation, at moment) (all []outcome) {
	for _, w := range r.aged(w, at) {
		all = append(all, r.of(w, op, at)...)
	}
	return all
}

// aged returns the worlds that w may have become by now.
func (r rules) aged(w world, at moment) []world {
	if w.kind == nothing {
		return []world{w}
	}
	gone := world{kind: nothing, counter: w.counter}
	live, dead := w.end.could(at)
	if !live {
		return []world{gone}
	}
	all := []world{w}
	for i, hold := range w.holds { // twice as many where one may have ended
		live, dead := hold.could(at)
		if hold == no || !dead {
			continue
		}
		for _, other := range slices.Clone(all) {
			other.holds[i] = no
			all = append(all, other)
		}
		if !live {
			all = slices.DeleteFunc(all, func(w world) bool { return w.holds[i] != no })
		}
	}
	if dead {
		all = append(all, gone)
	}
	return all
}

// of returns the right outcomes if nothing ends during the call. It is the contract of package
// backends as a table.
func (r rules) of(w world, op operation, at moment) []outcome {
	fails := func(err failing) []outcome { return []outcome{{answer: answer{err: err}, after: w}} }
	says := func(ok bool, after world) []outcome { return []outcome{{answer: answer{ok: ok}, after: after}} }
	tells := func(value string, found bool, after world) []outcome {
		return []outcome{{answer: answer{ok: found, text: value}, after: after}}
	}
	taken := func(l life) []outcome {
		return []outcome{{answer: answer{foreign: l == forever}, left: l, after: w}}
	}
	switch bad := r.bad(op); {
	case bad && op.late: // either is true
		return append(fails(permanent), fails(canceled)...)
	case bad:
		return fails(permanent)
	case op.late:
		return fails(canceled)
	}
	// of a value that is stored or extended now
	end := life{at.from + op.ttl, at.to + op.ttl + r.slack}
	bare := world{kind: nothing, counter: w.counter}
	holds := func(value string) bool { return w.kind == text && w.value == value }
	stored := func(l life) world { return world{kind: text, value: op.value, end: l, counter: w.counter} }
	granted := func() world { // a repeated grant never shortens the life
		if w.kind == text && w.end != forever {
			return stored(later(w.end, end))
		}
		return stored(end)
	}
	lives := func(l life) world { w := w; w.end = l; return w }

	switch op.call {
	case "SetNX", "ExpireIf", "DeleteIf", "SetNXFenced", "RaiseFence", "Get", "GetSet", "TxExpireIf", "TxDeleteIf", "GetBit", "SetBit":
		if w.kind != nothing && w.kind != text {
			return fails(wrongType)
		}
	case "Enter", "Renew", "Leave":
		if w.kind == text || w.kind == list {
			return fails(wrongType)
		}
		return r.shared(w, op, end)
	}
	switch op.call {
	case "SetNX":
		if w.kind == text && !holds(op.value) {
			return taken(w.end)
		}
		return says(true, granted())
	case "SetNXFenced":
		if w.kind == text && !holds(op.value) {
			return taken(w.end)
		}
		next := [2]uint64{w.counter, w.counter}
		if w.kind == nothing || w.counter == 0 {
			next[0], next[1] = w.counter+1, w.counter+1
			if op.number == byClock {
				next[0], next[1] = max(next[0], at.wallFrom), max(next[1], at.wallTo)
			}
		}
		if next[1] >= limit {
			return fails(permanent)
		}
		return []outcome{{answer: answer{ok: true}, fence: next, after: granted()}}
	case "RaiseFence":
		if !holds(op.value) || w.counter > op.to {
			return says(false, w)
		}
		w.counter = op.to
		return says(true, w)
	case "ExpireIf":
		if !holds(op.value) {
			return says(false, w)
		}
		return says(true, lives(later(w.end, end)))
	case "TxExpireIf":
		if !holds(op.value) {
			return says(false, w)
		}
		return says(true, lives(end))
	case "DeleteIf", "TxDeleteIf":
		if !holds(op.value) {
			return says(false, w)
		}
		return says(true, bare)
	case "SetNXForever":
		if w.kind != nothing {
			return says(false, w)
		}
		return says(true, stored(forever))
	case "Get":
		return tells(w.value, w.kind == text, w)
	case "GetSet":
		return tells(w.value, w.kind == text, stored(forever))
	case "Left":
		return []outcome{{answer: answer{ok: w.kind != nothing}, left: w.end, after: w}}
	case "Expire":
		if w.kind == nothing {
			return says(false, w)
		}
		return says(true, lives(end))
	case "Delete":
		return says(w.kind != nothing, bare)
	case "GetBit":
		return says(bit(w.value, op.offset), w)
	case "SetBit":
		was := bit(w.value, op.offset)
		if w.kind == nothing {
			w = stored(forever)
			w.value = ""
		}
		w.value = withBit(w.value, op.offset, op.on)
		return says(was, w)
	case "outside.Get":
		return []outcome{{answer: answer{ok: w.kind != nothing, text: w.value}, left: w.end, after: w}}
	case "outside.Set":
		if op.ttl == 0 {
			end = forever
		}
		return says(false, stored(end))
	case "outside.SetOther":
		return says(false, world{kind: list, end: forever, counter: w.counter})
	case "outside.SetShared":
		return says(false, world{kind: others, end: forever, counter: w.counter})
	case "outside.Delete":
		return says(false, bare)
	case "Watch":
		return says(true, w)
	}
	panic("no such operation: " + op.call)
}

// bad tells whether op fails in every world.
func (r rules) bad(op operation) bool {
	switch op.call {
	case "SetNXFenced", "RaiseFence", "Enter", "Renew", "Leave":
		if r.scriptless {
			return true
		}
	}
	return timed[op.call] && (op.ttl < time.Millisecond || op.ttl > maxTTL) || op.call == "RaiseFence" && op.to >= limit
}

// limit is the greatest number.
const limit = 1 << 53

// admits tells whether got, at that moment, is this outcome, and returns the world after it.
func (r rules) admits(o outcome, got answer, at moment) (after world, yes bool) {
	after = o.after
	if o.fence != [2]uint64{} {
		if got.fence < o.fence[0] || got.fence > o.fence[1] {
			return after, false
		}
		after.counter = got.fence
	}
	if o.left != no && o.left != forever {
		least, most := r.left(o.left, at)
		if got.left < least || got.left > most {
			return after, false
		}
		got.left = 0
	}
	got.fence = 0
	return after, got == o.answer
}

// left returns the least and the greatest right time left of a life.
func (r rules) left(l life, at moment) (least, most time.Duration) {
	return max(l.earliest-at.to-r.slack, 0), l.latest - at.from + r.slack
}

// say returns an outcome as text.
func (r rules) say(o outcome, at moment) string {
	text := o.answer.String()
	if o.left != no && o.left != forever {
		least, most := r.left(o.left, at)
		text += fmt.Sprintf(", %v–%v left", least, most)
	}
	if o.fence[0] != o.fence[1] {
		text += fmt.Sprintf(", fence %d–%d", o.fence[0], o.fence[1])
	} else if o.fence[0] != 0 {
		text += fmt.Sprintf(", fence %d", o.fence[0])
	}
	return text
}

func (w world) String() string {
	text := string(w.kind)
	switch w.kind {
	case nothing:
		return text
	case shared:
		var of []string
		for i, hold := range w.holds {
			if hold != no {
				of = append(of, fmt.Sprintf("%q %v", values[i], hold))
			}
		}
		text += fmt.Sprintf(" of %q: %s; the key", w.group, strings.Join(of, ", "))
	}
	if w.kind == "text" {
		text += fmt.Sprintf(" %q", w.value)
	}
	return text + " " + w.end.String()
}

// bit n of a value is in its byte n/8, the highest first.
func bit(value string, n uint32) bool { return int(n/8) < len(value) && value[n/8]>>(7-n%8)&1 == 1 }

func withBit(value string, n uint32, on bool) string {
	bytes := []byte(value + strings.Repeat("\x00", max(int(n/8)+1-len(value), 0)))
	if bytes[n/8] &^= 0x80 >> (n % 8); on {
		bytes[n/8] |= 0x80 >> (n % 8)
	}
	return string(bytes)
}
