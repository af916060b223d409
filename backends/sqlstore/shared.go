package sqlstore

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Enter implements [backends.SharedStore]. It counts the holds of the key, so it takes longer the more
// there are.
func (s *PostgreSQL) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	name, us, err := s.prepareTTL(ctx, ttl, key, token, a.Group, inASCII(a.Waiter))
	if err != nil {
		return backends.Result{}, err
	}
	if err := a.Validate(); err != nil {
		return backends.Result{}, backends.Invalid(err.Error())
	}
	waiter, asked, err := s.position(key, a.Turn)
	if err != nil {
		return backends.Result{}, err
	}
	var outcome, number, left, place, holds, slot int64
	var holder string
	err = s.grant(ctx, key, token, ttl, &outcome,
		"SELECT outcome, number, left_us, place, "+holderText+", holds, slot, "+serverStarted+", "+transactionAge+" FROM lockstep.enter($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11)",
		[]any{name, []byte(token), us, []byte(a.Group), int64(a.Limit), a.Numbered, a.Slots, waiter, s.channel, a.InOrder, a.Reservation(ttl).Microseconds()},
		&number, &left, &place, &holder, &holds, &slot)
	asked(err == nil && outcome == done)
	if err != nil {
		return backends.Result{}, err
	}
	if outcome == refused {
		r := held(left, holder)
		r.Holds, r.Position = int(holds), int(place)
		return r, nil
	}
	return backends.Result{OK: true, Fence: uint64(number), Holds: int(holds), Room: a.Room(int(holds)), Slot: int(max(slot, 0))}, nil
}

// Renew implements [backends.SharedStore].
func (s *PostgreSQL) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	return s.extend(ctx, "renew", key, token, ttl)
}

// Leave implements [backends.SharedStore].
func (s *PostgreSQL) Leave(ctx context.Context, key, token string) (bool, error) {
	return s.end(ctx, "leave", key, token)
}
