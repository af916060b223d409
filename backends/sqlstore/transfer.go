package sqlstore

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Transfer implements [backends.TransferStore].
func (s *PostgreSQL) Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (backends.Result, error) {
	name, us, err := s.prepareTTL(ctx, ttl, key, from, value)
	if err != nil {
		return backends.Result{}, err
	}
	var outcome, number, left int64
	var holder string
	err = s.grant(ctx, key, value, ttl, &outcome, "SELECT outcome, number, left_us, "+holderText+", "+serverStarted+", "+transactionAge+" FROM lockstep.transfer($1,$2,$3,$4,$5)",
		[]any{name, []byte(from), []byte(value), us, numbered}, &number, &left, &holder)
	if err != nil || outcome == refused {
		return held(left, holder), err
	}
	s.own.drop(key, from)
	return backends.Result{OK: true, Fence: uint64(number)}, nil
}

// TransferHold implements [backends.SharedTransferStore].
func (s *PostgreSQL) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
	name, us, err := s.prepareTTL(ctx, ttl, key, from, token, group)
	if err != nil {
		return backends.Result{}, err
	}
	var outcome, number, left, holds, slot int64
	err = s.grant(ctx, key, token, ttl, &outcome, "SELECT outcome, number, left_us, holds, slot, "+serverStarted+", "+transactionAge+" FROM lockstep.transfer_hold($1,$2,$3,$4,$5,$6)",
		[]any{name, []byte(from), []byte(token), us, numbered, []byte(group)}, &number, &left, &holds, &slot)
	if err != nil || outcome == refused {
		r := held(left, "")
		r.Holds = int(holds)
		return r, err
	}
	s.own.drop(key, from)
	return backends.Result{OK: true, Fence: uint64(number), Holds: int(holds), Slot: int(max(slot, 0))}, nil
}
