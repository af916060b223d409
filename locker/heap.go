package locker

import "time"

// dueHeap orders entries by the times at which the scheduler looks at them. The first one due is at
// index 0. A time is kept beside its entry: with a hundred thousand locks, a comparison would
// otherwise read two more places in memory.
type dueHeap struct{ items []dueItem }

type dueItem struct {
	at    time.Duration // since the origin of the scheduler
	entry *entry
}

func (h *dueHeap) push(e *entry, at time.Duration) {
	e.heap, e.index = h, len(h.items)
	h.items = append(h.items, dueItem{at, e})
	h.up(e.index)
}

func (h *dueHeap) pop() *entry {
	first := h.items[0].entry
	h.remove(first)
	return first
}

func (h *dueHeap) remove(e *entry) {
	index, last := e.index, len(h.items)-1
	h.items[index] = h.items[last]
	h.items[last] = dueItem{}
	h.items = h.items[:last]
	e.heap = nil
	if index < last {
		h.items[index].entry.index = index
		h.fix(index)
	}
}

func (h *dueHeap) move(e *entry, at time.Duration) {
	h.items[e.index].at = at
	h.fix(e.index)
}

// sort restores the order after many times have changed.
func (h *dueHeap) sort() {
	for index := len(h.items)/2 - 1; index >= 0; index-- {
		h.down(index)
	}
}

func (h *dueHeap) fix(index int) {
	if !h.up(index) {
		h.down(index)
	}
}

func (h *dueHeap) up(index int) (moved bool) {
	for index > 0 {
		parent := (index - 1) / 2
		if h.items[index].at >= h.items[parent].at {
			break
		}
		h.swap(index, parent)
		index, moved = parent, true
	}
	return moved
}

func (h *dueHeap) down(index int) {
	for {
		child := 2*index + 1
		if child >= len(h.items) {
			return
		}
		if right := child + 1; right < len(h.items) && h.items[right].at < h.items[child].at {
			child = right
		}
		if h.items[index].at <= h.items[child].at {
			return
		}
		h.swap(index, child)
		index = child
	}
}

func (h *dueHeap) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].entry.index, h.items[j].entry.index = i, j
}
