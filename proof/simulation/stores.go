package simulation

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/internal/starting"
)

// A link is a store of every kind: each method is one message.

type result = backends.Result

var (
	_ starting.Store         = (*link)(nil)
	_ backends.NumberedStore = (*link)(nil)
	_ backends.FencedStore   = (*link)(nil)
	_ backends.OrderedStore  = (*link)(nil)
	_ backends.LegacyStore   = (*link)(nil)

	_ backends.TransferStore       = (*link)(nil)
	_ backends.SharedTransferStore = (*link)(nil)
)

// at is the ctx of the node itself: it carries out each message that has arrived.
var at = context.Background()

func granted(res result, err error) answer { return answer{result: res, ok: res.OK, err: err} }
func did(ok bool, err error) answer        { return answer{ok: ok, err: err} }

func (l *link) SetNX(ctx context.Context, key, value string, ttl time.Duration) (result, error) {
	ttl = l.ttl(ttl)
	a := l.ask(ctx, Message{Op: "SetNX", Key: key, Token: value, TTL: ttl}, func(c commands) answer {
		return granted(c.SetNX(at, key, value, ttl))
	})
	return a.result, a.err
}

func (l *link) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	ttl = l.ttl(ttl)
	a := l.ask(ctx, Message{Op: "ExpireIf", Key: key, Token: value, TTL: ttl}, func(c commands) answer {
		return did(c.ExpireIf(at, key, value, ttl))
	})
	return a.ok, a.err
}

func (l *link) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	a := l.ask(ctx, Message{Op: "DeleteIf", Key: key, Token: value}, func(c commands) answer {
		return did(c.DeleteIf(at, key, value))
	})
	return a.ok, a.err
}

// Self, StartSetNX and StartDeleteIf are for a quorum.
func (l *link) Self() backends.Store { return l }

func (l *link) StartSetNX(ctx context.Context, key, value string, ttl time.Duration, then func(result, error)) {
	stack.Go(func() (result, error) { return l.SetNX(ctx, key, value, ttl) }, errGone, then)
}

func (l *link) StartDeleteIf(ctx context.Context, key, value string, then func(bool, error)) {
	stack.Go(func() (bool, error) { return l.DeleteIf(ctx, key, value) }, errGone, then)
}

var errGone = errors.New("its goroutine was ended")

func (l *link) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (result, error) {
	a := l.ask(ctx, Message{Op: "SetNXFenced", Key: key, Token: value, TTL: ttl}, func(c commands) answer {
		return granted(c.SetNXFenced(at, key, value, ttl))
	})
	return a.result, a.err
}

func (l *link) RaiseFence(ctx context.Context, key, value string, to uint64) (bool, error) {
	a := l.ask(ctx, Message{Op: "RaiseFence", Key: key, Token: value}, func(c commands) answer {
		a := did(c.RaiseFence(at, key, value, to))
		a.text = ", to " + strconv.FormatUint(to, 10)
		return a
	})
	return a.ok, a.err
}

// Enter asks in the queue, as package redisstore does.
func (l *link) Enter(ctx context.Context, key, token string, ttl time.Duration, adm backends.Admission) (result, error) {
	mine := l.turnOf(adm.Waiter)
	if mine != nil {
		mine.asked.Store(true)
	}
	ttl = l.ttl(ttl)
	a := l.ask(ctx, Message{Op: "Enter", Key: key, Token: token, TTL: ttl, Waiter: adm.Waiter, Group: adm.Group, Limit: adm.Limit, InOrder: adm.InOrder, RoundTrip: adm.RoundTrip}, func(c commands) answer {
		return granted(c.Enter(at, key, token, ttl, adm))
	})
	l.asked(mine, a)
	return a.result, a.err
}

func (l *link) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	a := l.ask(ctx, Message{Op: "Renew", Key: key, Token: token, TTL: ttl}, func(c commands) answer {
		return did(c.Renew(at, key, token, ttl))
	})
	return a.ok, a.err
}

func (l *link) Leave(ctx context.Context, key, token string) (bool, error) {
	a := l.ask(ctx, Message{Op: "Leave", Key: key, Token: token}, func(c commands) answer {
		return did(c.Leave(at, key, token))
	})
	return a.ok, a.err
}

func (l *link) Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (result, error) {
	ttl = l.ttl(ttl)
	a := l.ask(ctx, Message{Op: "Transfer", Key: key, Token: value, TTL: ttl}, func(c commands) answer {
		return granted(c.Transfer(at, key, from, value, ttl, numbered))
	})
	return a.result, a.err
}

func (l *link) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (result, error) {
	ttl = l.ttl(ttl)
	a := l.ask(ctx, Message{Op: "TransferHold", Key: key, Token: token, TTL: ttl}, func(c commands) answer {
		return granted(c.TransferHold(at, key, from, token, ttl, group, numbered))
	})
	return a.result, a.err
}

// The plain commands.

func (l *link) MaxTTL() time.Duration { return maxTTL }

func (l *link) SetNXForever(ctx context.Context, key, value string) (bool, error) {
	a := l.ask(ctx, Message{Op: "SetNXForever", Key: key, Token: value}, func(c commands) answer {
		return did(c.SetNXForever(at, key, value))
	})
	return a.ok, a.err
}

func (l *link) Get(ctx context.Context, key string) (string, bool, error) {
	a := l.ask(ctx, Message{Op: "Get", Key: key}, func(c commands) answer {
		value, found, err := c.Get(at, key)
		return answer{ok: found, text: value, err: err}
	})
	return a.text, a.ok, a.err
}

func (l *link) GetSet(ctx context.Context, key, value string) (string, bool, error) {
	a := l.ask(ctx, Message{Op: "GetSet", Key: key, Token: value}, func(c commands) answer {
		old, found, err := c.GetSet(at, key, value)
		return answer{ok: found, text: old, err: err}
	})
	return a.text, a.ok, a.err
}

func (l *link) Left(ctx context.Context, key string) (time.Duration, bool, error) {
	a := l.ask(ctx, Message{Op: "Left", Key: key}, func(c commands) answer {
		left, found, err := c.Left(at, key)
		return answer{ok: found, left: left, err: err}
	})
	return a.left, a.ok, a.err
}

func (l *link) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	a := l.ask(ctx, Message{Op: "Expire", Key: key, TTL: ttl}, func(c commands) answer {
		return did(c.Expire(at, key, ttl))
	})
	return a.ok, a.err
}

func (l *link) Delete(ctx context.Context, key string) (bool, error) {
	a := l.ask(ctx, Message{Op: "Delete", Key: key}, func(c commands) answer {
		return did(c.Delete(at, key))
	})
	return a.ok, a.err
}

func (l *link) TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	a := l.ask(ctx, Message{Op: "TxExpireIf", Key: key, Token: value, TTL: ttl}, func(c commands) answer {
		return did(c.TxExpireIf(at, key, value, ttl))
	})
	return a.ok, a.err
}

func (l *link) TxDeleteIf(ctx context.Context, key, value string) (bool, error) {
	a := l.ask(ctx, Message{Op: "TxDeleteIf", Key: key, Token: value}, func(c commands) answer {
		return did(c.TxDeleteIf(at, key, value))
	})
	return a.ok, a.err
}

func (l *link) GetBit(ctx context.Context, key string, offset uint32) (bool, error) {
	a := l.ask(ctx, Message{Op: "GetBit", Key: key}, func(c commands) answer {
		return did(c.GetBit(at, key, offset))
	})
	return a.ok, a.err
}

func (l *link) SetBit(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
	op := "SetBit off"
	if on {
		op = "SetBit on"
	}
	a := l.ask(ctx, Message{Op: op, Key: key}, func(c commands) answer {
		return did(c.SetBit(at, key, offset, on))
	})
	return a.ok, a.err
}

// ttl returns the ttl to send. A defect changes it.
func (l *link) ttl(ttl time.Duration) time.Duration {
	if l.lasting == nil {
		return ttl
	}
	return l.lasting(ttl)
}
