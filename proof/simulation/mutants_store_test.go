//go:build !race

package simulation

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// These stores do what other lock libraries have sent, in place of what this one sends.

// deletesAnything releases the key of any holder.
func deletesAnything(c commands) commands { return deleting{c} }

type deleting struct{ commands }

func (d deleting) DeleteIf(ctx context.Context, key, _ string) (bool, error) {
	return d.Delete(ctx, key)
}

// extendsAnything extends the key of any holder.
func extendsAnything(c commands) commands { return extending{c} }

type extending struct{ commands }

func (e extending) ExpireIf(ctx context.Context, key, _ string, ttl time.Duration) (bool, error) {
	return e.Expire(ctx, key, ttl)
}

// overwritesAnything gives a key that exists the token of the caller.
func overwritesAnything(c commands) commands { return overwriting{c} }

type overwriting struct{ commands }

func (o overwriting) ExpireIf(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	if _, _, found := o.look(key); !found {
		return false, nil
	}
	if _, _, err := o.GetSet(ctx, key, token); err != nil {
		return false, err
	}
	return o.Expire(ctx, key, ttl)
}

// countsHolds keeps one number for each owner in place of one field for each hold.
func countsHolds(c commands) commands {
	return &counting{commands: c, locks: map[string]*counted{}, owners: map[string]string{}}
}

type counting struct {
	commands
	mu     sync.Mutex
	locks  map[string]*counted
	owners map[string]string // by token
}

type counted struct {
	owner string
	holds int
	ends  time.Time
}

func (l *counted) extend(ttl time.Duration) {
	if ends := time.Now().Add(ttl); ends.After(l.ends) {
		l.ends = ends
	}
}

func (c *counting) Enter(_ context.Context, key, token string, ttl time.Duration, a backends.Admission) (result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner := a.Group
	if a.Limit == 1 {
		owner = token
	}
	c.owners[token] = owner
	l := c.live(key)
	if l == nil {
		l = &counted{owner: owner}
		c.locks[key] = l
	}
	if l.owner != owner {
		return result{Left: time.Until(l.ends)}, nil
	}
	l.holds++
	l.extend(ttl)
	return result{OK: true, Holds: l.holds}, nil
}

func (c *counting) Renew(_ context.Context, key, token string, ttl time.Duration) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.live(key)
	if l == nil || l.owner != c.owners[token] {
		return false, nil
	}
	l.extend(ttl)
	return true, nil
}

func (c *counting) Leave(_ context.Context, key, token string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.live(key)
	if l == nil || l.owner != c.owners[token] {
		return false, nil
	}
	if l.holds--; l.holds <= 0 {
		delete(c.locks, key)
	}
	return true, nil
}

func (c *counting) live(key string) *counted {
	l := c.locks[key]
	if l == nil || !time.Now().Before(l.ends) {
		delete(c.locks, key)
		return nil
	}
	return l
}

func (c *counting) look(key string) (string, time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.live(key); l != nil {
		return "", time.Until(l.ends), true
	}
	return "", 0, false
}

// byTheClientsClock sends the end of the key as a time of the client's clock, which is up to 0.3 s
// wrong.
func byTheClientsClock(d dice) func(ttl time.Duration) time.Duration {
	off := d.between(-300*time.Millisecond, 300*time.Millisecond)
	return func(ttl time.Duration) time.Duration { return min(max(ttl+off, time.Millisecond), maxTTL) }
}
