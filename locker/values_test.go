package locker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

func TestTokensAreNeverShown(t *testing.T) {
	const token = "S3CRET"
	lease := locker.Lease{Key: "key", Token: token, Owner: "me", Fence: 7, Expires: time.Now()}
	req := locker.Request{Key: "key", Token: token, Owner: "me", TTL: time.Second}
	wrapped := struct{ L locker.Lease }{lease}
	var out bytes.Buffer
	for _, v := range []any{lease, &lease, req, &req} {
		fmt.Fprintf(&out, "%v %+v %#v %s\n", v, v, v, v)
		for _, h := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
			slog.New(h).Info("x", "v", v)
		}
		if err := json.NewEncoder(&out).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintf(&out, "%v %+v %#v\n", wrapped, wrapped, wrapped)
	if strings.Contains(out.String(), token) {
		t.Errorf("the token is shown in %s", out.String())
	}
	for _, want := range []string{"key", "fence 7", "me"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not shown in %s", want, out.String())
		}
	}
}

func TestALockSaysWhetherItIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key")
		if got, want := l.String(), "lock held, "+l.Lease().String(); got != want {
			t.Errorf("held: %q; want %q", got, want)
		}
		mustUnlock(t, l)
		if got, want := l.String(), "lock no longer held, "+l.Lease().String(); got != want {
			t.Errorf("released: %q; want %q", got, want)
		}
	})
}

func TestUntilLeavesAMargin(t *testing.T) {
	now := time.Now()
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 7900 * time.Microsecond,
		time.Second:           988 * time.Millisecond,
		100 * time.Second:     98998 * time.Millisecond,
	} {
		if got := locker.Until(now, ttl).Sub(now); got != want {
			t.Errorf("Until(%v) is %v later, want %v", ttl, got, want)
		}
	}
}

func TestErrorsReadAsOneSentence(t *testing.T) {
	root := errors.New("connection refused")
	held := &locker.HeldError{Key: "a b", Left: 1500 * time.Millisecond}
	for _, c := range []struct {
		err  error
		want string
	}{
		{held, `lockstep: acquire "a b": held by someone else, for 1.5s more`},
		{&locker.HeldError{Key: "k"}, `lockstep: acquire "k": held by someone else`},
		{&locker.HeldError{Key: "k", Foreign: true}, `lockstep: acquire "k": held by a value without expiry, which no lease wrote`},
		{&locker.Error{Op: "extend", Key: "k", Err: root}, `lockstep: extend "k": connection refused`},
		{&locker.Error{Op: "lock", Key: "k", Err: held}, `lockstep: lock "k": held by someone else, for 1.5s more`},
		{&locker.Error{Op: "lock", Key: "k", Err: &locker.Error{Op: "acquire", Key: "k", Err: root}}, `lockstep: lock "k": acquire: connection refused`},
		{&locker.LostError{Key: "k", Reason: locker.LostExpired}, `lockstep: hold "k": lock lost: its time ran out`},
		{&locker.LostError{Key: "k", Reason: "unheard"}, `lockstep: hold "k": lock lost: unheard`},
		{&locker.LostError{Key: "k", Reason: locker.LostUnavailable, Err: &locker.Error{Op: "extend", Key: "k", Err: root}},
			`lockstep: hold "k": lock lost: its time ran out while extensions failed: extend: connection refused`},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestErrorTypesAreFewWords(t *testing.T) {
	for _, c := range []struct {
		cause error
		want  string
	}{
		{context.DeadlineExceeded, "timeout"},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, "timeout"},
		{fmt.Errorf("x: %w", context.Canceled), "canceled"},
		{locker.ErrWaitLimit, "wait_limit"},
		{&locker.HeldError{}, "held"},
		{&locker.LostError{}, "lost"},
		{fmt.Errorf("%w: %w", locker.ErrForeignKey, errors.New("x")), "foreign_key"},
		{fmt.Errorf("x: %w", &net.AddrError{}), "*net.AddrError"},
		{errors.Join(errors.New("a"), errors.New("b")), "*errors.joinError"},
	} {
		if got := (&locker.Error{Op: "acquire", Key: "k", Err: c.cause}).ErrorType(); got != c.want {
			t.Errorf("%v: %q, want %q", c.cause, got, c.want)
		}
	}
}

func TestBackoffIsPureJitteredAndCapped(t *testing.T) {
	b := locker.Exponential(10*time.Millisecond, 300*time.Millisecond)
	for _, c := range []struct {
		attempt int
		random  float64
		want    time.Duration
	}{
		{1, 0, 5 * time.Millisecond}, {1, 0.5, 7500 * time.Microsecond}, {2, 0, 10 * time.Millisecond},
		{3, 0, 20 * time.Millisecond}, {5, 0, 80 * time.Millisecond}, {6, 0, 150 * time.Millisecond},
		{7, 0.5, 225 * time.Millisecond}, {1000000, 0, 150 * time.Millisecond},
	} {
		for range 2 {
			if got := b(c.attempt, c.random); got != c.want {
				t.Errorf("attempt %d, random %v: %v, want %v", c.attempt, c.random, got, c.want)
			}
		}
	}
	if got := locker.Exponential(time.Second, time.Millisecond)(1, 0); got != time.Millisecond/2 {
		t.Errorf("a limit below the first pause gives %v", got)
	}
}

func TestContextWithOwnerNamesWhoAsks(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l, err := c.Lock(locker.ContextWithOwner(t.Context(), "job 7"), "key")
		if err != nil {
			t.Fatal(err)
		}
		if l.Lease().Owner != "job 7" || s.acquires[0].Owner != "job 7" {
			t.Errorf("owner %q in the request, %q in the lease", s.acquires[0].Owner, l.Lease().Owner)
		}
		mustUnlock(t, l)
	})
}
