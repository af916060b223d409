package backendtest

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
)

var legacyDoubles = slices.Concat(legacySetDoubles, legacyExpireDoubles, legacyTxDoubles, legacyBitDoubles, legacyErrorDoubles,
	legacyManyDoubles)

// legacyDouble is a memory store with some commands replaced.
type legacyDouble struct {
	*memory.LegacyStore
	setNXForever func(ctx context.Context, key, value string) (bool, error)
	get          func(ctx context.Context, key string) (string, bool, error)
	getSet       func(ctx context.Context, key, value string) (string, bool, error)
	left         func(ctx context.Context, key string) (time.Duration, bool, error)
	expire       func(ctx context.Context, key string, ttl time.Duration) (bool, error)
	delete       func(ctx context.Context, key string) (bool, error)
	txExpireIf   func(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	txDeleteIf   func(ctx context.Context, key, value string) (bool, error)
	getBit       func(ctx context.Context, key string, offset uint32) (bool, error)
	setBit       func(ctx context.Context, key string, offset uint32, on bool) (bool, error)
}

func (d legacyDouble) SetNXForever(ctx context.Context, key, value string) (bool, error) {
	if d.setNXForever != nil {
		return d.setNXForever(ctx, key, value)
	}
	return d.LegacyStore.SetNXForever(ctx, key, value)
}

func (d legacyDouble) Get(ctx context.Context, key string) (string, bool, error) {
	if d.get != nil {
		return d.get(ctx, key)
	}
	return d.LegacyStore.Get(ctx, key)
}

func (d legacyDouble) GetSet(ctx context.Context, key, value string) (string, bool, error) {
	if d.getSet != nil {
		return d.getSet(ctx, key, value)
	}
	return d.LegacyStore.GetSet(ctx, key, value)
}

func (d legacyDouble) Left(ctx context.Context, key string) (time.Duration, bool, error) {
	if d.left != nil {
		return d.left(ctx, key)
	}
	return d.LegacyStore.Left(ctx, key)
}

func (d legacyDouble) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if d.expire != nil {
		return d.expire(ctx, key, ttl)
	}
	return d.LegacyStore.Expire(ctx, key, ttl)
}

func (d legacyDouble) Delete(ctx context.Context, key string) (bool, error) {
	if d.delete != nil {
		return d.delete(ctx, key)
	}
	return d.LegacyStore.Delete(ctx, key)
}

func (d legacyDouble) TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	if d.txExpireIf != nil {
		return d.txExpireIf(ctx, key, value, ttl)
	}
	return d.LegacyStore.TxExpireIf(ctx, key, value, ttl)
}

func (d legacyDouble) TxDeleteIf(ctx context.Context, key, value string) (bool, error) {
	if d.txDeleteIf != nil {
		return d.txDeleteIf(ctx, key, value)
	}
	return d.LegacyStore.TxDeleteIf(ctx, key, value)
}

func (d legacyDouble) GetBit(ctx context.Context, key string, offset uint32) (bool, error) {
	if d.getBit != nil {
		return d.getBit(ctx, key, offset)
	}
	return d.LegacyStore.GetBit(ctx, key, offset)
}

func (d legacyDouble) SetBit(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
	if d.setBit != nil {
		return d.setBit(ctx, key, offset, on)
	}
	return d.LegacyStore.SetBit(ctx, key, offset, on)
}
