package natsstore

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A place is the address that a connection had when it last told. An error must not wait for it: see soon.
type place struct {
	mu     sync.Mutex
	last   string
	asking *asking
}

type asking struct {
	told  chan struct{}
	limit time.Time
}

// of asks the connection. All who ask at once share a question.
func (p *place) of(conn *nats.Conn) string {
	p.mu.Lock()
	q := p.asking
	if q == nil {
		q = &asking{make(chan struct{}), time.Now().Add(grace)}
		p.asking = q
		go func() {
			at := endpoint(conn)
			p.mu.Lock()
			p.last, p.asking = at, nil
			p.mu.Unlock()
			close(q.told)
		}()
	}
	p.mu.Unlock()
	select {
	case <-q.told:
	case <-time.After(time.Until(q.limit)):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}
