package locker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

func TestTokensAreNeverShown(t *testing.T) {
	const token = "S3CRET"
	lease := contract.Lease{Key: "key", Token: token, Owner: "me", Fence: 7, Expires: time.Now()}
	req := contract.Request{Key: "key", Token: token, Owner: "me", TTL: time.Second}
	wrapped := struct{ L contract.Lease }{lease}
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
		if got := contract.Until(now, ttl).Sub(now); got != want {
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
		{held, `lockstep: acquire "a b": held by someone else; free in 1.5s unless renewed`},
		{&locker.HeldError{Key: "k"}, `lockstep: acquire "k": held by someone else`},
		{&locker.HeldError{Key: "k", Foreign: true}, `lockstep: acquire "k": held by a value without expiry, which no lease wrote`},
		{&locker.HeldError{Key: "k", Left: 9500 * time.Millisecond, Holder: "ann", Err: &locker.EvictedError{By: "ann"}},
			`lockstep: acquire "k": closed after a forced release: evicted by "ann"; free in 9.5s`},
		{&locker.HeldError{Key: "k", Err: &locker.EvictedError{}}, `lockstep: acquire "k": closed after a forced release: evicted by an operator`},
		{&locker.LostError{Key: "k", Reason: locker.LostEvicted, Err: &locker.EvictedError{By: "ann"}},
			`lockstep: hold "k": lock lost: it was released by force: evicted by "ann"`},
		{&locker.Error{Op: "extend", Key: "k", Err: root}, `lockstep: extend "k": connection refused`},
		{&locker.Error{Op: "lock", Key: "k", Err: held}, `lockstep: lock "k": held by someone else; free in 1.5s unless renewed`},
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

// The deadline of an extension is not a deadline of the caller's ctx.
func TestALossMatchesItsCauseAndNoEndOfACtx(t *testing.T) {
	root := errors.New("down")
	lost := &locker.LostError{Key: "k", Reason: locker.LostUnavailable, Err: fmt.Errorf("%w: %w: %w", root, context.DeadlineExceeded, context.Canceled)}
	mustMatch(t, lost, locker.ErrLost, root)
	mustNotMatch(t, lost, context.DeadlineExceeded, context.Canceled)
	mustNotMatch(t, &locker.LostError{Key: "k"}, root)
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
		{fmt.Errorf("read: %w", io.EOF), "eof"},
		{&net.OpError{Op: "read", Net: "tcp", Err: io.ErrUnexpectedEOF}, "eof"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "connection_refused"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connectex", syscall.Errno(10061))}, "connection_refused"},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, "connection_reset"},
		{&net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}, "connection_reset"},
		{&net.OpError{Op: "write", Net: "tcp", Err: net.ErrClosed}, "closed"},
		{fmt.Errorf("pipe: %w", io.ErrClosedPipe), "closed"},
		{errors.Join(io.EOF, ownWord{}), "own_word"},
		{fmt.Errorf("x: %w", &net.AddrError{}), "error"},
		{errors.Join(errors.New("a"), errors.New("b")), "error"},
	} {
		if got := (&locker.Error{Op: "acquire", Key: "k", Err: c.cause}).ErrorType(); got != c.want {
			t.Errorf("%v: %q, want %q", c.cause, got, c.want)
		}
	}
}

// ownWord is an error of a store that names its kind.
type ownWord struct{}

func (ownWord) Error() string     { return "x" }
func (ownWord) ErrorType() string { return "own_word" }

func TestAKeyThatIsTooLongIsShownByItsFirst64Bytes(t *testing.T) {
	key, shown := strings.Repeat("k", 1<<20), strings.Repeat("k", 64)+"…"
	split := strings.Repeat("k", 62) + strings.Repeat("é", 1<<19) // byte 64 is in the middle of a rune
	lease := contract.Lease{Key: key, Token: "S3CRET", Expires: time.Date(2026, 11, 22, 10, 31, 5, 0, time.UTC)}
	req := contract.Request{Key: key, Token: "S3CRET", TTL: time.Second}
	c := locker.New(newSpy())
	_, err := c.Lock(t.Context(), key)
	_, tried := c.TryLock(t.Context(), key)
	for _, v := range []struct {
		got  any
		want string
	}{
		{err, `lockstep: lock "` + shown + `": key of 1048576 bytes is over the limit of 512`},
		{tried, `lockstep: lock "` + shown + `": key of 1048576 bytes is over the limit of 512`},
		{req.Validate(), "key of 1048576 bytes is over the limit of 512"},
		{lease.Validate(), "key of 1048576 bytes is over the limit of 512"},
		{&locker.HeldError{Key: key}, `lockstep: acquire "` + shown + `": held by someone else`},
		{&locker.LostError{Key: key, Reason: locker.LostExpired}, `lockstep: hold "` + shown + `": lock lost: its time ran out`},
		{&locker.HeldError{Key: split}, `lockstep: acquire "` + strings.Repeat("k", 62) + `é…": held by someone else`},
		{&locker.HeldError{Key: "k" + split}, `lockstep: acquire "` + strings.Repeat("k", 63) + `…": held by someone else`},
		{lease, `lease on "` + shown + `" until 2026-11-22T10:31:05Z`},
		{req, `request for "` + shown + `", ttl 1s`},
		{lease.LogValue(), `[key=` + shown + ` owner= fence=0 granted=0001-01-01 00:00:00 +0000 UTC expires=2026-11-22 10:31:05 +0000 UTC]`},
		{req.LogValue(), `[key=` + shown + ` owner= ttl=1s]`},
	} {
		if got := fmt.Sprint(v.got); got != v.want {
			t.Errorf("got  %.200s\nwant %s", got, v.want)
		}
	}
	whole := strings.Repeat("k", locker.MaxKeyLength)
	if got, want := (&locker.HeldError{Key: whole}).Error(), `lockstep: acquire "`+whole+`": held by someone else`; got != want {
		t.Errorf("a key of the greatest length is shown as %s; want all of it", got)
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

func TestContextWithOwnerSetsTheOwnerOfRequestAndLease(t *testing.T) {
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
