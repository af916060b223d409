package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// flights finds attempts by their token, for the release of their lease.
type flights struct {
	mu      sync.Mutex
	byToken map[string]*flight // the latest attempt
}

func (fs *flights) start(ctx context.Context, q *quorum, from string, req contract.Request) *flight {
	f := &flight{quorum: q, ctx: ctx, from: from, req: req, parts: make([]part, 0, len(q.nodes))}
	for _, n := range q.nodes {
		f.parts = append(f.parts, part{node: n})
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.byToken == nil {
		fs.byToken = map[string]*flight{}
	}
	f.other = fs.byToken[req.Token]
	fs.byToken[req.Token] = f
	return f
}

// land forgets f.
func (fs *flights) land(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.forget(f.req.Token, func(other *flight) bool { return other == f })
}

// forget forgets the attempts with the token that are over.
func (fs *flights) forget(token string, over func(*flight) bool) {
	latest := fs.byToken[token]
	for at := &latest; *at != nil; {
		if f := *at; over(f) {
			*at = f.other
		} else {
			at = &f.other
		}
	}
	if latest == nil {
		delete(fs.byToken, token)
	} else {
		fs.byToken[token] = latest
	}
}

// prolong keeps the attempts of a token for as long as its extended lease.
func (fs *flights) prolong(token string, ttl time.Duration) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for f := fs.byToken[token]; f != nil; f = f.other {
		f.prolong(ttl)
	}
}

// counts reports whether the node will keep the token. A node that has not answered, or has failed,
// may still clean it up.
func (fs *flights) counts(token string, n *node) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.byToken[token].all(n, func(said response) bool { return said != silent && said != unknown })
}

// end ends all attempts with the token, since it is spent. A release follows, which waits for the
// answers to f; nil: to the latest attempt, if there is one. end returns that attempt, and the
// nodes that can't have the lease.
func (fs *flights) end(token string, f *flight) (_ *flight, unasked []*node) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	latest := fs.byToken[token]
	if f == nil {
		f = latest
	}
	if latest == nil {
		return f, nil
	}
	for _, n := range latest.nodes {
		if latest.all(n, func(said response) bool { return said == untouched }) {
			unasked = append(unasked, n)
		}
	}
	fs.forget(token, func(other *flight) bool { return other.end(other == f) })
	return f, unasked
}
