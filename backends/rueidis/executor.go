package rueidis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/lockstep-go/lockstep/backends/redis"
	client "github.com/redis/rueidis"
)

type executor struct {
	client  client.Client
	cluster bool
}

func newExecutor(c client.Client) executor {
	return executor{c, c.Mode() == client.ClientModeCluster}
}

// Clustered tells the family that a message may be heard on another node than the one that it was published on.
func (e executor) Clustered() bool { return e.cluster }

func (e executor) Do(ctx context.Context, args ...any) (any, error) { return e.Once(ctx, args...) }

// Once needs no more: rueidis repeats only what is marked as read-only or retryable.
func (e executor) Once(ctx context.Context, args ...any) (any, error) {
	cmd := command(e.client, args)
	if e.cluster {
		if key, ok := firstKey(args); ok {
			cmd = cmd.SetSlot(key)
		}
	}
	reply, err := decode(e.client.Do(pipelined(ctx), cmd))
	if err != nil {
		return nil, translate(ctx, err)
	}
	return reply, nil
}

// command names no keys to the builder, so that a client for one server sends it over the first of its connections: commands
// with keys are strewn over all of them.
func command(builder client.CommandClient, args []any) client.Completed {
	c := builder.B().Arbitrary(text(args[0]))
	for _, arg := range args[1:] {
		c = c.Args(text(arg))
	}
	return c.Build()
}

func text(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case int64:
		return strconv.FormatInt(arg, 10)
	case int:
		return strconv.Itoa(arg)
	}
	return fmt.Sprint(arg)
}

// firstKey is what decides the node of a cluster. Commands that have none may go to any.
func firstKey(args []any) (string, bool) {
	at := 1
	switch args[0] {
	case "EVALSHA", "EVAL":
		if text(args[2]) == "0" {
			return "", false
		}
		at = 3
	case "INFO", "CONFIG", "TIME", "WAIT", "PING":
		return "", false
	}
	if at >= len(args) {
		return "", false
	}
	return text(args[at]), true
}

// pipelined hides the deadline of ctx, though not its end. A call with a deadline, which finds nobody else on the connection,
// would set it on the socket, and the connection be closed when it has passed, with the calls that have come meanwhile.
func pipelined(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); ok {
		return unhurried{ctx}
	}
	return ctx
}

type unhurried struct{ context.Context }

func (unhurried) Deadline() (time.Time, bool) { return time.Time{}, false }

// Pinned takes a connection from the pool that rueidis has for blocking commands.
func (e executor) Pinned(ctx context.Context, key string, fn func(redis.Conn) error) error {
	if err := redis.Ended(ctx); err != nil {
		return err
	}
	dedicated, release := e.client.Dedicate()
	c := &conn{client: dedicated}
	if e.cluster {
		c.key = key
	}
	defer func() {
		if c.watching && !c.broken {
			_, _ = c.Pipeline(ctx, []any{"UNWATCH"}) // or the connection is thrown away
		}
		if c.watching || c.broken {
			go dedicated.Close() // takes up to a second if the server does not answer
			return
		}
		release()
	}()
	return fn(c)
}

type conn struct {
	client   client.DedicatedClient
	key      string // decides the node of a cluster; all commands of a connection are for it
	watching bool
	broken   bool
}

func (c *conn) Pipeline(ctx context.Context, commands ...[]any) ([]any, error) {
	if err := redis.Ended(ctx); err != nil {
		return nil, err
	}
	if len(commands) == 0 {
		return nil, nil
	}
	all := make([]client.Completed, len(commands))
	for i, args := range commands {
		all[i] = command(c.client, args)
		if c.key != "" {
			all[i] = all[i].SetSlot(c.key)
		}
	}
	// A ctx that can be cancelled but has no deadline would make rueidis serve the connection by goroutines, and clean it up by
	// a round trip of UNSUBSCRIBE and DISCARD when it is given back.
	patient := ctx
	if _, ok := ctx.Deadline(); !ok {
		patient = context.WithoutCancel(ctx)
	}
	replies := make([]any, len(commands))
	for i, result := range c.client.DoMulti(patient, all...) {
		reply, err := decode(result)
		refused := (*redis.ReplyError)(nil)
		switch {
		case errors.As(err, &refused):
			reply = refused
		case err != nil:
			c.broken = true
			return nil, translate(ctx, err)
		}
		replies[i] = reply
		switch commands[i][0] {
		case "WATCH":
			c.watching = true
		case "EXEC", "DISCARD", "UNWATCH":
			c.watching = refused != nil
		}
	}
	return replies, nil
}

// translate puts an error into the terms of the family.
func translate(ctx context.Context, err error) error {
	if errors.As(err, new(*redis.ReplyError)) {
		return err
	}
	if refused := (*client.RedisError)(nil); errors.As(err, &refused) { // what rueidis sent by itself to open the connection
		return &redis.ReplyError{Text: refused.Error()}
	}
	if end := redis.Ended(ctx); end != nil {
		if errors.Is(err, end) {
			return err
		}
		return fmt.Errorf("%w: %w", end, err)
	}
	// What is left of these is not ours: the call that was connecting has ended, or the connection took too long.
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errSlow
	case errors.Is(err, context.Canceled):
		return errAbandoned
	}
	return err
}

var (
	errSlow      = fmt.Errorf("connecting: %w", os.ErrDeadlineExceeded)
	errAbandoned = errors.New("connecting was given up by the call that began it")
)
