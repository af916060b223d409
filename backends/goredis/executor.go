package goredis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/prompt"
	client "github.com/redis/go-redis/v9"
)

type executor struct {
	client Client
	heard  *driver.Heard
	ample  *ample
}

func newExecutor(c Client) executor {
	return executor{c, &driver.Heard{First: "HELLO"}, &ample{born: time.Now()}}
}

func (e executor) Do(ctx context.Context, args ...any) (any, error) {
	value, err := e.process(ctx, args, false)
	if driver.Elsewhere(err) {
		return e.elsewhere(ctx, err, func() (any, error) { return e.process(ctx, args, false) })
	}
	return value, err
}

func (e executor) Once(ctx context.Context, args ...any) (any, error) {
	value, err := e.process(ctx, args, true)
	if driver.Elsewhere(err) {
		return e.elsewhere(ctx, err, func() (any, error) { return e.process(ctx, args, true) })
	}
	return value, err
}

type processor interface {
	Process(ctx context.Context, cmd client.Cmder) error
}

// send leaves the pool for commands when waiting ends, and has until the deadline of ctx for what
// it has sent.
func (e executor) send(ctx, waiting context.Context, to processor, args []any, isOnce bool) (any, error) {
	cmd := newCommand(waiting, args)
	var err error
	if isOnce {
		err = to.Process(waiting, once{cmd})
	} else {
		err = to.Process(waiting, cmd)
	}
	if err != nil {
		err = e.noted(e.translate(ctx, args, err, cmd.isUnwritten()))
		if !isOnce && !cmd.isUnwritten() {
			err = driver.Repeated(err)
		}
	}
	e.heard.Note(err)
	if err != nil {
		return nil, err
	}
	return reply(cmd.Val()), nil
}

// elsewhere repeats what was not done because the server is a replica, or the connection had ended
// while it was idle. The connection is closed, and those beside it in the pool may be like it: they
// are used up until one leads to a master, or a new one is made.
func (e executor) elsewhere(ctx context.Context, err error, do func() (any, error)) (value any, _ error) {
	pool, ok := e.client.(interface{ PoolStats() *client.PoolStats })
	if !ok {
		return nil, err
	}
	stats := pool.PoolStats()
	left := stats.IdleConns + 1
	if driver.IsUnused(err) { // all may be dead, and others return theirs meanwhile
		left = stats.TotalConns + 1
	}
	for ; left > 0 && driver.Elsewhere(err) && driver.Ended(ctx) == nil; left-- {
		value, err = do()
	}
	return value, err
}

// command tells whether go-redis has begun to write it, in whichever try. Go-redis asks for the
// arguments when it writes, on a connection that is ready: after the dial, the handshakes of TLS
// and HELLO, AUTH, SELECT and OnConnect. Its value is unwritten until then. A hook that asks for
// the arguments as well, or a ClusterClient, which finds the node by them, hides that nothing was
// written: then only the error of a dial says so, and other errors while a connection is opened are
// unknown outcomes.
type command struct{ *client.Cmd }

var unwritten any = struct{ unwritten bool }{}

func newCommand(ctx context.Context, args []any) command {
	cmd := client.NewCmd(ctx, args...)
	cmd.SetVal(unwritten)
	return command{cmd}
}

func (c command) Args() []any {
	if c.isUnwritten() {
		c.SetVal(nil)
	}
	return c.Cmd.Args()
}

func (c command) isUnwritten() bool { return c.Cmd.Val() == unwritten }

// Val is the reply.
func (c command) Val() any {
	if c.isUnwritten() {
		return nil
	}
	return c.Cmd.Val()
}

// once is a command that go-redis does not send again, nor a pipeline that it is in.
type once struct{ command }

func (once) NoRetry() bool { return true }

// Pinned uses Watch for the connection that it brings, and lets it watch nothing: WATCH is sent
// like everything else. A cluster may have moved the key since its client has looked; then it looks
// again.
func (e executor) Pinned(ctx context.Context, key string, fn func(driver.Conn) error) error {
	err := e.pinned(ctx, key, fn)
	if driver.Elsewhere(err) {
		_, err = e.elsewhere(ctx, err, func() (any, error) { return nil, e.pinned(ctx, key, fn) })
	}
	return err
}

func (e executor) pinned(ctx context.Context, key string, fn func(driver.Conn) error) error {
	for attempt := 1; ; attempt++ {
		err := e.pin(ctx, key, fn)
		if !driver.IsMoved(err) || attempt == maxMoves {
			return e.noted(err)
		}
		if cluster, ok := e.client.(cluster); ok { // ForEachMaster asks the cluster anew
			_ = cluster.ForEachMaster(ctx, func(context.Context, *client.Client) error { return nil })
		}
	}
}

const maxMoves = 4

// cluster is what a ClusterClient has besides. It finds the server itself: Watch would send a WATCH
// first to learn which it is.
type cluster interface {
	MasterForKey(ctx context.Context, key string) (*client.Client, error)
	ForEachMaster(ctx context.Context, fn func(context.Context, *client.Client) error) error
	ReloadState(ctx context.Context)
}

// noted passes an error on. A server of a cluster that does not answer may have been replaced: the
// client would ask the others only once a minute.
func (e executor) noted(err error) error {
	if cluster, ok := e.client.(cluster); ok && err != nil && !errors.As(err, new(*driver.ReplyError)) {
		cluster.ReloadState(context.Background()) // in the background, at most five times a second
	}
	return err
}

func (e executor) pin(ctx context.Context, key string, fn func(driver.Conn) error) error {
	one := e.client
	if cluster, ok := e.client.(cluster); ok {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return driver.NotSent(ctx, "", err)
		}
		one = master
	}
	var own error
	err := one.Watch(ctx, func(tx *client.Tx) error {
		c := &conn{executor: e, key: key, tx: tx}
		own = fn(c)
		switch {
		case driver.IsDemoted(own) && c.used:
			// without an answer to the second the connection is thrown away
			_, _ = c.Pipeline(ctx, []any{"QUIT"}, []any{"PING"})
		default:
			c.unwatch(ctx)
		}
		return own
	})
	if err == nil || err == own { //nolint:errorlint // the very same: fn's error is passed on as it is
		return err
	}
	return e.translate(ctx, []any{"", key}, err, true)
}

type conn struct {
	executor
	key      string
	tx       *client.Tx
	watching bool
	used     bool // a pipeline was answered
}

// Pipeline takes the connection when it is first called. Until then, commands that keep or end a hold may go
// over the pool for pipelines: those of one call are on one connection there too.
func (c *conn) Pipeline(ctx context.Context, commands ...[]any) (replies []any, err error) {
	args := []any{"", c.key}
	p := c.poolOf(ctx, args)
	if c.used || p == nil || c.ample.has(p, !c.Clustered()) {
		return c.pipeline(ctx, ctx, c.tx.Pipeline(), commands)
	}
	full, err := c.take(ctx, p, args, slices.ContainsFunc(commands, driver.Keeps), func(waiting context.Context) (err error) {
		replies, err = c.pipeline(ctx, waiting, c.tx.Pipeline(), commands)
		return err
	})
	if full {
		replies, err = c.pipeline(ctx, ctx, p.Pipeline(), commands)
		c.used = false
	}
	return replies, err
}

func (c *conn) pipeline(ctx, waiting context.Context, p client.Pipeliner, commands [][]any) ([]any, error) {
	cmds := make([]client.Cmder, len(commands))
	for i, args := range commands {
		cmds[i] = once{newCommand(waiting, args)}
		_ = p.Process(waiting, cmds[i])
	}
	_, whole := p.Exec(waiting)
	replies := make([]any, len(commands))
	for i, cmd := range cmds {
		value, err := c.answer(ctx, []any{"", c.key}, cmd.(once), whole)
		if c.used && driver.IsUnused(err) { // but the connection was used before
			err = driver.Fault(ctx, "", errors.New(err.Error()))
		}
		refused := (*driver.ReplyError)(nil)
		switch {
		case errors.As(err, &refused):
			replies[i] = refused
		case err != nil:
			return nil, err
		default:
			replies[i] = value
		}
		c.watching = driver.Watching(c.watching, commands[i], refused != nil)
	}
	c.used = true
	return replies, nil
}

// unwatch is for go-redis, which gives connections back as they are: what they watch could fail the
// next transaction.
func (c *conn) unwatch(ctx context.Context) {
	if c.watching {
		_, _ = c.Pipeline(ctx, []any{"UNWATCH"}) // without an answer the connection is thrown away
	}
}

// reply makes a list of a map, as RESP2 would have sent it.
func reply(value any) any {
	pairs, ok := value.(map[any]any)
	if !ok {
		return value
	}
	list := make([]any, 0, 2*len(pairs))
	for k, v := range pairs {
		list = append(list, k, v)
	}
	return list
}

// translate puts an error into the terms of the family. It is nil for a nil reply. Args are those
// of the command, of which nothing was written if it is unwritten.
func (e executor) translate(ctx context.Context, args []any, err error, unwritten bool) error {
	switch {
	case err == nil, errors.Is(err, client.Nil):
		return nil
	case errors.As(err, new(*driver.ReplyError)):
		return err
	}
	if reply := (client.Error)(nil); errors.As(err, &reply) {
		return &driver.ReplyError{Addr: e.addr(args), Text: reply.Error(), Connecting: unwritten}
	}
	switch {
	case errors.Is(err, client.ErrClosed) && e.Clustered(): // may be one node, which the cluster has lost
		err = driver.Kind("closed", true, err)
	case errors.Is(err, client.ErrClosed):
		err = driver.Closed(err)
	case errors.Is(err, client.ErrPoolExhausted), errors.Is(err, client.ErrPoolTimeout):
		err = e.exhausted(ctx, args, err)
	case strings.HasPrefix(err.Error(), "redis: all sentinels specified in configuration are unreachable"):
		err = driver.Kind("sentinels_unreachable", true, err)
	case isProtocol(err):
		err = driver.Kind("protocol", false, err)
	}
	if err = e.heard.Explain(err); unwritten {
		return driver.NotSent(ctx, e.addr(args), err)
	}
	return driver.Fault(ctx, e.addr(args), err)
}

// isProtocol tells that go-redis did not understand a reply.
func isProtocol(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "redis: can't ") || strings.HasPrefix(text, "redis: invalid ")
}

// addr is the address of the server for a command, as far as the client tells it. It sends nothing.
func (e executor) addr(args []any) string {
	one := e.client
	if cluster, ok := e.client.(cluster); ok {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		master, err := cluster.MasterForKey(ended, keyOf(args))
		if err != nil {
			return ""
		}
		one = master
	}
	c, ok := one.(interface{ Options() *client.Options })
	if !ok || c.Options().Addr == "FailoverClient" { // the master that the sentinels name
		return ""
	}
	return c.Options().Addr
}

// Endpoint is the address of a client for one server.
func (e executor) Endpoint() string {
	if e.Clustered() {
		return ""
	}
	return e.addr(nil)
}

// Prompt tells that a call ends by the timeouts of the client. The deadline of its ctx would not do,
// since the call may share a round trip with one that has more time.
func (e executor) Prompt() bool {
	switch c := e.client.(type) {
	case interface{ Options() *client.Options }:
		o := c.Options()
		return isShort(o.ReadTimeout) && isShort(o.WriteTimeout)
	case interface{ Options() *client.ClusterOptions }:
		o := c.Options()
		return isShort(o.ReadTimeout) && isShort(o.WriteTimeout)
	}
	return false
}

func isShort(timeout time.Duration) bool { return timeout > 0 && timeout <= prompt.Overrun }

// Clustered tells that a PUBLISH reaches those who are connected to other servers.
func (e executor) Clustered() bool {
	_, is := e.client.(cluster)
	return is
}
