package simulation

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// fast are the commands of a node whose clock runs fast. The node ends a ttl early, and reports
// more time left than there is. The length of a reservation does not change: no promise depends on
// it.
type fast struct {
	commands
	rate float64
}

// lasts returns how long a ttl lasts.
func lasts(ttl time.Duration, rate float64) time.Duration {
	return time.Duration(float64(ttl) / (1 + rate))
}

func (f fast) ttl(ttl time.Duration) time.Duration { return max(lasts(ttl, f.rate), time.Millisecond) }

func (f fast) left(d time.Duration) time.Duration { return time.Duration(float64(d) * (1 + f.rate)) }

func (f fast) result(r result, err error) (result, error) {
	r.Left = f.left(r.Left)
	return r, err
}

func (f fast) SetNX(ctx context.Context, key, value string, ttl time.Duration) (result, error) {
	return f.result(f.commands.SetNX(ctx, key, value, f.ttl(ttl)))
}

func (f fast) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (result, error) {
	return f.result(f.commands.SetNXQueued(ctx, key, value, f.ttl(ttl), t))
}

func (f fast) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (result, error) {
	return f.result(f.commands.SetNXNumbered(ctx, key, value, f.ttl(ttl), t))
}

func (f fast) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (result, error) {
	return f.result(f.commands.SetNXFenced(ctx, key, value, f.ttl(ttl)))
}

func (f fast) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return f.commands.ExpireIf(ctx, key, value, f.ttl(ttl))
}

func (f fast) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (result, error) {
	return f.result(f.commands.Enter(ctx, key, token, f.ttl(ttl), a))
}

func (f fast) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	return f.commands.Renew(ctx, key, token, f.ttl(ttl))
}

func (f fast) Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (result, error) {
	return f.result(f.commands.Transfer(ctx, key, from, value, f.ttl(ttl), numbered))
}

func (f fast) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (result, error) {
	return f.result(f.commands.TransferHold(ctx, key, from, token, f.ttl(ttl), group, numbered))
}

func (f fast) Left(ctx context.Context, key string) (time.Duration, bool, error) {
	left, found, err := f.commands.Left(ctx, key)
	return f.left(left), found, err
}

func (f fast) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	return f.commands.Expire(ctx, key, f.ttl(ttl))
}

func (f fast) TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return f.commands.TxExpireIf(ctx, key, value, f.ttl(ttl))
}
