package outcome

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
)

var errDown = errors.New("down")

// definite is an error with a method Permanent.
type definite struct{ permanent bool }

func (definite) Error() string     { return "definite" }
func (d definite) Permanent() bool { return d.permanent }

// sending is an error with a method Unsent.
type sending struct{ unsent bool }

func (sending) Error() string  { return "sending" }
func (s sending) Unsent() bool { return s.unsent }

func TestAnErrorIsWhatItWasMade(t *testing.T) {
	for says, c := range map[string]struct {
		err               error
		text, kind        string
		permanent, unsent bool
	}{
		"bad input":       {Invalidf("ttl %d", 7), "ttl 7", "invalid", true, false},
		"permanent":       {AsPermanent(errDown), "down", "invalid", true, false},
		"unsent":          {AsUnsent(errDown), "down", "", false, true},
		"not sent":        {NotSent(errDown), "down; nothing was sent", "", false, true},
		"not done":        {NotDone(errDown), "down; nothing was done", "", false, true},
		"nothing is said": {errDown, "down", "", false, false},
	} {
		var kind interface{ ErrorType() string }
		if c.kind == "" && errors.As(c.err, &kind) || c.kind != "" && (!errors.As(c.err, &kind) || kind.ErrorType() != c.kind) {
			t.Errorf("%s: its type is not %q", says, c.kind)
		}
		if _, bad := errors.AsType[Invalid](c.err); !bad && !errors.Is(c.err, errDown) {
			t.Errorf("%s: it does not match its cause", says)
		}
		if c.err.Error() != c.text || Permanent(c.err) != c.permanent || Unsent(c.err) != c.unsent {
			t.Errorf("%s: %q, permanent %v, unsent %v", says, c.err, Permanent(c.err), Unsent(c.err))
		}
	}
}

func TestPermanentLooksThroughWrapping(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errDown: false, definite{true}: true, definite{false}: false,
		errors.Join(errDown, definite{true}): true,
	} {
		if Permanent(err) != want {
			t.Errorf("Permanent(%v) = %v", err, !want)
		}
	}
}

func TestACallWhoseConnectionWasNeverMadeWasNotSent(t *testing.T) {
	var d net.Dialer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.DialContext(ctx, "tcp", "127.0.0.1:1")
	if !Unsent(fmt.Errorf("client: %w", err)) || Unsent(&net.OpError{Op: "read", Err: errDown}) || Unsent(errDown) || Unsent(nil) {
		t.Errorf("Unsent(%v) = false, or true for an error after a connection was made", err)
	}
}

func TestUnsentFollowsTheMethodOfTheError(t *testing.T) {
	if !Unsent(fmt.Errorf("store: %w", sending{true})) || Unsent(sending{false}) || Unsent(definite{true}) {
		t.Error("Unsent does not return what the method Unsent of the error returns")
	}
}
