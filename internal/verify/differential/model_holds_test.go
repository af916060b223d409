package differential

import "slices"

// nested is the part about holds. If an Expire of other software has made the key end at another
// time than its holds, the contract leaves two things open, and so does the model: whether a call
// that changes no hold makes them equal again, and which of the two is the time left.
func (r rules) nested(w world, op operation, end life) (all []outcome) {
	token := slices.Index(values, op.value)
	held := 0 // the number of holds
	var last life
	settle := func() {
		held, last = 0, no
		for _, hold := range w.holds {
			if last = later(last, hold); hold != no {
				held++
			}
		}
	}
	settle()
	there := w.holds[token] != no
	bare := world{kind: nothing, counter: w.counter}
	switch {
	case w.kind == hash && op.call == "Enter":
		return []outcome{{answer: answer{foreign: w.end == forever}, left: w.end, after: w}}
	case w.kind == nothing && op.call == "Enter", w.kind == nested && held == 0 && op.call == "Enter":
		w = world{kind: nested, owner: op.owner, counter: w.counter}
	case w.kind != nested:
		return []outcome{{after: w}}
	case op.call == "Enter" && !there && (op.owner != w.owner || op.owner == ""):
		told := life{min(last.earliest, w.end.earliest), max(last.latest, w.end.latest)}
		return []outcome{{left: told, after: w}}
	case op.call != "Enter" && !there:
		settled := w
		if settled.end = last; held == 0 {
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
			told.holds = held
		}
		return []outcome{{answer: told, after: w}}
	default: // Leave
		w.holds[token] = no
		settle()
		if w.end = last; held == 0 {
			w = bare
		}
		return []outcome{{answer: answer{ok: true}, after: w}}
	}
}
