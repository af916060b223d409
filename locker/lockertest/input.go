package lockertest

import (
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A badRequest is a request that fails, and what the error must say.
type badRequest struct {
	contract.Request
	says []string
}

func (x *fixture) badRequests() []badRequest {
	ttl := func(ttl time.Duration) contract.Request { return x.request("k"+x.id, ttl) }
	return append(x.badNames(),
		badRequest{ttl(9 * time.Millisecond), []string{"ttl", "9ms", "10ms"}},
		badRequest{ttl(0), []string{"ttl", "0s", "10ms"}},
		badRequest{ttl(-time.Second), []string{"ttl", "-1s", "10ms"}},
		badRequest{ttl(10500 * time.Microsecond), []string{"ttl", "10.5ms", "milliseconds"}},
	)
}

// badNames are the bad requests whose Key or Token cannot name a lease.
func (x *fixture) badNames() []badRequest {
	key := func(key string) contract.Request { return x.request(key, x.long) }
	nameless := x.request("k"+x.id, x.long)
	nameless.Token = ""
	return []badRequest{
		{key(""), []string{"key", "empty"}},
		{key(strings.Repeat("k", 513)), []string{"key", "513", "512"}},
		{key(strings.Repeat("ü", 257)), []string{"key", "514", "512"}},
		{key("a\xffz" + x.id), []string{"key", "UTF-8"}},
		{key("a\x00z" + x.id), []string{"key", "NUL"}},
		{nameless, []string{"token", "empty"}},
	}
}

// tooLong is a request for a ttl over the limit of the store.
func (x *fixture) tooLong() badRequest {
	ttl := x.MaxTTL + time.Millisecond
	return badRequest{x.request("k"+x.id, ttl), []string{"ttl", ttl.String(), x.MaxTTL.String()}}
}

func (x *fixture) badTTLs() []time.Duration {
	return []time.Duration{9 * time.Millisecond, 0, -time.Second, 10500 * time.Microsecond}
}

var inputSentences = []sentence{
	{"a bad request is a permanent error that names the value and the limit", nil, func(x *fixture) {
		for _, bad := range append(x.badRequests(), x.tooLong()) {
			_, err := x.locker.Acquire(x.Context(), bad.Request)
			x.wantPermanent("Acquire", err)
			for _, part := range bad.says {
				if !strings.Contains(err.Error(), part) {
					x.Errorf("error %.200q does not say %q", err, part)
				}
			}
			if bad.Key != "" && x.beneath.Holds(bad.Key) {
				x.Errorf("%v: the key is not empty", bad.Request)
			}
		}
	}},
	{"nothing is sent for a bad request", needs(faults), func(x *fixture) {
		release := x.stall(All)
		for _, bad := range x.badRequests() {
			err := answer(x, "a bad request is answered without the store", x.async(func() error {
				_, err := x.locker.Acquire(x.Context(), bad.Request)
				return err
			}))
			x.wantPermanent("Acquire", err)
			err = answer(x, "Transfer with a bad request is answered without the store", x.async(func() error {
				_, err := x.locker.Transfer(x.Context(), rand.Text(), bad.Request)
				return err
			}))
			x.wantPermanent("Transfer", err)
		}
		err := answer(x, "Transfer from no token is answered without the store", x.async(func() error {
			_, err := x.locker.Transfer(x.Context(), "", x.request(x.key("k"), x.long))
			return err
		}))
		x.wantPermanent("Transfer", err)
		release()
	}},
	{"Extend with a bad ttl is a permanent error that names it, and leaves the lease alone", nil, func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		for _, ttl := range append(x.badTTLs(), x.MaxTTL+time.Millisecond) {
			_, err := x.locker.Extend(x.Context(), g.Lease, ttl)
			x.wantPermanent("Extend", err)
			if !strings.Contains(err.Error(), ttl.String()) {
				x.Errorf("error %q does not name %v", err, ttl)
			}
		}
		x.heldBy(g, x.long)
		x.release(g.Lease)
	}},
	{"nothing is sent for an Extend with a bad ttl", needs(faults), func(x *fixture) {
		g := x.grant(x.key("k"), x.long)
		release := x.stall(All)
		for _, ttl := range x.badTTLs() {
			err := answer(x, "a bad ttl is answered without the store", x.async(func() error {
				_, err := x.locker.Extend(x.Context(), g.Lease, ttl)
				return err
			}))
			x.wantPermanent("Extend", err)
		}
		release()
	}},
	{"nothing is sent for an Extend or Release of a bad lease, or for a Watch of a bad key", needs(faults), func(x *fixture) {
		release := x.stall(All)
		for _, bad := range x.badNames() {
			lease := contract.Lease{Key: bad.Key, Token: bad.Token}
			x.wantPermanent("Extend", answer(x, "Extend of a bad lease is answered without the store", x.async(func() error {
				_, err := x.locker.Extend(x.Context(), lease, x.long)
				return err
			})))
			x.wantPermanent("Release", answer(x, "Release of a bad lease is answered without the store", x.async(func() error {
				return x.locker.Release(x.Context(), lease)
			})))
			if bad.Token == "" {
				continue // the key is good
			}
			err := answer(x, "Watch of a bad key is answered without the store", x.async(func() error {
				return x.locker.Watch(x.Context(), bad.Key, "", func() {})
			}))
			if !x.NoWatch || !errors.Is(err, errors.ErrUnsupported) {
				x.wantPermanent("Watch", err)
			}
		}
		release()
	}},
	{"the longest and the shortest ttl are granted", nil, func(x *fixture) {
		x.release(x.grant(x.key("longest"), x.MaxTTL).Lease)
		req := x.request(x.key("shortest"), contract.MinTTL)
		for range 1000 {
			_, err := x.locker.Acquire(x.Context(), req)
			if err == nil {
				return
			}
			// A grant whose answer came after its end is unknown. Its token must not be used again.
			if x.wantUnknown("Acquire", err); x.Bubble || outcome.Permanent(err) {
				x.Fatalf("Acquire for %v: %v", contract.MinTTL, err)
			}
			req = x.request(x.key("shortest"+strconv.Itoa(time.Now().Nanosecond())), contract.MinTTL)
		}
		x.Fatalf("the store takes longer than %v each time", contract.MinTTL)
	}},
	{"a key may be 512 bytes long and hold any text but a NUL", nil, func(x *fixture) {
		var grants []grant
		for _, key := range x.oddKeys() {
			grants = append(grants, x.grant(key, x.long))
		}
		for _, g := range grants { // each key is a lock of its own
			x.heldBy(g, x.long)
			x.wantHolds(g)
			x.release(g.Lease)
			x.wantEmpty(g.Key)
		}
	}},
}

func (x *fixture) oddKeys() []string {
	keys := []string{
		x.key(" "), x.key("a b"), x.key("\n"), x.key("\x01\x7f"), x.key(`"`), x.key(`'\`), x.key("%s%d"), x.key("*"), x.key("[a]?"),
		x.key("{a}"), x.key("{}"), x.key("{"), x.key("a:b/c"), x.key("ä"), x.key("a\u0308"), x.key("锁"), x.key("🔒"), x.key("A"), x.key("a"),
		x.own(x.id + strings.Repeat("k", locker.MaxKeyLength-len(x.id))),
		x.own(strings.Repeat("k", locker.MaxKeyLength-len(x.id)) + x.id),
	}
	return append(keys, x.own(keys[0]+" "))
}

// async calls do in the background, and sends the result to the channel.
func (x *fixture) async(do func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- do() }()
	return c
}
