package redisstore

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
)

// A lock goes from one token to another in one script:
//
//	Transfer      EVALSHA transfer.lua       SET key token PX ttl, if key holds the token that has it
//	TransferHold  EVALSHA transferhold.lua   ZADD the one token and ZREM the other, if that hold has not ended

// transfer is one call. The key has its prefix, and ms is the life of the key, or of the hold.
type transfer struct {
	key, from, token string
	ms               int64
	numbered, hold   bool
	group            string // of the hold
}

// Transfer implements [backends.TransferStore]. It is sent once.
func (s *Store) Transfer(ctx context.Context, key, from, token string, ttl time.Duration, numbered bool) (backends.Result, error) {
	return s.move(ctx, transfer{key: key, from: from, token: token, numbered: numbered}, ttl)
}

// TransferHold implements [backends.SharedTransferStore]. It is sent once.
func (s *Store) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
	return s.move(ctx, transfer{key: key, from: from, token: token, numbered: numbered, hold: true, group: group}, ttl)
}

func (s *Store) move(ctx context.Context, t transfer, ttl time.Duration) (backends.Result, error) {
	if err := s.scripts("transferred"); err != nil {
		return backends.Result{}, err
	}
	if err := s.granting(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	t.key, t.ms = s.config.prefix+t.key, lifeOfKey(ttl)
	if t.hold {
		t.ms = milliseconds(ttl)
	}
	return s.ops.transfer(ctx, s.line, t)
}

// call returns the script, its keys and its arguments.
func (t transfer) call() (scripts.Script, []any) {
	script, names := scripts.Transfer, []any{t.from, t.token}
	switch {
	case t.hold && t.numbered:
		script = scripts.TransferHoldNumbered
	case t.hold:
		script = scripts.TransferHold
	case t.numbered:
		script = scripts.TransferNumbered
	}
	if t.hold {
		names = []any{holdName(t.from), holdName(t.token)}
	}
	keys := []any{t.key}
	if t.numbered {
		keys = append(keys, fenceKey(t.key))
	}
	return script, append(append(keys, names...), t.ms, byClock, t.group)
}
