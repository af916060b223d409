package pagelocker

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

const (
	storeLimit     = 10 * time.Second // for one look at the store
	maxCalls       = 100              // of List in one look
	maxKeys        = 50_000           // that are kept
	maxInspections = 200              // keys that are looked at one by one
)

// polls is what the store said. One call is under way at a time for the list, and one for each key
// that is looked at alone.
type polls struct {
	mu          sync.Mutex
	list        poll
	read        time.Time        // when locks was asked for
	locks       map[string]*Lock // immutable values
	before      map[string]*Lock // if locks is nil: from when somebody last looked
	partial     bool             // the store has more than one look finds
	trip        time.Duration    // of the last round trip
	check       poll
	health      Health
	inspections map[string]*inspection
}

// poll is when the store was asked, and how it went.
type poll struct {
	asked    time.Time     // when somebody last looked
	began    time.Time     // of the last one that is over
	took     time.Duration // that
	err      error         // of that
	under    chan struct{} // closed when the one under way is over; nil: none
	outdated bool          // what is under way may not show what has changed since it began
}

// outdate makes the next look ask the store, whenever the last one was. The mutex must be held.
func (of *poll) outdate() { of.began, of.outdated = time.Time{}, of.under != nil }

type inspection struct {
	poll
	lock   *Lock // nil: no answer yet
	before *Lock // if lock is nil: from when somebody last looked
}

// lapse is how long an answer of the store is shown when nobody has looked since then.
func lapse(interval time.Duration) time.Duration { return 3 * interval }

// start asks the store, unless it was asked less than an interval ago. It returns a channel that is
// closed when the last answer is fresh. If nobody has looked for a while, forget drops that answer.
func (p *Page) start(of *poll, interval time.Duration, forget func(), ask func(ctx context.Context, began time.Time) error) <-chan struct{} {
	p.polls.mu.Lock()
	defer p.polls.mu.Unlock()
	now := time.Now()
	p.registry.lookedAt(now)
	if now.Sub(of.asked) > lapse(interval) {
		of.began = time.Time{}
		forget()
	}
	of.asked = now
	// Never more than half of the time, so that a slow store has time for others.
	pause := max(interval*9/10, 2*of.took) // a timer may be early
	switch {
	case of.under != nil:
		return of.under
	case !of.began.IsZero() && now.Sub(of.began) < pause:
		return answered()
	}
	done := make(chan struct{})
	of.under = done
	go func() { // for all who look, so not under the ctx of one of them
		ctx, cancel := context.WithTimeout(context.Background(), storeLimit)
		defer cancel()
		err := ask(ctx, now)
		p.polls.mu.Lock()
		of.began, of.took, of.err, of.under = now, time.Since(now), err, nil
		if of.outdated {
			of.outdate()
		}
		p.polls.mu.Unlock()
		close(done)
		p.changed()
	}()
	return done
}

// refresh asks the store for what q shows, if the last answers are older than the interval.
func (p *Page) refresh(q query) []<-chan struct{} {
	switch {
	case p.store == nil:
		return nil
	case q.key == "":
		return []<-chan struct{}{p.list(), p.checked()}
	case p.mayAsk(q.key):
		return []<-chan struct{}{p.inspect(q)}
	}
	return nil
}

func (p *Page) inspect(q query) <-chan struct{} {
	i := p.polls.inspect(q.key, lapse(p.interval))
	if i == nil {
		return p.list() // the list has the holder of the key too
	}
	return p.start(&i.poll, p.interval, i.forget, func(ctx context.Context, began time.Time) error {
		state, err := p.store.Inspect(ctx, q.key)
		if err != nil {
			return err
		}
		p.polls.mu.Lock()
		before := i.lock
		now := lockOf(q.key, state, cmp.Or(before, i.before, p.polls.locks[q.key]), began)
		i.lock, i.before = now, nil
		p.polls.mu.Unlock()
		if before != nil {
			p.vanished(before, now, p.over(before.read))
		}
		return nil
	})
}

func answered() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

func (i *inspection) forget() {
	if i.lock != nil {
		i.lock, i.before = nil, i.lock
	}
}

func (p *Page) list() <-chan struct{} {
	return p.start(&p.polls.list, p.interval, func() {
		if p.polls.locks != nil {
			p.polls.read, p.polls.locks, p.polls.before = time.Time{}, nil, p.polls.locks
		}
	}, p.listAll)
}

// inspect returns the inspection of key, or nil if so many keys are looked at that there is no room.
// Then the list has to do. A key that nobody has looked at for so long makes way: a person that asks for
// many keys, made up or not, takes nothing away from those who look at another one.
func (s *polls) inspect(key string, unused time.Duration) *inspection {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.inspections[key]
	if i == nil {
		now := time.Now()
		if len(s.inspections) >= maxInspections && !s.forget(now.Add(-unused)) {
			return nil
		}
		i = new(inspection)
		i.asked = now // or it makes way before it is looked at
		s.inspections[key] = i
	}
	return i
}

// forget drops the key that was not looked at for the longest, if it was not since then.
func (s *polls) forget(since time.Time) bool {
	var key string
	var oldest *inspection
	for k, i := range s.inspections {
		if i.under == nil && i.asked.Before(since) && (oldest == nil || i.asked.Before(oldest.asked)) {
			key, oldest = k, i
		}
	}
	delete(s.inspections, key)
	return oldest != nil
}

// whole reports whether the store has listed all its locks. The mutex must be held.
func (s *polls) whole() bool { return s.locks != nil && !s.partial }

// covers reports whether the list has key, if it is taken.
func (p *Page) covers(key string) bool {
	return slices.ContainsFunc(p.prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// mayAsk keeps people from reading keys that the page is not for.
func (p *Page) mayAsk(key string) bool {
	if p.covers(key) {
		return true
	}
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	return p.registry.byKey[key] != nil
}

// listAll reads all pages.
func (p *Page) listAll(ctx context.Context, began time.Time) error {
	p.polls.mu.Lock()
	before, since, followed := p.polls.locks, p.polls.read, p.polls.whole()
	if before == nil {
		before = p.polls.before
	}
	p.polls.mu.Unlock()
	trip, err := p.probe(ctx)
	if err != nil {
		return err
	}
	locks, partial, calls := map[string]*Lock{}, false, 0
	for _, prefix := range p.prefixes {
		for after := ""; ; calls++ {
			if calls == maxCalls || len(locks) >= maxKeys {
				partial = true
				break
			}
			read := time.Now()
			page, err := p.store.List(ctx, prefix, after, backends.MaxPage)
			if err != nil {
				return err
			}
			for _, k := range page.Keys {
				locks[k.Key] = lockOf(k.Key, k.State, before[k.Key], read)
			}
			if after = page.Next; after == "" {
				calls++
				break
			}
		}
	}
	p.polls.mu.Lock()
	p.polls.read, p.polls.locks, p.polls.before, p.polls.partial = began, locks, nil, partial
	p.polls.trip = trip
	p.polls.mu.Unlock()
	if followed && !partial { // otherwise nobody knows when they ended
		over := p.over(since)
		for key, l := range before {
			p.vanished(l, locks[key], over)
		}
	}
	return nil
}

// over are the prints of the holds of this process that have ended since then.
func (p *Page) over(since time.Time) map[[8]byte]bool {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	return p.registry.over(map[[8]byte]bool{}, since)
}

// vanished puts the holds that are gone into the history.
func (p *Page) vanished(before, now *Lock, over map[[8]byte]bool) {
	at := time.Now()
	if now == nil {
		now = new(Lock)
	} else {
		at = now.read
	}
	if now.Holding > len(now.Holds) {
		return // one that is not listed may be there all the same
	}
	ended := missing(before.Holds, now.Holds)
	marks := missing(now.Holds, before.Holds) // of evictions
	marks = slices.DeleteFunc(marks, func(h Hold) bool { return !h.Evicted })
	evicted := len(slices.DeleteFunc(slices.Clone(ended), func(h Hold) bool { return h.Evicted })) <= len(marks)
	for _, h := range ended {
		cause := "gone"
		switch {
		case h.Evicted:
			cause = closed
		case evicted, h.Slot != 0 && slices.ContainsFunc(marks, func(m Hold) bool { return m.Slot == h.Slot }):
			cause = forced
		}
		p.registry.saw(before.Key, h, at, cause, over)
	}
}

// missing are the holds that others has not.
func missing(holds, others []Hold) []Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool {
		return slices.ContainsFunc(others, func(o Hold) bool { return o.Print == h.Print })
	})
}
