package rueidisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/rueidis"
)

// When rueidis fails to refresh the credentials of an open connection (AuthCredentials.RefreshAfter), it ends
// the connection, and all commands on it, with the error of AuthCredentialsFn or the reply to AUTH. Such an
// error looks like one of a dial or an opening. So it tells nothing of the outcome, unless a PING had it, or our
// dial.

// translate puts the error of a call into the terms of the family. The next call is preceded by a PING.
func (e executor) translate(ctx context.Context, err error) error {
	told := e.unopened(ctx, err)
	if !e.refreshes || errors.As(err, new(*driver.ReplyError)) {
		return told
	}
	e.sure.Store(false)
	if errors.As(err, new(undialled)) || errors.Is(err, client.ErrNoCache) || !backends.Unsent(told) && !backends.Permanent(told) {
		return told
	}
	return driver.Fault(ctx, e.addr(), unclear(told))
}

// reach returns why a connection can't be used, as far as that is in doubt. Nothing was sent then but ping.
func (e executor) reach(ctx context.Context, ping func() error) error {
	if !e.refreshes || e.sure.Load() {
		return nil
	}
	err := ping()
	switch {
	case err == nil:
		e.sure.Store(true)
		e.reached.Store(true)
		return nil
	case errors.Is(err, client.ErrClosing):
		return nil // the call finds it out
	}
	told := e.unopened(ctx, err)
	if e.reached.Load() && errors.As(err, new(*client.RedisError)) {
		told = unclear(told) // not permanent: other credentials may come
	}
	return driver.NotSent(ctx, e.addr(), told)
}

// reachOver is reach for the connection that all calls share.
func (e executor) reachOver(ctx context.Context, key string) error {
	return e.reach(ctx, func() error {
		return e.over(ctx, func(c client.CommandClient) error { return c.Do(pipelined(ctx), e.ping(key)).NonRedisError() })
	})
}

// ping goes to the node of key in a cluster.
func (e executor) ping(key string) client.Completed {
	ping := command(e.client, []any{"PING"})
	if key != "" {
		ping = ping.SetSlot(key)
	}
	return ping
}

// unclear is told without what it says of the outcome.
func unclear(told error) error {
	text := strings.Replace(told.Error(), "; nothing was sent", "", 1)
	if w, ok := errors.AsType[*driver.WireError](told); ok {
		text = w.Err.Error()
	}
	u := unclearError{text: text}
	errors.As(told, &u.typed)
	return u
}

type unclearError struct {
	text  string
	typed interface{ ErrorType() string }
}

func (u unclearError) Error() string     { return u.text }
func (u unclearError) ErrorType() string { return u.typed.ErrorType() }

// undialled is the error of our own dial.
type undialled struct {
	error
	ended bool // the ctx of the call that dialled
}

func (u undialled) Unwrap() error { return u.error }
