package rueidisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/rueidis"
)

type executor struct {
	client  client.Client
	cluster bool
	slot    int // of the key of a call to a cluster; -1: none
	*state
}

// state is shared by the copies of an executor.
type state struct {
	driver.Heard
	first     *first        // to the only server
	left      *atomic.Int32 // calls of Dedicate that nobody waits for any more
	nodes     nodes         // of a cluster
	closed    atomic.Bool   // the client has said that it is closed
	refreshes bool          // the client may refresh credentials; see translate for this and the next two
	sure      atomic.Bool   // there was an answer since the last call without one
	reached   atomic.Bool   // a connection was open once
	demoted   chan struct{} // holds one value: the right to look for another server
	connected time.Time     // when that was last done; guarded by demoted
}

func newExecutor(c client.Client) executor {
	s := &state{nodes: nodes{born: time.Now()}, demoted: make(chan struct{}, 1), left: new(atomic.Int32), refreshes: true}
	e := executor{c, c.Mode() == client.ClientModeCluster, -1, s}
	s.first = newFirst(func() client.Client { return c }, e.addr, s.left)
	if e.cluster {
		e.learn(oldAfter)
	}
	return e
}

// Clustered tells the family that a message may be heard on another node than the one that it was
// published on.
func (e executor) Clustered() bool { return e.cluster }

func (e executor) Do(ctx context.Context, args ...any) (any, error) { return e.Once(ctx, args...) }

// Once needs no more: rueidis repeats only what is marked as read-only or retryable. Calls share the dial of
// the first one, and fail with it when its ctx ends. They dial again, as nothing was sent. Without our dial
// they fail: an end by a deadline looks like a server that is too slow, and one by cancellation, once there was an
// answer, like credentials that could not be refreshed.
func (e executor) Once(ctx context.Context, args ...any) (any, error) {
	reply, err := e.send(ctx, args)
	for range maxAbandoned {
		if !errors.Is(err, errAbandoned) || driver.Ended(ctx) != nil {
			break
		}
		reply, err = e.send(ctx, args)
	}
	if err != nil && driver.IsDemoted(err) && !e.cluster {
		return e.elsewhere(ctx, args, err)
	}
	return reply, err
}

// maxAbandoned is how many further dials a call takes part in. Each is given up only if the call that began it
// has ended: so many one after another are a sign that the server can't be reached.
const maxAbandoned = 3

// elsewhere repeats a command that was not done because the server is a replica. All calls share
// one connection, so the first that gets the right to it ends it, and the others find the next one.
// While the name of the server leads nowhere else, that is done every reconnectEvery at most.
func (e executor) elsewhere(ctx context.Context, args []any, err error) (any, error) {
	select {
	case e.demoted <- struct{}{}:
		defer func() { <-e.demoted }()
	case <-ctx.Done():
		return nil, err
	}
	reply, err := e.send(ctx, args)
	if err == nil || !driver.IsDemoted(err) || time.Since(e.connected) < reconnectEvery || e.first.doubtful() {
		return reply, err
	}
	e.connected = time.Now()
	// rueidis has no call to close one connection, so the server does. It is noticed with the next command.
	for _, word := range []string{"QUIT", "PING"} {
		err := e.client.Do(ctx, command(e.client, []any{word})).NonRedisError()
		if errors.As(err, new(*driver.QuarantineError)) { // the Store decides what to send to another server
			return nil, e.translate(ctx, err)
		}
	}
	return e.send(ctx, args)
}

const reconnectEvery = 50 * time.Millisecond

func (e executor) send(ctx context.Context, args []any) (any, error) {
	if e.isClosed(ctx) {
		return nil, e.closing(ctx)
	}
	cmd, key := command(e.client, args), ""
	if e.cluster {
		var ok bool
		if key, ok = firstKey(args); ok {
			cmd = cmd.SetSlot(key)
			e.slot = int(cmd.Slot())
		}
		e.learn(oldAfter)
	}
	if err := e.reachOver(ctx, key); err != nil {
		return nil, err
	}
	var reply any
	err := e.over(ctx, func(c client.CommandClient) (err error) {
		reply, err = decode(c.Do(pipelined(ctx), cmd))
		return err
	})
	e.Note(err)
	if e.cluster && !isAnswer(err) {
		e.learn(soonest)
	}
	if err != nil {
		return nil, e.translate(ctx, err)
	}
	return reply, nil
}

// isClosed asks a client that has said it is closed whether it still is: a Sentinel's says so while
// its master changes. Calls that were under way are told the same as those that come later, so only
// after this is it known that nothing is sent.
func (e executor) isClosed(ctx context.Context) bool {
	if !e.closed.Load() {
		return false
	}
	if errors.Is(e.client.Do(ctx, command(e.client, []any{"PING"})).NonRedisError(), client.ErrClosing) {
		return true
	}
	e.closed.Store(false)
	return false
}

func (e executor) closing(ctx context.Context) error {
	if e.client.Mode() == client.ClientModeStandalone {
		return driver.NotSent(ctx, e.addr(), driver.Closed(client.ErrClosing))
	}
	// A Sentinel's client says so while its master changes, and a cluster's while a node leaves.
	return driver.NotSent(ctx, e.addr(), driver.Kind("closed", true, client.ErrClosing))
}

// addr is the address of the server, as far as the client tells it.
func (e executor) addr() string {
	if e.cluster {
		if f := e.nodes.at(e.slot); f != nil {
			return f.addr()
		}
		return ""
	}
	nodes := e.client.Nodes()
	for addr := range nodes {
		if len(nodes) == 1 {
			return addr
		}
	}
	return ""
}

// Endpoint is the address of a client for one server.
func (e executor) Endpoint() string { return e.addr() }

// command names no keys to the builder, so that a client for one server sends it over the first of
// its connections: commands with keys are strewn over all of them.
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

// pipelined hides the deadline of ctx, though not its end. A call with a deadline, which finds
// nobody else on the connection, would set it on the socket, and the connection be closed when it
// has passed, with the calls that have come meanwhile.
func pipelined(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); ok {
		return unhurried{ctx}
	}
	return ctx
}

type unhurried struct{ context.Context }

func (unhurried) Deadline() (time.Time, bool) { return time.Time{}, false }

// Pinned takes a connection from the pool that rueidis has for blocking commands.
func (e executor) Pinned(ctx context.Context, key string, fn func(driver.Conn) error) error {
	err := e.pin(ctx, key, fn)
	for range maxDemoted {
		if err == nil || !driver.IsDemoted(err) || driver.Ended(ctx) != nil {
			break
		}
		err = e.pin(ctx, key, fn)
	}
	return err
}

// maxDemoted is how many further connections of the pool are tried that may lead to a server which
// is a replica now.
const maxDemoted = 3

func (e executor) pin(ctx context.Context, key string, fn func(driver.Conn) error) error {
	if err := driver.Ended(ctx); err != nil {
		return driver.NotSent(ctx, e.addr(), err)
	}
	if e.isClosed(ctx) {
		return e.closing(ctx)
	}
	early, cancel := driver.Early(ctx)
	defer cancel()
	own, err := dedicate(early, e.left, e.client)
	if err != nil {
		return driver.NotSent(ctx, e.addr(), err)
	}
	c := &conn{executor: e, client: own.c}
	if e.cluster {
		of := e.ping(key)
		c.key, c.slot = key, int(of.Slot())
	}
	defer func() {
		if c.watching && !c.broken {
			_, _ = c.Pipeline(ctx, []any{"UNWATCH"}) // or the connection is thrown away
		}
		if c.watching || c.broken {
			go own.c.Close() // takes up to a second if the server does not answer
			return
		}
		own.giveBack()
	}()
	err = c.reach(ctx, func() error { return own.c.Do(patient(ctx), e.ping(c.key)).NonRedisError() })
	if err != nil {
		c.broken = true
		return err
	}
	return fn(c)
}

// taken is a connection of the pool for blocking commands, or none.
type taken struct {
	c       client.DedicatedClient
	release func()
}

func (t taken) giveBack() {
	if t.c != nil {
		t.release()
	}
}

// dedicate takes a connection out of the pool for blocking commands. Rueidis waits for one without a ctx. A
// cluster's client takes it later, with the first command.
func dedicate(ctx context.Context, left *atomic.Int32, from client.Client) (taken, error) {
	t, err := driver.Await(ctx, left, func() (taken, error) {
		c, release := from.Dedicate()
		return taken{c, release}, nil
	}, taken.giveBack)
	if err == nil || errors.Is(err, context.Canceled) {
		return t, err
	}
	return taken{}, driver.Kind("pool_exhausted", true, fmt.Errorf("the pool for blocking commands gave no connection (%w): "+
		"unless the server does not answer, give the locks a client of their own, or make the pool larger (BlockingPoolSize)", err))
}

type conn struct {
	executor
	client   client.DedicatedClient
	key      string // decides the node of a cluster; all commands of a connection are for it
	watching bool
	broken   bool
}

func (c *conn) Pipeline(ctx context.Context, commands ...[]any) ([]any, error) {
	if err := driver.Ended(ctx); err != nil {
		return nil, driver.NotSent(ctx, c.addr(), err)
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
	replies := make([]any, len(commands))
	for i, result := range c.client.DoMulti(patient(ctx), all...) {
		reply, err := decode(result)
		c.Note(err)
		refused := (*driver.ReplyError)(nil)
		switch {
		case errors.As(err, &refused):
			refused.Addr = c.addr()
			reply = refused
			c.broken = c.broken || driver.IsDemoted(refused)
		case err != nil:
			c.broken = true
			return nil, c.translate(ctx, err)
		}
		replies[i] = reply
		c.watching = driver.Watching(c.watching, commands[i], refused != nil)
	}
	return replies, nil
}

// patient is ctx without its cancellation if it has no deadline: that would make rueidis serve the connection by
// goroutines, and clean it up by a round trip of UNSUBSCRIBE and DISCARD when it is given back.
func patient(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); !ok {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// unopened takes an error for one of opening a connection, where it looks like one. Nothing was sent if the
// server refused HELLO, AUTH or SELECT, or if the dial failed. With [Quarantine], AUTH and INFO are a part of
// the dial. In two cases the outcome is unknown although nothing was sent:
//   - without [Quarantine], when HELLO ends by EOF or a timeout: the call may end in the same way;
//   - in a client that was made without [Open] and [Quarantine], when the TLS handshake takes too long.
func (e executor) unopened(ctx context.Context, err error) error {
	if reply, ok := errors.AsType[*driver.ReplyError](err); ok {
		reply.Addr = e.addr()
		return err
	}
	if refused := (*client.RedisError)(nil); errors.As(err, &refused) { // what rueidis sent by itself to open the connection
		return &driver.ReplyError{Addr: e.addr(), Text: opening(refused.Error()), Connecting: true}
	}
	ended := driver.Ended(ctx) != nil
	switch {
	case errors.Is(err, client.ErrClosing):
		e.closed.Store(true)
		err = driver.Kind("closed", false, err)
	// What is left of these is not ours: the call that was connecting has ended, or the connection
	// took too long. No connection that is open fails with Canceled, unless AuthCredentialsFn does.
	case !ended && (isGivenUp(err) || errors.Is(err, context.Canceled)):
		err = driver.Kind("abandoned", true, errAbandoned)
	case errors.Is(err, client.ErrNoCache): // the server refused CLIENT TRACKING
		err = driver.Connecting(err)
	case backends.Unsent(err): // the error of a dial says more than errSlow
	case !ended && errors.Is(err, context.DeadlineExceeded):
		err = errSlow
	}
	return driver.Fault(ctx, e.addr(), e.Explain(err))
}

// isGivenUp tells that the ctx of the call that dialled had ended.
func isGivenUp(err error) bool {
	u, ok := errors.AsType[undialled](err)
	return ok && u.ended
}

var (
	errSlow      = fmt.Errorf("connecting: %w", os.ErrDeadlineExceeded)
	errAbandoned = errors.New("connecting was given up by the call that began it")
)
