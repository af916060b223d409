package lockertest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var acquireDoubles = []broken{
	{
		bug: "grants without storing anything",
		locker: changed(func(r *reference) {
			r.set = func(string, string, time.Duration) (bool, entry, error) { return true, entry{}, nil }
		}),
		breaks: []string{
			"the token is in nothing that a request or a lease prints, logs or marshals",
		},
	},
	{
		bug: "every attempt is granted",
		locker: changed(func(r *reference) {
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				r.entries[key] = entry{token: token, expires: time.Now().Add(ttl)}
				return true, entry{}, nil
			}
		}),
		breaks: []string{
			"a value of another type is an error that matches ErrForeignKey and not ErrHeld, and stays",
		},
	},
	{
		bug: "looks and stores in two steps",
		locker: func(r *reference) locker.Locker {
			set := r.set
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				if _, found := r.live(key); found {
					return set(key, token, ttl)
				}
				r.mu.Unlock()
				time.Sleep(tick)
				r.mu.Lock()
				r.entries[key] = entry{token: token, expires: time.Now().Add(ttl)}
				return true, entry{}, nil
			}
			return r
		},
		breaks: []string{
			"of concurrent attempts exactly one is granted",
			"concurrent holders of one key exclude each other, and no update is lost",
		},
	},
}

var againDoubles = []broken{
	{
		bug: "an owner is granted its own lock again",
		locker: func(r *reference) locker.Locker {
			var owners sync.Map
			return double{Locker: r, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				if token, ok := owners.Load(req.Owner); ok && req.Owner != "" {
					req.Token = token.(string)
				}
				owners.Store(req.Owner, req.Token)
				return r.Acquire(ctx, req)
			}}
		},
		breaks: []string{
			"a lock is held for its own owner too, if the token is new",
		},
	},
	{
		bug: "a token that was granted once is granted for ever",
		locker: changed(func(r *reference) {
			set, was := r.set, map[string]bool{}
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				granted, present, err := set(key, token, ttl)
				was[token] = was[token] || granted
				return granted || err == nil && was[token], present, err
			}
		}),
		breaks: []string{"a second Acquire with the token of a lease that has ended finds the lock held by the next holder"},
	},
	{
		bug: "a second Acquire of a token is held",
		locker: changed(func(r *reference) {
			set := r.set
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				if e, found := r.live(key); found {
					return false, e, nil
				}
				return set(key, token, ttl)
			}
		}),
		breaks: []string{
			"a second Acquire with the same token is granted, for ttl from then on",
			"two grants of the same token count once: one Release frees the lock",
			"a value of another type is an error that matches ErrForeignKey and not ErrHeld, and stays",
			"a value of another type ends the wait with ErrForeignKey",
		},
	},
	{
		bug: "a second Acquire of a token does not set the ttl",
		locker: changed(func(r *reference) {
			set := r.set
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				if e, found := r.live(key); found && e.token == token {
					return true, entry{}, nil
				}
				return set(key, token, ttl)
			}
		}),
		breaks: []string{
			"a second Acquire with the same token is granted, for ttl from then on",
		},
	},
	{
		bug: "grants are counted",
		locker: func(r *reference) locker.Locker {
			var mu sync.Mutex
			counts := map[string]int{}
			return double{
				Locker: r,
				acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
					lease, err := r.Acquire(ctx, req)
					if err == nil {
						mu.Lock()
						counts[req.Token]++
						mu.Unlock()
					}
					return lease, err
				},
				release: func(ctx context.Context, lease contract.Lease) error {
					mu.Lock()
					counts[lease.Token]--
					left := counts[lease.Token]
					mu.Unlock()
					if left > 0 {
						return nil
					}
					return r.Release(ctx, lease)
				},
			}
		},
		breaks: []string{
			"two grants of the same token count once: one Release frees the lock",
		},
	},
	{
		bug: "all keys are one key",
		locker: func(r *reference) locker.Locker {
			set, expire, remove := r.set, r.expire, r.remove
			r.set = func(_, token string, ttl time.Duration) (bool, entry, error) { return set("", token, ttl) }
			r.expire = func(_, token string, ttl time.Duration) (bool, error) { return expire("", token, ttl) }
			r.remove = func(_, token string) (bool, error) { return remove("", token) }
			return r
		},
		breaks: []string{
			"Release of a lease that the store ended too soon matches ErrLost",
		},
	},
	{
		bug: "keys are trimmed",
		locker: func(r *reference) locker.Locker {
			set := r.set
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				return set(strings.TrimSpace(key), token, ttl)
			}
			return r
		},
		breaks: []string{
			"a key may be 512 bytes long and hold any text but a NUL",
		},
	},
}
