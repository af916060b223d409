package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	client "github.com/redis/go-redis/v9"
)

// Permissions that are taken away while somebody waits or holds.

func TestACLTakenAwayIsToldToWhoWaits(t *testing.T) {
	t.Parallel()
	s := guard(t)
	full := users(t)["single"]
	theirs, _ := locksOf(dial(t, &client.Options{Addr: s.Addr()}))
	for _, permission := range []string{"+set", "+get", "+pttl", "+evalsha", "~app:*"} {
		s.grant("single", full...)
		locks, begun := locksOf(dial(t, s.as("single")))
		held := mustLock(t, theirs, "a")
		w := start(t, locks, "a")
		await(t, "the wait", begun)
		s.grant("single", without(full, permission)...)
		wantRefused(t, "Lock when "+permission+" is taken away", <-w.done)
		mustUnlock(t, held)
	}
}

func TestACLTakenAwayFromWakes(t *testing.T) {
	t.Parallel()
	s := guard(t)
	full := users(t)["single"]
	theirs, _ := locksOf(dial(t, &client.Options{Addr: s.Addr()}))
	for permission, c := range map[string]struct {
		backoff locker.Option
		left    string // the channels afterwards
	}{
		"+subscribe":    {locker.WithBackoff(hourly), "[{app:a}:wake]"}, // it is woken
		"&{app:*}:wake": {locker.WithTTL(long), "[]"},                   // it looks by itself
	} {
		s.grant("single", full...)
		locks, begun := locksOf(dial(t, s.as("single")))
		a, b := mustLock(t, theirs, "a"), mustLock(t, theirs, "b")
		w := start(t, locks, "a", c.backoff)
		await(t, "the wait", begun)
		s.grant("single", without(full, permission)...)
		eventually(t, "the server's part", func() bool { return s.channels() == c.left })
		wantRefused(t, "the next Lock without "+permission, <-start(t, locks, "b", locker.WithBackoff(hourly)).done)
		select {
		case err := <-w.done:
			t.Fatalf("the Lock that waits = %v", err)
		default:
		}
		mustUnlock(t, a)
		if err := <-w.done; err != nil {
			t.Errorf("the Lock that waits without %s = %v", permission, err)
		}
		mustUnlock(t, b)
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
		wantRefused(t, "Extend", l.Extend(t.Context(), long))
		await(t, "the loss", l.Context().Done())
		cause := context.Cause(l.Context())
		var lost *locker.LostError
		if !errors.As(cause, &lost) || lost.Reason != locker.LostUnavailable || lost.Err == nil {
			t.Fatalf("cause %v", cause)
		}
		if isRefused(cause, "NOPERM") {
			return
		}
		if attempt == 5 {
			t.Fatalf("cause %v, want NOPERM", cause)
		}
	}
}
