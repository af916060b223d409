package locker

import "time"

// dueHeap orders holds by the times at which the scheduler looks at them: the one that is due first
// is at place 0. A time is kept beside its hold, since a hold is elsewhere in memory and there may
// be a hundred thousand of them.
type dueHeap struct{ items []dueItem }

type dueItem struct {
	at   time.Duration // since the origin of the scheduler
	hold *hold
}

func (h *dueHeap) push(due *hold, at time.Duration) {
	due.entry.heap, due.entry.place = h, len(h.items)
	h.items = append(h.items, dueItem{at, due})
	h.up(due.entry.place)
}

func (h *dueHeap) pop() *hold {
	first := h.items[0].hold
	h.remove(&first.entry)
	return first
}

func (h *dueHeap) remove(e *entry) {
	place, last := e.place, len(h.items)-1
	h.items[place] = h.items[last]
	h.items[last] = dueItem{}
	h.items = h.items[:last]
	e.heap = nil
	if place < last {
		h.items[place].hold.entry.place = place
		h.fix(place)
	}
}

func (h *dueHeap) move(e *entry, at time.Duration) {
	h.items[e.place].at = at
	h.fix(e.place)
}

// sort is for times that were changed all over the heap.
func (h *dueHeap) sort() {
	for place := len(h.items)/2 - 1; place >= 0; place-- {
		h.down(place)
	}
}

func (h *dueHeap) fix(place int) {
	if !h.up(place) {
		h.down(place)
	}
}

func (h *dueHeap) up(place int) (moved bool) {
	for place > 0 {
		parent := (place - 1) / 2
		if h.items[place].at >= h.items[parent].at {
			break
		}
		h.swap(place, parent)
		place, moved = parent, true
	}
	return moved
}

func (h *dueHeap) down(place int) {
	for {
		child := 2*place + 1
		if child >= len(h.items) {
			return
		}
		if right := child + 1; right < len(h.items) && h.items[right].at < h.items[child].at {
			child = right
		}
		if h.items[place].at <= h.items[child].at {
			return
		}
		h.swap(place, child)
		place = child
	}
}

func (h *dueHeap) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].hold.entry.place, h.items[j].hold.entry.place = i, j
}
