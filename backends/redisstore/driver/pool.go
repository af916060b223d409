package driver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Pool is a client library that hands out connections. [OverPool] makes an Executor of it, so an
// adapter for such a library is a Pool and nothing more. Package redigo has an example.
type Pool interface {
	// Get takes a connection out of the pool, or opens one. It ends with ctx.
	Get(ctx context.Context) (PoolConn, error)

	// Dial opens a connection for wake-ups, which the pool does not count. Its Receive waits
	// without a limit.
	Dial(ctx context.Context) (PoolConn, error)

	// Cut closes a connection of Get at once. A call that is under way on it ends.
	Cut(c PoolConn)

	// IdleCount is how many connections in the pool are not in use.
	IdleCount() int

	// Translate makes a [*ReplyError] of an error reply of the server. [Kind] and [Closed] give
	// other errors of the library their word.
	Translate(err error) error
}

// Bounded is a Pool that an application can use up. Commands that keep or end a hold then have
// connections of their own.
type Bounded interface {
	Pool

	// Room is how much of the pool is in use.
	Room() Room

	// Beside opens a connection like those of Get, which the pool does not count. Close closes it.
	Beside(ctx context.Context) (PoolConn, error)
}

// PoolConn is a connection. One goroutine uses it at a time.
type PoolConn interface {
	// Send writes a command. Flush sends what is still buffered.
	Send(name string, args ...any) error
	Flush() error

	// Receive returns the next reply: nil, an int64, a string, a []byte, or a []any of replies,
	// where an error is an error reply. If err is no error reply, the connection is not usable.
	Receive() (reply any, err error)

	// Close gives the connection back to the pool. One that broke or was cut is not used again.
	Close() error
}

// dialLimit bounds the opening of a connection for wake-ups, whose ctx may last for hours.
const dialLimit = 5 * time.Second

// OverPool returns an Executor that sends commands over connections of p, which lead to the server
// at addr; addr is empty if that is not known.
//
// A call returns as soon as its ctx is done. If the reply has not come, the connection is cut. Do and
// DoAll send again, once, what a broken connection has left unanswered: the server may have closed
// it long ago. A connection to a replica is cut. Calls that the replica has not done go to the other
// connections of the pool, until one leads to a master.
//
// When nothing was answered for five seconds, a connection is tested before it is used, as [Idle] does.
// If it is dead, it is closed, and so are the idle ones beside it. A Pool that tests its connections
// itself has a method Tests() bool, which returns true.
//
// While a [Bounded] Pool has no connection left, commands for which [Keeps] is true go over connections
// beside the pool, which are closed when they are idle. A grant that gets no connection fails a little before
// the end of its ctx, and says that nothing was sent.
func OverPool(p Pool, addr string) Pipeliner {
	return pooled{p, addr, new(Heard), newClock(), new(atomic.Int64), newBeside(p)}
}

type pooled struct {
	Pool
	addr string
	*Heard
	clock
	answered *atomic.Int64 // when a connection last had an answer
	beside   *beside       // nil: the pool is not Bounded
}

// Endpoint is the address of the server.
func (p pooled) Endpoint() string { return p.addr }

// Lane is the same for all: a pool has one server.
func (pooled) Lane(context.Context, []any) any { return nil }

func (p pooled) Do(ctx context.Context, args ...any) (any, error) { return p.one(ctx, args, true) }

func (p pooled) Once(ctx context.Context, args ...any) (any, error) { return p.one(ctx, args, false) }

func (p pooled) one(ctx context.Context, args []any, again bool) (any, error) {
	c := Command{Args: args}
	err := p.elsewhere(ctx, func() error {
		p.all(ctx, []*Command{&c}, again)
		return c.Err
	})
	return c.Reply, err
}

func (p pooled) DoAll(ctx context.Context, commands []*Command) { p.all(ctx, commands, true) }

func (p pooled) OnceAll(ctx context.Context, commands []*Command) { p.all(ctx, commands, false) }

func (p pooled) all(ctx context.Context, commands []*Command, again bool) {
	answered, broke := p.try(ctx, commands)
	if !again || !broke || Ended(ctx) != nil {
		return
	}
	left := commands[answered:]
	unsent := backends.Unsent(left[0].Err)
	p.try(ctx, left)
	for _, c := range left {
		if !unsent {
			c.Err = Repeated(c.Err)
		}
	}
}

// elsewhere repeats what was not done because the server is a replica. The other connections of the
// pool lead to the same server: they are used up until one leads to a master, or a new one is made.
func (p pooled) elsewhere(ctx context.Context, do func() error) error {
	err := do()
	if err == nil || !IsDemoted(err) {
		return err
	}
	for idle := p.IdleCount() + 1; idle > 0 && IsDemoted(err) && Ended(ctx) == nil; idle-- {
		err = do()
	}
	return err
}

// try tells how many commands were answered, and whether the others were not because the connection
// broke.
func (p pooled) try(ctx context.Context, commands []*Command) (answered int, broke bool) {
	idle := p.idle()
	c, err := p.get(ctx, slices.ContainsFunc(commands, func(c *Command) bool { return Keeps(c.Args) }))
	if err == nil {
		answered, err = p.exchange(ctx, c.PoolConn, commands)
		broke = err != nil && !isTimeout(err)
		if answered == 0 {
			err = EndedIdle(err, idle)
		}
		if isStale(err) {
			p.closeIdle(ctx)
		}
		demoted, away := false, false
		for _, command := range commands[:answered] {
			if command.Err != nil && IsDemoted(command.Err) {
				demoted, command.Alone = true, true
			}
			away = away || IsTurnedAway(command.Err)
		}
		c.put(p, demoted || away || err != nil && c.beside)
		err = p.fault(ctx, err)
	}
	for _, command := range commands[answered:] {
		command.Reply, command.Err = nil, err
	}
	return answered, broke
}

// leased is a connection of the pool, or one beside it.
type leased struct {
	PoolConn
	beside       bool
	opened, used time.Time // of one beside the pool
}

// put gives c back, or cuts it if it must not be used again.
func (c leased) put(p pooled, unusable bool) {
	if c.beside {
		p.beside.put(c, unusable)
		return
	}
	p.put(c.PoolConn, unusable)
}

// end closes a connection beside the pool. Nothing is expected of it any more.
func (c leased) end() { _ = c.Close() }

// get takes a connection for commands that keep or end a hold, or for others.
func (p pooled) get(ctx context.Context, keeps bool) (leased, error) {
	if err := Ended(ctx); err != nil {
		return leased{}, NotSent(ctx, p.addr, err)
	}
	c, err := p.lease(ctx, keeps)
	if err == nil && !c.beside && p.idle() >= testAfter && !p.tests() && !p.test(ctx, c.PoolConn) {
		p.put(c.PoolConn, true)
		p.closeIdle(ctx)
		c, err = p.lease(ctx, keeps)
	}
	if err != nil {
		return leased{}, p.unopened(ctx, err)
	}
	return c, nil
}

func (p pooled) lease(ctx context.Context, keeps bool) (leased, error) {
	if p.beside == nil || p.beside.of.Room().Ample() {
		c, err := p.Get(ctx)
		if err == nil || p.beside == nil || !keeps || !isUsedUp(p.Translate(err)) {
			return leased{PoolConn: c}, err
		}
	}
	if keeps {
		return p.beside.get(ctx)
	}
	early, cancel := Early(ctx)
	defer cancel()
	c, err := p.Get(early)
	return leased{PoolConn: c}, p.beside.exhausted(early, err)
}

// idle is how long nothing was answered; 0: nothing ever was.
func (p pooled) idle() time.Duration {
	if last := p.answered.Load(); last != 0 {
		return time.Duration(p.now() - last)
	}
	return 0
}

// tests tells whether the pool tests its connections itself.
func (p pooled) tests() bool {
	t, ok := p.Pool.(interface{ Tests() bool })
	return ok && t.Tests()
}

// test asks whether c still leads to a server. What ends with ctx is left to the call.
func (p pooled) test(ctx context.Context, c PoolConn) bool {
	limited, cancel := context.WithTimeout(ctx, testLimit)
	defer cancel()
	_, err := p.exchange(limited, c, []*Command{{Args: []any{"PING"}}})
	return err == nil
}

// closeIdle closes the connections that are idle: one that was idle as well is dead.
func (p pooled) closeIdle(ctx context.Context) {
	for idle := p.IdleCount(); idle > 0 && p.IdleCount() > 0 && Ended(ctx) == nil; idle-- {
		if c, err := p.Get(ctx); err == nil {
			p.put(c, true)
		}
	}
}

// put gives c back, or cuts it if it must not be used again.
func (p pooled) put(c PoolConn, unusable bool) {
	if unusable {
		p.Cut(c)
	}
	_ = c.Close()
}

// unopened is the error of a connection that could not be had.
func (p pooled) unopened(ctx context.Context, err error) error {
	err = p.translate(err)
	if reply, ok := errors.AsType[*ReplyError](err); ok { // a Quarantine may have wrapped it
		reply.Connecting = true
		return err
	}
	return NotSent(ctx, p.addr, p.Explain(err))
}

// fault is the error of a connection.
func (p pooled) fault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return Fault(ctx, p.addr, p.Explain(p.translate(err)))
}

// translate names the server of an error reply, and notes that it has answered.
func (p pooled) translate(err error) error {
	err = p.Translate(err)
	if reply, ok := errors.AsType[*ReplyError](err); ok {
		reply.Addr = p.addr
		p.Note(err)
	}
	return err
}

func isReply(err error) bool { return errors.As(err, new(*ReplyError)) }

// exchange sends commands together and reads a reply for each. The error is the error of the
// connection.
func (p pooled) exchange(ctx context.Context, c PoolConn, commands []*Command) (answered int, err error) {
	if err := Ended(ctx); err != nil {
		return 0, NotSent(ctx, p.addr, err)
	}
	err = Until(ctx, p.Pool, c, func() error {
		for _, command := range commands {
			name, _ := command.Args[0].(string)
			if err := c.Send(name, command.Args[1:]...); err != nil {
				return err
			}
		}
		if err := c.Flush(); err != nil {
			return err
		}
		for _, command := range commands {
			if command.Reply, command.Err = p.receive(c); command.Err != nil && !isReply(command.Err) {
				return command.Err
			}
			answered++
			p.answered.Store(p.now())
		}
		return nil
	})
	return answered, err
}

// receive returns a *ReplyError for an error reply.
func (p pooled) receive(c PoolConn) (any, error) {
	reply, err := c.Receive()
	if err != nil {
		return nil, p.translate(err)
	}
	p.Note(nil)
	return p.decode(reply), nil
}

// Until calls fn, which uses c, and cuts c when ctx is done. The error of fn is then the error of ctx.
// When Until returns, nothing uses c any more.
func Until(ctx context.Context, p interface{ Cut(c PoolConn) }, c PoolConn, fn func() error) error {
	if ctx.Done() == nil {
		return fn()
	}
	var cutting sync.WaitGroup
	cutting.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer cutting.Done()
		p.Cut(c)
	})
	err := fn()
	if !stop() {
		cutting.Wait()
		if err != nil {
			err = ctx.Err()
		}
	}
	return err
}

// decode puts a reply into the terms of the family, in place.
func (p pooled) decode(reply any) any {
	switch reply := reply.(type) {
	case []byte:
		return string(reply)
	case error:
		return &ReplyError{Addr: p.addr, Text: reply.Error()}
	case []any:
		for i := range reply {
			reply[i] = p.decode(reply[i])
		}
	}
	return reply
}

func (p pooled) Pinned(ctx context.Context, _ string, fn func(Conn) error) error {
	return p.elsewhere(ctx, func() error { return p.pin(ctx, fn) })
}

// pin leaves nothing watched: what a connection watches could fail the next transaction on it.
func (p pooled) pin(ctx context.Context, fn func(Conn) error) error {
	pinned := &pinnedConn{pooled: p}
	err := fn(pinned)
	if pinned.watching {
		_, _ = pinned.Pipeline(ctx, []any{"UNWATCH"}) // or the connection is cut
	}
	if pinned.conn.PoolConn != nil {
		pinned.conn.put(p, pinned.broke || pinned.watching || IsDemoted(err) || IsTurnedAway(err))
	}
	return err
}

// pinnedConn takes its connection when the first commands come, since they tell what they are for.
type pinnedConn struct {
	pooled
	conn            leased
	watching, broke bool
}

func (c *pinnedConn) Pipeline(ctx context.Context, commands ...[]any) ([]any, error) {
	if c.conn.PoolConn == nil {
		var err error
		if c.conn, err = c.get(ctx, slices.ContainsFunc(commands, Keeps)); err != nil {
			return nil, err
		}
	}
	all := make([]*Command, len(commands))
	for i, args := range commands {
		all[i] = &Command{Args: args}
	}
	if _, err := c.exchange(ctx, c.conn.PoolConn, all); err != nil {
		c.broke = c.conn.beside
		return nil, c.fault(ctx, err)
	}
	replies := make([]any, len(commands))
	for i, command := range all {
		if replies[i] = command.Reply; command.Err != nil {
			replies[i] = command.Err
		}
		c.watching = Watching(c.watching, command.Args, command.Err != nil)
	}
	return replies, nil
}

// Watching tells whether a connection watches keys behind a command, and possibly did before it.
func Watching(before bool, args []any, refused bool) bool {
	switch args[0] {
	case "WATCH":
		return true
	case "EXEC", "DISCARD", "UNWATCH":
		return refused
	}
	return before
}

func (p pooled) Subscribe(ctx context.Context) Subscription {
	return &subscription{pooled: p, ctx: ctx}
}

// subscription has a connection outside of the pool. There it would use up a connection, and to give
// it back the pool would have to unsubscribe it first.
type subscription struct {
	pooled
	ctx  context.Context
	conn PoolConn // nil before the first request
}

func (s *subscription) Subscribe(channel string) error   { return s.request("SUBSCRIBE", channel) }
func (s *subscription) Unsubscribe(channel string) error { return s.request("UNSUBSCRIBE", channel) }
func (s *subscription) Ping() error                      { return s.request("PING") }

func (s *subscription) request(name string, args ...any) error {
	if s.conn == nil {
		ctx, cancel := context.WithTimeout(s.ctx, dialLimit)
		defer cancel()
		c, err := s.Dial(ctx)
		if err != nil {
			return s.unopened(ctx, err)
		}
		s.conn = c
	}
	err := s.conn.Send(name, args...)
	if err == nil {
		err = s.conn.Flush()
	}
	return s.fault(s.ctx, err)
}

func (s *subscription) Receive() (Event, error) {
	reply, err := s.receive(s.conn)
	if err != nil {
		return Event{}, s.fault(s.ctx, err)
	}
	push, _ := reply.([]any)
	if len(push) < 3 { // a pong
		return Event{Kind: EventPong}, nil
	}
	kind, _ := push[0].(string)
	channel, _ := push[1].(string)
	payload, _ := push[2].(string) // of an answer it is a number
	return Event{Kind: kinds[kind], Channel: channel, Payload: payload}, nil
}

var kinds = map[string]EventKind{"subscribe": EventSubscribed, "unsubscribe": EventUnsubscribed, "message": EventMessage}

func (s *subscription) Close() error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Close()
}
