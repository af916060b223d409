package locker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/printed"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A Ticket is a lock that was given away with [Lock.Transfer]. One [Client.Resume] goes on with it, in
// any process whose Client uses the same store, strategy and options.
//
// It is a secret: whoever has it can take the lock. String, GoString and LogValue hide it.
// MarshalText, which encoding/json uses, does not: send the text as you would send a password.
type Ticket struct{ key, token string }

// Transfer gives the lock away without a moment in which it is free. It extends the lease to ttl
// from now, unless it lasts longer already. It ends this hold as Unlock does, but sends no release. It
// returns the ticket with which another process can go on with the lock: see [Client.Resume]. Whoever
// waits for the lock goes on waiting. If nobody resumes the lock before its lease ends, it is free then.
//
// Before it gives anything away, it asks the strategy by one attempt, which middleware of
// [WithMiddleware] does not see. A strategy that can't take over a lock (see [Client.Resume]) makes
// Transfer fail with its permanent error.
//
// Call Transfer when the work of this process is done: its context ends with cause [ErrReleased].
// Unlock is a no-op from then on, so `defer l.Unlock(ctx)` stays right.
//
// If Transfer returns an error, there is no ticket. If the strategy can't take over a lock, or the
// extension failed, the lock is held as before: go on, or Unlock. Any other error says that the lock
// was lost or released meanwhile. A lock with an owner or with a minimum hold can't be given away,
// which is a permanent error.
func (l *Lock) Transfer(ctx context.Context, ttl time.Duration) (Ticket, error) {
	h := l.hold()
	switch {
	case h.client == nil:
		return Ticket{}, &Error{Op: "transfer", Err: errNoLock}
	case h.minHold > 0:
		return Ticket{}, &Error{Op: "transfer", Key: l.Key(), Err: outcome.Invalidf("a lock with locker.WithMinHold can't be given away")}
	case h.lease.Owner != "":
		return Ticket{}, &Error{Op: "transfer", Key: l.Key(), Err: outcome.Invalidf("a lock with an owner can't be given away: the owner may hold it more than once")}
	}
	if err := h.canMove(ctx); err != nil {
		return Ticket{}, err
	}
	if err := l.Extend(ctx, ttl); err != nil {
		return Ticket{}, err
	}
	if !h.give() {
		return Ticket{}, &Error{Op: "transfer", Key: l.Key(), Err: ErrReleased}
	}
	// It sends nothing. If ctx ended it, the ticket would be lost.
	if err := l.Unlock(context.WithoutCancel(ctx)); err != nil {
		return Ticket{}, err
	}
	h.client.lines.freed(l.Key()) // to waiters of this Client, the lock is another's now
	return Ticket{l.Key(), h.lease.Token}, nil
}

// canMove asks whether the strategy and its store can move a hold to another token: otherwise nobody
// could resume, and the key would be of no use until the lease ends. It asks for a hold that does not
// exist, so it takes nothing.
func (h *hold) canMove(ctx context.Context) error {
	if ctx == nil {
		return &Error{Op: "transfer", Key: h.lease.Key, Err: errNilContext}
	}
	if _, over := h.state(time.Now()); over != nil {
		return nil // Extend says why
	}
	c := h.client
	req := contract.Request{
		Key: h.lease.Key, Token: c.defaults.holder.token(), TTL: h.ttl, Turn: contract.Turn{OtherSoftware: c.defaults.otherSoftware},
	}
	c.ledger.Begin()
	defer c.ledger.Done()
	so := effort{from: contract.NewToken(), wait: &c.once}
	err := c.inner.resume(ctx, &req, &so)
	switch {
	case err == nil: // the strategy grants what it does not have
		c.discard(ctx, so.got.Lease, h.ttl)
	case !errors.Is(err, ErrHeld):
		if failed, ok := errors.AsType[*Error](err); ok && failed.Op == "acquire" {
			err = failed.Err
		}
		return &Error{Op: "transfer", Key: h.lease.Key, Err: err}
	}
	return nil
}

// give makes Unlock send nothing, unless that or another Transfer has begun.
func (h *hold) give() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unlock.begun || h.over.moved {
		return false
	}
	h.over.moved = true
	return true
}

// Resume takes over the lock that the ticket is for. In one step of the store, a new token takes the
// place of the old one. So nothing that the old holder sent, and that arrives late, can extend or
// release the lock, and no other Resume finds the ticket. A strategy that numbers its grants gives a
// greater number, so a resource can reject the old holder: see [Lock.Fence]. A reader of package
// rwlock keeps the number that all readers beside it have. The lock has no owner, whatever ctx says
// ([ContextWithOwner]), as it had none before.
//
// Not promised for permits and readers: the network can bring a request of the old holder twice, the
// second time when the lock is another's. Where there is room for one more, that request takes a
// place, which ends with its TTL. Until then a second Resume of the ticket finds it.
//
// The error matches [ErrLost] if the ticket was used, or if its lease has ended: the work may have been
// interrupted, and the lock must be taken anew. Resume makes one attempt, like TryLock.
//
// If the outcome is unknown, call Resume again with the same ticket. What the first request took, or
// takes when it arrives late, is released in the background. So the next Resume goes on with the lock if
// the first request has changed nothing. Otherwise its error matches [ErrLost]. redlock.New releases the
// old hold too, as soon as the nodes to which nothing was sent are fewer than a quorum: then the error
// matches ErrLost in any case.
//
// A ticket of package rwlock is resumed by a Client of its own side, readers or writers. With the other side
// the error is permanent, and the ticket is as good as before.
//
// A strategy that can't take over a lock returns a permanent error that matches
// [errors.ErrUnsupported]: the legacy recipes, and redlock.NewFenced. Under redlock.New the hold moves on
// as many nodes as a quorum.
func (c *Client) Resume(ctx context.Context, t Ticket, opts ...Option) (*Lock, error) {
	if t.token == "" {
		return nil, &Error{Op: "resume", Key: t.key, Err: outcome.Invalidf("the ticket is empty")}
	}
	l, err := c.lock(ctx, t.key, opts, call{once: true, from: t.token})
	if errors.Is(err, ErrHeld) {
		return nil, &Error{Op: "resume", Key: t.key, Err: errUsed}
	}
	return l, err
}

var errUsed error = usedError{}

// usedError says that no hold has the token of the ticket.
type usedError struct{}

func (usedError) Error() string {
	return "the ticket was used, or its lease has ended; take the lock with Lock"
}

// Is matches ErrLost.
func (usedError) Is(target error) bool { return target == ErrLost }

// Permanent says that repeating will not help.
func (usedError) Permanent() bool { return true }

// ErrorType is "lost".
func (usedError) ErrorType() string { return "lost" }

// Key is the name of the lock.
func (t Ticket) Key() string { return t.key }

const ticketVersion = "1"

// MarshalText is the ticket as a text without spaces, for a message, a file or a header. The text is a
// secret.
func (t Ticket) MarshalText() ([]byte, error) {
	encode := base64.RawURLEncoding.EncodeToString
	return []byte(strings.Join([]string{ticketVersion, encode([]byte(t.key)), encode([]byte(t.token))}, ".")), nil
}

// UnmarshalText reads what MarshalText has written.
func (t *Ticket) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ".")
	if len(parts) != 3 || parts[0] != ticketVersion {
		return fmt.Errorf("lockstep: ticket: %w", outcome.Invalidf("the text is not one that Ticket.MarshalText has written"))
	}
	key, wrongKey := base64.RawURLEncoding.DecodeString(parts[1])
	token, wrongToken := base64.RawURLEncoding.DecodeString(parts[2])
	if err := errors.Join(wrongKey, wrongToken); err != nil {
		return fmt.Errorf("lockstep: ticket: %w", outcome.Invalidf("the text is damaged: %v", err))
	}
	*t = Ticket{string(key), string(token)}
	return nil
}

// String names the lock and leaves out what is secret.
func (t Ticket) String() string { return fmt.Sprintf("ticket for %q", printed.Key(t.key)) }

// GoString hides the secret from %#v.
func (t Ticket) GoString() string { return "locker.Ticket{" + t.String() + "}" }

// Format hides the secret from every other verb.
func (t Ticket) Format(s fmt.State, verb rune) { printed.Format(s, verb, t) }

// LogValue gives log/slog the name of the lock.
func (t Ticket) LogValue() slog.Value { return slog.GroupValue(slog.String("key", printed.Key(t.key))) }
