package locker

import "time"

// dueHeap orders entries by the times at which the scheduler looks at them. The first one due is at
// index 0.
type dueHeap struct{ items []*entry }

func (h *dueHeap) push(e *entry, at time.Duration) {
	e.heap, e.index, e.at = h, int32(len(h.items)), at
	h.items = append(h.items, e)
	h.up(int(e.index))
}

func (h *dueHeap) pop() *entry {
	first := h.items[0]
	h.remove(first)
	return first
}

func (h *dueHeap) remove(e *entry) {
	index, last := int(e.index), len(h.items)-1
	h.items[index] = h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	e.heap = nil
	if index < last {
		h.items[index].index = int32(index)
		h.fix(index)
	}
}

func (h *dueHeap) move(e *entry, at time.Duration) {
	e.at = at
	h.fix(int(e.index))
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
	h.items[i].index, h.items[j].index = int32(i), int32(j)
}
