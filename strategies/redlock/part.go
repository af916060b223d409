package redlock

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
)

// part is the part of one node in an attempt: what the node has answered, and who cleans up after
// it. The mutex of the attempt guards it.
type part struct {
	*node
	said    response
	late    context.Context  // done when what was sent can't arrive any more; nil: nobody knows
	slot    bool             // reserved for a cleanup, as long as nobody has decided who cleans up
	missed  bool             // the release waits no longer for the answer
	waiting []func(response) // releases that wait for the answer, and Drain
}

type response byte

const (
	silent    response = iota
	held               // by someone else
	untouched          // nothing was sent, or the error is permanent
	unknown            // an error: the node may have the token, now or later
	granted
)

// responseOf is what an answer to Acquire says.
func responseOf(err error) response {
	switch inner, nested := errors.AsType[*QuorumError](err); {
	case err == nil:
		return granted
	case nested && !inner.Unsent(): // some of its nodes may have the token: the node leaves them to this quorum
		return unknown
	case errors.Is(err, locker.ErrHeld):
		return held
	case backends.Permanent(err) || backends.Unsent(err):
		return untouched
	}
	return unknown
}

// free gives the slot back: no cleanup is needed, or a release cleans up.
func (p *part) free() {
	if p.slot {
		p.slot = false
		p.server.Free()
	}
}

// clean begins a cleanup of the node, in the slot if there still is one.
func (p *part) clean(ctx context.Context, e cleanup.Entry) {
	if p.slot {
		p.slot = false
		p.server.Keep(ctx, e)
	} else {
		p.server.Add(ctx, e)
	}
}
