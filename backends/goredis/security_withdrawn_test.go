package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	client "github.com/redis/go-redis/v9"
)

// Permissions that are taken away while somebody waits or holds.

func TestACLTakenAwayIsToldToWhoWaits(t *testing.T) {
	t.Parallel()
	s := guard(t)
	for _, c := range []struct {
		user, permission string
		turn             bool // it is told when the turn comes
		never            bool // it can do without
	}{
		{user: "single", permission: "+get"},
		{user: "single", permission: "+pttl"},
		{user: "single", permission: "+evalsha"},
		{user: "single", permission: "~app:*"},
		{user: "single", permission: "+zscore"},
		{user: "single", permission: "+zcount"},
		{user: "single", permission: "+pexpire"},
		{user: "single", permission: "+set", turn: true},
		{user: "single", permission: "+zrem", turn: true},
		{user: "single", permission: "~{app:*}:?queue", never: true},
		{user: "fair", permission: "~{app:*}:?queue"},
	} {
		v, full := variants[c.user], users(t)[c.user]
		s.grant(c.user, full...)
		locks, begun := v.locks(dial(t, s.as(c.user)))
		theirs, _ := v.locks(dial(t, &client.Options{Addr: s.Addr()}))
		held, err := theirs.Lock(t.Context(), "a") // what was reserved for the last one may have to end
		if err != nil {
			t.Fatal(err)
		}
		w := start(t, locks, "a")
		await(t, "the wait", begun)
		s.grant(c.user, without(full, c.permission)...)
		if c.turn || c.never {
			mustUnlock(t, held)
		}
		switch err := <-w.done; {
		case !c.never:
			wantPermanent(t, "Lock of "+c.user+" when "+c.permission+" is taken away", err)
		case err != nil:
			t.Errorf("Lock of %s when %s is taken away = %v", c.user, c.permission, err)
		}
		if !c.turn && !c.never {
			mustUnlock(t, held)
		}
	}
}

func TestACLTakenAwayFromWakes(t *testing.T) {
	t.Parallel()
	s := guard(t)
	looks := locker.WithTTL(long) // by itself
	for _, c := range []struct {
		user, permission string
		backoff          locker.Option
		left             string // the channels afterwards
		refused          bool   // the next one
	}{
		{"single-no-scripts", "+subscribe", locker.WithBackoff(hourly), "[{app:a}:wake]", true},
		{"single-no-scripts", "&{app:*}:wake", looks, "[]", true},
		{"single", "+subscribe", locker.WithBackoff(hourly), "[app:lockstep:", false},
		{"single", "&app:lockstep:*", looks, "[]", false},
		{"fair", "+subscribe", locker.WithBackoff(hourly), "[app:lockstep:", false},
		{"fair", "&app:lockstep:*", looks, "[]", true},
	} {
		v, full := variants[c.user], users(t)[c.user]
		s.grant(c.user, full...)
		locks, begun := v.locks(dial(t, s.as(c.user)))
		theirs, _ := v.locks(dial(t, &client.Options{Addr: s.Addr()}))
		a, b := mustLock(t, theirs, "a"), mustLock(t, theirs, "b")
		w := start(t, locks, "a", c.backoff)
		await(t, "the wait", begun)
		s.grant(c.user, without(full, c.permission)...)
		eventually(t, "the server's part", func() bool { return strings.HasPrefix(s.channels(), c.left) })
		var next waiter
		if c.refused {
			eventually(t, "the next Lock of "+c.user+" without "+c.permission+" is refused", func() bool {
				_, err := locks.Lock(t.Context(), "b", locker.WithWait(time.Second)) // which may not know yet
				return isPermanent(err, "NOPERM")
			})
		} else {
			next = start(t, locks, "b", c.backoff)
			await(t, "the next wait", begun)
		}
		select {
		case err := <-w.done:
			t.Fatalf("the Lock that waits = %v", err)
		default:
		}
		mustUnlock(t, a)
		if err := <-w.done; err != nil {
			t.Errorf("the Lock of %s that waits without %s = %v", c.user, c.permission, err)
		}
		mustUnlock(t, b)
		if !c.refused {
			if err := <-next.done; err != nil {
				t.Errorf("the next Lock of %s without %s = %v", c.user, c.permission, err)
			}
		}
		eventually(t, "no channel", func() bool { return s.channels() == "[]" })
	}
}

// A lock that was not permitted for a while says nothing of its queue.
func TestACLThatComesBackBringsTheQueueBack(t *testing.T) {
	s := guard(t)
	full := users(t)["single"]
	s.grant("single", full...)
	locks, _ := locksOf(dial(t, s.as("single")))
	l := mustLock(t, locks, "a")
	s.grant("single", without(full, "~app:*")...)
	wantPermanent(t, "Unlock", l.Unlock(t.Context()))
	s.grant("single", full...)
	passed := life{t: t, server: s, variant: variants["single"]}.await(locks, "b")
	if err := passed.unlock(t.Context()); err != nil {
		t.Errorf("Unlock with somebody in the queue = %v", err)
	}
}

func TestACLTakenAwayFromAHolder(t *testing.T) {
	t.Parallel()
	s := guard(t)
	full := users(t)["single"]
	for attempt := 1; ; attempt++ { // the very last extension may be cut off by the end of the lease instead
		s.grant("single", full...)
		locks, _ := locksOf(dial(t, s.as("single")))
		l := mustLock(t, locks, fmt.Sprint("a", attempt), locker.WithTTL(2*time.Second))
		s.grant("single", without(full, "+evalsha")...)
		wantPermanent(t, "Extend", l.Extend(t.Context(), long))
		await(t, "the loss", l.Context().Done())
		cause := context.Cause(l.Context())
		var lost *locker.LostError
		if !errors.As(cause, &lost) || lost.Reason != locker.LostUnavailable || lost.Err == nil {
			t.Fatalf("cause %v", cause)
		}
		if isPermanent(cause, "NOPERM") {
			return
		}
		if attempt == 5 {
			t.Fatalf("cause %v, want NOPERM", cause)
		}
	}
}
