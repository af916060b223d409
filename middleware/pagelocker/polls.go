package pagelocker

import (
	"context"
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
	locks       map[string]*Lock // immutable values
	partial     bool             // the store has more than one look finds
	inspections map[string]*inspection
}

// poll is when the store was asked, and how it went.
type poll struct {
	began, ended time.Time     // of the last one that is over
	err          error         // of that
	under        chan struct{} // closed when the one under way is over; nil: none
	outdated     bool          // what is under way may not show what has changed since it began
}

// outdate makes the next look ask the store, whenever the last one was. The mutex must be held.
func (of *poll) outdate() { of.began, of.outdated = time.Time{}, of.under != nil }

type inspection struct {
	poll
	lock *Lock // nil: no answer yet
}

// start asks the store, unless it was asked less than an interval ago. It returns a channel that is
// closed when the last answer is fresh.
func (p *Page) start(of *poll, ask func(ctx context.Context, began time.Time) error) <-chan struct{} {
	p.polls.mu.Lock()
	defer p.polls.mu.Unlock()
	now := time.Now()
	// Never more than half of the time, so that a slow store has time for others.
	pause := max(p.interval*9/10, 2*of.ended.Sub(of.began)) // a timer may be early
	switch {
	case of.under != nil:
		return of.under
	case !of.began.IsZero() && now.Sub(of.began) < pause:
		done := make(chan struct{})
		close(done)
		return done
	}
	done := make(chan struct{})
	of.under = done
	go func() { // for all who look, so not under the ctx of one of them
		ctx, cancel := context.WithTimeout(context.Background(), storeLimit)
		defer cancel()
		err := ask(ctx, now)
		p.polls.mu.Lock()
		of.began, of.ended, of.err, of.under = now, time.Now(), err, nil
		if of.outdated {
			of.outdate()
		}
		p.polls.mu.Unlock()
		close(done)
		p.changed()
	}()
	return done
}

// refresh asks the store for what q shows, if the last answer is older than the interval.
func (p *Page) refresh(q query) <-chan struct{} {
	if p.store == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	if q.key == "" {
		return p.start(&p.polls.list, p.listAll)
	}
	p.polls.mu.Lock()
	i := p.polls.inspections[q.key]
	if i == nil {
		i = new(inspection)
		if p.mayAsk(q.key) && p.polls.room(p.polls.locks[q.key] != nil, p.interval) {
			p.polls.inspections[q.key] = i
		} else {
			i.began = time.Now() // it is not asked for
		}
	}
	p.polls.mu.Unlock()
	return p.start(&i.poll, func(ctx context.Context, began time.Time) error {
		state, err := p.store.Inspect(ctx, q.key)
		if err != nil {
			return err
		}
		p.polls.mu.Lock()
		before := i.lock
		if before != nil && began.Sub(before.read) > 3*p.interval {
			before = nil
		}
		i.lock = lockOf(q.key, state, before, began)
		now := i.lock
		p.polls.mu.Unlock()
		p.vanished(before, now)
		return nil
	})
}

// room makes room for one more key: the one that was looked at first makes way. So whoever asks for
// keys that he has made up takes no room from those that the store has. He can't make the store be asked
// for more than maxInspections of them in an interval. The mutex must be held.
func (s *polls) room(known bool, interval time.Duration) bool {
	if len(s.inspections) < maxInspections {
		return true
	}
	var first string
	var old *inspection
	for key, i := range s.inspections {
		if i.under == nil && (old == nil || i.began.Before(old.began)) {
			first, old = key, i
		}
	}
	if old == nil || !known && time.Since(old.began) < interval {
		return false
	}
	delete(s.inspections, first)
	return true
}

// mayAsk keeps people from reading keys that the page is not for.
func (p *Page) mayAsk(key string) bool {
	for _, prefix := range p.prefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	return p.registry.byKey[key] != nil
}

// listAll reads all pages.
func (p *Page) listAll(ctx context.Context, began time.Time) error {
	p.polls.mu.Lock()
	before, wasPartial := p.polls.locks, p.polls.partial
	if began.Sub(p.polls.list.began) > 3*p.interval+2*p.polls.list.ended.Sub(p.polls.list.began) {
		before = nil // nobody has looked for a while: what was seen then may have ended and begun again
	}
	p.polls.mu.Unlock()
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
	p.polls.locks, p.polls.partial = locks, partial
	p.polls.mu.Unlock()
	if !partial && !wasPartial {
		for key, l := range before {
			p.vanished(l, locks[key])
		}
	}
	return nil
}

// vanished puts the holds that are gone into the history.
func (p *Page) vanished(before, now *Lock) {
	if before == nil {
		return
	}
	at := time.Now()
	if now != nil {
		at = now.read
	}
next:
	for _, h := range before.Holds {
		if now != nil {
			for _, n := range now.Holds {
				if n.Print == h.Print {
					continue next
				}
			}
		}
		p.registry.saw(before.Key, h, at)
	}
}
