package natsstore

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// grants are the messages that this store has written and that may still be there. A release or
// renewal with a known sequence is one round trip instead of two. The server compares the sequence,
// so an entry that is out of date only costs the second round trip.
type grants struct {
	remade chan nats.Status // has an event when the connection was made again

	mu      sync.Mutex
	times   uint64 // that it was made again, as far as forget has seen
	all     map[grant]remembered
	sweepAt int
}

type grant struct{ key, value string }

type remembered struct {
	entry
	ends time.Time
}

const firstSweep = 1024

func (g *grants) put(key, value string, e *entry) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.forget(); e.connection != g.times {
		return
	}
	if g.all == nil {
		g.all, g.sweepAt = map[grant]remembered{}, firstSweep
	}
	if len(g.all) >= g.sweepAt { // some have ended without a release
		for k, r := range g.all {
			if now.After(r.ends) {
				delete(g.all, k)
			}
		}
		g.sweepAt = max(firstSweep, 2*len(g.all))
	}
	r := remembered{*e, now.Add(time.Duration(e.ttl) * time.Second)}
	r.value = value
	g.all[grant{key, value}] = r
}

// clear forgets all.
func (g *grants) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.all)
}

// forget clears all if the connection was made again: a server that forgot its last messages in a power
// cut gives their sequences again, to other keys. The client library has told it before it sends anything
// over the new one.
func (g *grants) forget() {
	for {
		select {
		case <-g.remade:
			g.times++
			clear(g.all)
		default:
			return
		}
	}
}

// connection numbers the connections that were made, one after the other.
func (g *grants) connection() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget()
	return g.times
}

// get returns nil if the store does not know.
func (g *grants) get(key, value string) *entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget()
	r, ok := g.all[grant{key, value}]
	if !ok {
		return nil
	}
	return &r.entry
}

// take is get, and forgets.
func (g *grants) take(key, value string) *entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget()
	r, ok := g.all[grant{key, value}]
	if !ok {
		return nil
	}
	delete(g.all, grant{key, value})
	return &r.entry
}
