package lockertest

import (
	"strings"
	"time"
)

var ownerDoubles = []broken{
	{
		bug: "Release deletes any value", locker: anyoneReleases,
		breaks: []string{
			"a stale Release matches ErrLost and leaves the lease of the next holder alone",
			"Release with a wrong token matches ErrLost and changes nothing",
			"when the store fails, a held lock is not reported as held, and its holder keeps it",
			"Extend and Release of a lease whose key was overwritten fail, and the new value stays",
			"Unlock after the lock was lost matches ErrLost and leaves the next holder alone",
			"Do whose lock was lost matches ErrLost, even if work did not fail",
		},
	},
	{
		bug: "compares the prefix of tokens",
		locker: changed(func(r *reference) {
			prefix := func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }
			remove, expire := r.remove, r.expire
			r.remove = func(key, token string) (bool, error) {
				if e, found := r.live(key); found && prefix(e.token, token) {
					token = e.token
				}
				return remove(key, token)
			}
			r.expire = func(key, token string, ttl time.Duration) (bool, error) {
				if e, found := r.live(key); found && prefix(e.token, token) {
					token = e.token
				}
				return expire(key, token, ttl)
			}
		}),
		breaks: []string{
			"Release with a wrong token matches ErrLost and changes nothing",
		},
	},
	{
		bug: "Extend extends any value",
		locker: changed(func(r *reference) {
			r.expire = func(key, _ string, ttl time.Duration) (bool, error) {
				e, found := r.live(key)
				if found && !e.other {
					e.expires = time.Now().Add(ttl)
					r.entries[key] = e
				}
				return found, nil
			}
		}),
		breaks: []string{
			"Extend after another holder took the lock matches ErrLost and leaves its lease alone",
			"Extend after another holder took the lock does not move the end of its lease",
		},
	},
	{
		bug: "Extend of a lease of another holder extends it and returns ErrLost",
		locker: changed(func(r *reference) {
			expire := r.expire
			r.expire = func(key, token string, ttl time.Duration) (bool, error) {
				if e, found := r.live(key); found && !e.other {
					e.expires = time.Now().Add(ttl)
					r.entries[key] = e
				}
				return expire(key, token, ttl)
			}
		}),
		breaks: []string{
			"Extend after another holder took the lock matches ErrLost and leaves its lease alone",
			"Extend after another holder took the lock does not move the end of its lease",
		},
	},
	{
		bug: "Extend stores the token again",
		locker: changed(func(r *reference) {
			r.expire = func(key, token string, ttl time.Duration) (bool, error) {
				if e, found := r.live(key); found && e.token != token {
					return false, nil
				}
				r.entries[key] = entry{token: token, expires: time.Now().Add(ttl)}
				return true, nil
			}
		}),
		breaks: []string{
			"Extend after the end of the lease matches ErrLost and does not bring it back",
			"Extend after the key was deleted matches ErrLost and does not bring it back",
			"Extend after the store ended the lease too soon matches ErrLost and does not bring it back",
			"Extend after Release matches ErrLost and does not bring the lease back",
			"after Unlock the lock is not renewed any more",
		},
	},
	{
		bug: "Extend stores the token again and returns ErrLost",
		locker: changed(func(r *reference) {
			expire := r.expire
			r.expire = func(key, token string, ttl time.Duration) (bool, error) {
				ok, err := expire(key, token, ttl)
				if err == nil && !ok {
					r.entries[key] = entry{token: token, expires: time.Now().Add(ttl)}
				}
				return ok, err
			}
		}),
		breaks: []string{
			"Extend after the end of the lease matches ErrLost and does not bring it back",
			"Extend after the key was deleted matches ErrLost and does not bring it back",
			"Extend after the store ended the lease too soon matches ErrLost and does not bring it back",
			"Extend after Release matches ErrLost and does not bring the lease back",
			"after Unlock the lock is not renewed any more",
		},
	},
}
