package cleanup

import (
	"context"
	"slices"
	"time"
)

// entry is an [Entry] until it is dropped.
type entry struct {
	Entry
	ctx   context.Context
	end   time.Time // the store has forgotten the value
	due   time.Time // of the next confirmation
	stage int       // answers so far
	late  lateness
	done  bool   // answered at least once, or ended
	next  *entry // of the same key
}

// lateness is what an entry knows of its operation.
type lateness int

const (
	arrived  lateness = iota // or nobody knows
	expected                 // it may arrive
	parked                   // it may arrive, and the entry was confirmed before
	missed                   // it may have arrived since the last call for the entry was made
)

func (e *entry) revive(now time.Time) {
	if !e.Known {
		e.end = now.Add(e.TTL)
	}
}

// line has the entries that wait for a call, in the order of the calls.
type line struct {
	fresh  list                     // not tried yet
	tried  list                     // the last try failed
	later  [len(confirmations)]list // answered, to be confirmed
	passed bool                     // the last one was not of tried
}

// pop returns the next entry, or nil. Entries that have failed come last: a part of the store may
// not answer, and they may all be for that part. While no call is answered, every second call is
// for one of them: otherwise new entries could keep them waiting for ever.
func (l *line) pop(now time.Time, silent bool) *entry {
	if silent && l.passed {
		if e := l.tried.pop(); e != nil {
			l.passed = false
			return e
		}
	}
	if e := l.untried(now); e != nil {
		l.passed = true
		return e
	}
	l.passed = false
	return l.tried.pop()
}

// untried returns a new entry, or one whose confirmation is due, or nil.
func (l *line) untried(now time.Time) *entry {
	if e := l.fresh.pop(); e != nil {
		return e
	}
	for i := range l.later {
		if first := l.later[i].first(); first != nil && !first.due.After(now) {
			return l.later[i].pop()
		}
	}
	return nil
}

// lists returns all lists of entries.
func (l *line) lists() (all [2 + len(confirmations)]*list) {
	all[0], all[1] = &l.fresh, &l.tried
	for i := range l.later {
		all[2+i] = &l.later[i]
	}
	return all
}

// list has entries in the order in which they are due.
type list struct {
	items []*entry
	head  int
}

func (l *list) push(e *entry) {
	if l.head > len(l.items)/2 { // the list may never get empty: give back the room of those that are gone
		l.items, l.head = append([]*entry(nil), l.entries()...), 0
	}
	l.items = append(l.items, e)
}

func (l *list) first() *entry {
	if l.head == len(l.items) {
		return nil
	}
	return l.items[l.head]
}

func (l *list) pop() *entry {
	e := l.first()
	if e == nil {
		return nil
	}
	l.items[l.head] = nil
	if l.head++; l.head == len(l.items) {
		l.items, l.head = nil, 0
	}
	return e
}

func (l *list) entries() []*entry { return l.items[l.head:] }

// filter keeps the entries for which keep is true.
func (l *list) filter(keep func(*entry) bool) {
	kept := l.items[:0]
	for _, e := range l.entries() {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	clear(l.items[len(kept):])
	l.items, l.head = kept, 0
}

// remove takes an entry out, and tells whether it was there.
func (l *list) remove(e *entry) bool {
	i := slices.Index(l.items, e)
	if i < 0 {
		return false
	}
	l.filter(func(other *entry) bool { return other != e })
	return true
}
