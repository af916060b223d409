package locker

import (
	"container/heap"
	"time"
)

// backlog is the locks whose extension is due and has no room. The one whose lease ends first is first: where a store is slow, many
// long leases must not keep out a short one. A lock that is over meanwhile stays until its turn comes.
type backlog []overdue

type overdue struct {
	lock    *Lock
	expires time.Time
}

func (b *backlog) add(l *Lock) {
	if !l.waits {
		l.waits = true
		heap.Push(b, overdue{l, l.Lease().Expires})
	}
}

func (b *backlog) take() *Lock {
	l := heap.Pop(b).(overdue).lock
	l.waits = false
	return l
}

func (b backlog) Len() int           { return len(b) }
func (b backlog) Less(i, j int) bool { return b[i].expires.Before(b[j].expires) }
func (b backlog) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *backlog) Push(x any)        { *b = append(*b, x.(overdue)) }

func (b *backlog) Pop() any {
	old := *b
	last := old[len(old)-1]
	old[len(old)-1] = overdue{}
	*b = old[:len(old)-1]
	return last
}
