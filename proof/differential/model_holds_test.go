package differential

import (
	"cmp"
	"slices"
)

// shared is the part about holds. If an Expire of other software has made the key end at another
// time than its holds, the contract leaves two things open, and so does the model: whether a call
// that changes no hold makes them equal again, and which of the two is the time left.
func (r rules) shared(w world, op operation, end life) (all []outcome) {
	token := slices.Index(values, op.value)
	var ends []life // of the holds
	var last life
	settle := func() {
		ends, last = nil, no
		for _, hold := range w.holds {
			if last = later(last, hold); hold != no {
				ends = append(ends, hold)
			}
		}
	}
	settle()
	there := w.holds[token] != no
	bare := world{kind: nothing, counter: w.counter}
	switch {
	case w.kind == others && op.call == "Enter":
		return []outcome{{answer: answer{foreign: w.end == forever}, left: w.end, after: w}}
	case w.kind == nothing && op.call == "Enter", w.kind == shared && len(ends) == 0 && op.call == "Enter":
		w = world{kind: shared, group: op.group, counter: w.counter}
	case w.kind != shared:
		return []outcome{{after: w}}
	case op.call == "Enter" && !there && (op.group != w.group || op.limit > 0 && len(ends) >= op.limit):
		told := fits(ends, w.group, op)
		told = life{min(told.earliest, w.end.earliest), max(told.latest, w.end.latest)}
		return []outcome{{answer: answer{holds: len(ends)}, left: told, after: w}}
	case op.call != "Enter" && !there:
		settled := w
		if settled.end = last; len(ends) == 0 {
			settled = bare
		}
		return []outcome{{after: settled}, {after: w}}
	}
	switch op.call {
	case "Enter", "Renew":
		w.holds[token] = later(w.holds[token], end)
		settle()
		w.end = last
		told := answer{ok: true}
		if op.call == "Enter" {
			told.holds, told.room = len(ends), -1
			if op.limit > 0 {
				told.room = max(op.limit-len(ends), 0)
			}
		}
		return []outcome{{answer: told, after: w}}
	default: // Leave
		w.holds[token] = no
		settle()
		if w.end = last; len(ends) == 0 {
			w = bare
		}
		return []outcome{{answer: answer{ok: true}, after: w}}
	}
}

// fits is when so many holds have ended that op would be admitted: the last, or as many as are too
// many for its limit.
func fits(ends []life, group string, op operation) life {
	tooMany := len(ends)
	if op.group == group && op.limit > 0 {
		tooMany = max(len(ends)-op.limit+1, 1)
	}
	earliest := slices.SortedFunc(slices.Values(ends), func(a, b life) int { return cmp.Compare(a.earliest, b.earliest) })
	latest := slices.SortedFunc(slices.Values(ends), func(a, b life) int { return cmp.Compare(a.latest, b.latest) })
	return life{earliest[tooMany-1].earliest, latest[tooMany-1].latest}
}
