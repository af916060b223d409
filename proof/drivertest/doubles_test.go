package drivertest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// A double is an adapter with one bug. It breaks a sentence, which fails with a text.
type double struct {
	bug, breaks, fails string
	harness            func(h *Harness)
	only               string // this part of the sentence; the others would wait for long
}

// broken is an Executor with some methods replaced.
type broken struct {
	driver.Executor
	do, once  func(ctx context.Context, args ...any) (any, error)
	pinned    func(ctx context.Context, key string, fn func(driver.Conn) error) error
	subscribe func(ctx context.Context) driver.Subscription
}

func (b broken) Do(ctx context.Context, args ...any) (any, error) {
	if b.do != nil {
		return b.do(ctx, args...)
	}
	return b.Executor.Do(ctx, args...)
}

func (b broken) Once(ctx context.Context, args ...any) (any, error) {
	if b.once != nil {
		return b.once(ctx, args...)
	}
	return b.Executor.Once(ctx, args...)
}

func (b broken) Pinned(ctx context.Context, key string, fn func(driver.Conn) error) error {
	if b.pinned != nil {
		return b.pinned(ctx, key, fn)
	}
	return b.Executor.Pinned(ctx, key, fn)
}

func (b broken) Subscribe(ctx context.Context) driver.Subscription {
	if b.subscribe != nil {
		return b.subscribe(ctx)
	}
	return b.Executor.Subscribe(ctx)
}

// executor makes a harness whose executors are wrapped.
func executor(wrap func(e driver.Executor) driver.Executor) func(h *Harness) {
	return func(h *Harness) {
		*h = harnessFor(func(p driver.Pool, addr string) driver.Executor { return wrap(driver.OverPool(p, addr)) })
	}
}

// drained is a Pool that never has another connection to try.
type drained struct{ driver.Pool }

func (drained) IdleCount() int { return -1 }

// untested is a Pool that only says that it tests its connections.
type untested struct{ driver.Pool }

func (untested) Tests() bool { return true }

// doing replaces Do and Once by what f returns for them.
func doing(f func(next call) call) func(h *Harness) {
	return executor(func(e driver.Executor) driver.Executor { return broken{Executor: e, do: f(e.Do), once: f(e.Once)} })
}

// keeping is doing without what Do sends again.
func keeping(f func(next call) call) func(h *Harness) {
	return executor(func(e driver.Executor) driver.Executor { return broken{Executor: e, do: f(e.Once), once: f(e.Once)} })
}

type call = func(ctx context.Context, args ...any) (any, error)

// pinning replaces the Pipeline of a Conn.
func pinning(f func(ctx context.Context, c driver.Conn, commands [][]any) ([]any, error)) func(h *Harness) {
	return executor(func(e driver.Executor) driver.Executor {
		return broken{Executor: e, pinned: func(ctx context.Context, key string, fn func(driver.Conn) error) error {
			return e.Pinned(ctx, key, func(c driver.Conn) error {
				return fn(conn(func(ctx context.Context, commands ...[]any) ([]any, error) { return f(ctx, c, commands) }))
			})
		}}
	})
}

type conn func(ctx context.Context, commands ...[]any) ([]any, error)

func (c conn) Pipeline(ctx context.Context, commands ...[]any) ([]any, error) {
	return c(ctx, commands...)
}

// subscribing replaces the Subscription.
func subscribing(wrap func(s driver.Subscription) driver.Subscription) func(h *Harness) {
	return executor(func(e driver.Executor) driver.Executor {
		return broken{Executor: e, subscribe: func(ctx context.Context) driver.Subscription { return wrap(e.Subscribe(ctx)) }}
	})
}

type brokenSubscription struct {
	driver.Subscription
	subscribe, unsubscribe func(channel string) error
	ping, close            func() error
	receive                func() (driver.Event, error)
}

func (s brokenSubscription) Subscribe(channel string) error {
	if s.subscribe != nil {
		return s.subscribe(channel)
	}
	return s.Subscription.Subscribe(channel)
}

func (s brokenSubscription) Unsubscribe(channel string) error {
	if s.unsubscribe != nil {
		return s.unsubscribe(channel)
	}
	return s.Subscription.Unsubscribe(channel)
}

func (s brokenSubscription) Ping() error {
	if s.ping != nil {
		return s.ping()
	}
	return s.Subscription.Ping()
}

func (s brokenSubscription) Close() error {
	if s.close != nil {
		return s.close()
	}
	return s.Subscription.Close()
}

func (s brokenSubscription) Receive() (driver.Event, error) {
	if s.receive != nil {
		return s.receive()
	}
	return s.Subscription.Receive()
}

// piped sends commands together. A double changes the commands, or what comes back.
type piped struct {
	driver.Pipeliner
	all func(ctx context.Context, commands []*driver.Command, send sender)
}

type sender = func(ctx context.Context, commands []*driver.Command)

func (p piped) DoAll(ctx context.Context, commands []*driver.Command) {
	p.all(ctx, commands, p.Pipeliner.DoAll)
}

func (p piped) OnceAll(ctx context.Context, commands []*driver.Command) {
	p.all(ctx, commands, p.Pipeliner.OnceAll)
}

func piping(all func(ctx context.Context, commands []*driver.Command, send sender)) func(h *Harness) {
	return executor(func(e driver.Executor) driver.Executor { return piped{e.(driver.Pipeliner), all} })
}

var errVague = errors.New("something went wrong")

// vague hides what an error says, but for answers that the family needs to go on.
func vague(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "NOSCRIPT") || strings.Contains(err.Error(), "NOSCRIPT") {
		return err
	}
	return errVague
}

// neverStale hides that a connection had ended while it was idle.
func neverStale(next call) call {
	return func(ctx context.Context, args ...any) (any, error) {
		reply, err := next(ctx, args...)
		if w, ok := errors.AsType[*driver.WireError](err); ok && w.Stale() {
			err = driver.Fault(ctx, "", errors.New(err.Error()))
		}
		return reply, err
	}
}

// forever is a Receive after which nothing comes, as if nobody had noticed the end of a connection.
func forever(s driver.Subscription) driver.Subscription {
	return brokenSubscription{Subscription: s, receive: func() (driver.Event, error) {
		event, err := s.Receive()
		if err != nil {
			select {}
		}
		return event, err
	}}
}

var doubles = []double{
	{
		bug: "a nil client is told in words of its own", breaks: "a store without a client answers every call with an error", fails: "want that the client is nil",
		harness: func(h *Harness) {
			h.Nil["nil"] = redisstore.New(driver.Refuse(backends.Invalid("pool is nil")))
		},
	},
	{
		bug: "a command is announced by a script", breaks: "a free lock costs one native command", fails: "scripts",
		harness: doing(func(next call) call {
			return func(ctx context.Context, args ...any) (any, error) {
				_, _ = next(ctx, "EVAL", "return 1", 0)
				return next(ctx, args...)
			}
		}),
	},
	{
		bug: "each script is run five times", breaks: "List sends one SCAN for each page, and looks at the keys that it finds", fails: "scripts for",
		harness: doing(func(next call) call {
			return func(ctx context.Context, args ...any) (any, error) {
				for range 4 {
					_, _ = next(ctx, args...)
				}
				return next(ctx, args...)
			}
		}),
	},
	{
		bug: "scripts are forgotten all the time", breaks: "scripts are sent again to a server that forgot them", fails: "scripts were sent in full",
		harness: doing(func(next call) call {
			return func(ctx context.Context, args ...any) (any, error) {
				if args[0] == "EVALSHA" {
					_, _ = next(ctx, "SCRIPT", "FLUSH")
				}
				return next(ctx, args...)
			}
		}),
	},
	{
		bug: "a channel is never left", breaks: "channels and their connection last as long as somebody waits", fails: "no channel and no connection",
		harness: subscribing(func(s driver.Subscription) driver.Subscription {
			return brokenSubscription{Subscription: s, unsubscribe: func(string) error { return nil }, close: func() error { return nil }}
		}),
	},
	{
		bug: "a cut is not noticed", breaks: "a connection that was cut wakes, and is replaced", fails: "a wake-up after the reconnect",
		harness: subscribing(forever),
	},
	{
		bug: "the end of a connection is not noticed", breaks: "a connection that the server closed wakes, and is replaced", fails: "a wake-up after the reconnect",
		harness: subscribing(forever),
	},
	{
		bug: "a channel that is not permitted is confirmed", breaks: "a channel that is not permitted is an error at once", fails: "Watch = <nil>",
		harness: subscribing(func(s driver.Subscription) driver.Subscription {
			var last atomic.Value
			return brokenSubscription{
				Subscription: s,
				subscribe:    func(channel string) error { last.Store(channel); return s.Subscribe(channel) },
				receive: func() (driver.Event, error) {
					event, err := s.Receive()
					if errors.As(err, new(*driver.ReplyError)) {
						return driver.Event{Kind: driver.EventSubscribed, Channel: last.Load().(string)}, nil
					}
					return event, err
				},
			}
		}),
	},
	{
		bug: "INFO is empty", breaks: "Check reports a server as it is", fails: "Check = ",
		harness: doing(func(next call) call {
			return func(ctx context.Context, args ...any) (any, error) {
				if args[0] == "INFO" {
					return "", nil
				}
				return next(ctx, args...)
			}
		}),
	},
	{
		bug: "a wait goes on without its waiter", breaks: "nothing is left behind when a wait ends", fails: "no goroutine",
		harness: func(h *Harness) {
			connect := h.Connect
			h.Connect = func(t testing.TB, to Server) Client {
				c := connect(t, to)
				create := c.New
				c.New = func(opts ...redisstore.Option) *redisstore.Store {
					store := create(opts...)
					_ = store.Watch(context.Background(), "other", func() {})
					return store
				}
				return c
			}
		},
	},
	{
		bug: "a message comes twice", breaks: "nothing is left behind in a bubble", fails: "woken 2 times",
		harness: subscribing(func(s driver.Subscription) driver.Subscription {
			var again *driver.Event
			return brokenSubscription{Subscription: s, receive: func() (driver.Event, error) {
				if event := again; event != nil {
					again = nil
					return *event, nil
				}
				event, err := s.Receive()
				if err == nil && event.Kind == driver.EventMessage {
					again = &event
				}
				return event, err
			}}
		}),
	},
	{
		bug: "an error of the server is vague", breaks: "wrong credentials are an error at once, of a watch too", fails: "SetNX = ",
		harness: doing(hiding),
	},
	{
		bug: "a server that is down is vague", breaks: "a server that is down is a fault until it is not", fails: "SetNX = ",
		harness: doing(hiding),
	},
	{
		bug: "a call does not look at its ctx", breaks: "a call on a server that hangs ends with its ctx", fails: "SetNX = ",
		harness: doing(deaf),
	},
	{
		bug: "a late reply is the next one", breaks: "a late reply is not taken for the next one", fails: "the next SetNX",
		harness: doing(func(next call) call {
			late := false
			return func(ctx context.Context, args ...any) (any, error) {
				if late {
					late = false
					return "OK", nil
				}
				reply, err := next(ctx, args...)
				late = err != nil && !errors.As(err, new(*driver.ReplyError))
				return reply, err
			}
		}),
	},
	{
		bug: "everything is sent again", breaks: "only what may be sent twice is", fails: "sent 2 times",
		harness: doing(func(next call) call {
			return func(ctx context.Context, args ...any) (any, error) {
				reply, err := next(ctx, args...)
				if err != nil && !errors.As(err, new(*driver.ReplyError)) {
					return next(ctx, args...)
				}
				return reply, err
			}
		}),
	},
	{
		bug: "a connection that broke is kept", breaks: "a connection that breaks is replaced", fails: "a call that is answered",
		harness: keeping(func(next call) call {
			var broke error
			return func(ctx context.Context, args ...any) (any, error) {
				if broke != nil {
					return nil, broke
				}
				reply, err := next(ctx, args...)
				if err != nil && !errors.As(err, new(*driver.ReplyError)) {
					broke = err
				}
				return reply, err
			}
		}),
	},
	{
		bug: "commands together do not look at their ctx", breaks: "commands together end with their ctx", fails: "OnceAll, deadline",
		harness: piping(func(ctx context.Context, commands []*driver.Command, send sender) {
			send(context.WithoutCancel(ctx), commands)
		}),
	},
	{
		bug: "Open gives up at once", breaks: "Open gives up a server that hangs", fails: "SetNX on a connection = ",
		harness: doing(func(next call) call {
			return func(ctx context.Context, args ...any) (any, error) {
				if slices.Contains(args, any("b")) {
					return nil, errVague
				}
				return next(ctx, args...)
			}
		}),
	},
	{
		bug: "what a server said before it closed the connection is not told", breaks: "a server that turns connections away says why",
		fails: "errors are wrong",
		harness: doing(func(next call) call {
			return func(ctx context.Context, args ...any) (any, error) {
				reply, err := next(ctx, args...)
				if driver.IsTurnedAway(err) {
					err = driver.Fault(ctx, "", io.EOF)
				}
				return reply, err
			}
		}),
	},
	{
		bug: "the adapter does not tell where the server is", breaks: "each error has the address of the server", fails: "want the address",
		harness: func(h *Harness) {
			*h = harnessFor(func(p driver.Pool, _ string) driver.Executor { return driver.OverPool(p, "") })
		},
	},
	{
		bug: "nobody pings", breaks: "a silent connection for wake-ups is replaced", fails: "a ping",
		harness: subscribing(func(s driver.Subscription) driver.Subscription {
			return brokenSubscription{Subscription: s, ping: func() error { return nil }}
		}),
	},
	{
		bug: "connections that were idle are not tested", breaks: "idle connections that were forgotten without a reset fail no lock",
		fails: "Lock = ", only: "New",
		harness: func(h *Harness) {
			*h = harnessFor(func(p driver.Pool, addr string) driver.Executor { return driver.OverPool(untested{p}, addr) })
		},
	},
	{
		bug: "it is not said that a connection had ended while it was idle", breaks: "idle connections with TLS that were closed fail no lock",
		fails: "Lock = ", only: "New", harness: doing(neverStale),
	},
	{
		bug: "it is not said that a connection had ended as the command came", breaks: "an idle connection that ends as the next command comes fails no lock",
		fails: "Lock = ", only: "New", harness: doing(neverStale),
	},
	{
		bug: "renewals wait for the pool", breaks: "a pool that the application uses up loses no lock", fails: " is lost: ",
		harness: func(*Harness) {}, // the smallest adapter is no driver.Bounded
	},
	{
		bug: "a cleanup is pretended", breaks: "a lost reply keeps no lock from others", fails: "the lock is free",
		harness: doing(func(next call) call {
			failed := false
			return func(ctx context.Context, args ...any) (any, error) {
				if failed && strings.HasPrefix(args[0].(string), "EVAL") {
					return int64(0), nil
				}
				reply, err := next(ctx, args...)
				failed = failed || args[0] == "SET" && err != nil
				return reply, err
			}
		}),
	},
	{
		bug: "any certificate will do", breaks: "TLS carries locks and wake-ups, between those who trust each other", fails: "that nobody vouches for = <nil>",
		harness: func(h *Harness) {
			open := h.Open
			h.Open = func(t *testing.T, to Server, opts ...redisstore.Option) (*redisstore.Store, func()) {
				to.TLS = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // that is the bug
				return open(t, to, opts...)
			}
		},
	},
	{
		bug: "a command asks for more than the page says", breaks: "the users of docs/security.md suffice", fails: "refused on the way",
		harness: doing(func(next call) call {
			return func(ctx context.Context, args ...any) (any, error) {
				_, _ = next(ctx, "DBSIZE")
				return next(ctx, args...)
			}
		}),
	},
	{
		bug: "a switchover costs a call for each connection", breaks: "locks outlive a switchover that keeps the connections", fails: "calls failed, one after the other",
		harness: func(h *Harness) {
			*h = harnessFor(func(p driver.Pool, addr string) driver.Executor { return driver.OverPool(drained{p}, addr) })
		},
	},
	{
		bug: "a Pipeliner is not tested as one", breaks: "an Executor without a pipeline is no Pipeliner", fails: "do not set NoPipeline",
		harness: func(h *Harness) { h.NoPipeline = true },
	},
	{
		bug: "an Executor shares no round trips", breaks: "commands together are answered in order, with errors in their position", fails: "set NoPipeline if",
		harness: executor(func(e driver.Executor) driver.Executor { return broken{Executor: e} }),
	},
	{
		bug: "error replies are vague", breaks: "each error reply to each command is of the right class", fails: "something went wrong",
		harness: doing(hiding),
	},
	{
		bug: "errors do not say which server", breaks: "errors say which server, what outcome and what to do", fails: "something went wrong",
		harness: doing(hiding),
	},
	{
		bug: "a server that was never seen is in quarantine too", breaks: "a server that may have forgotten locks is in quarantine", fails: "is in quarantine until",
		only: "a new server works at once",
		harness: func(h *Harness) {
			h.Open = func(*testing.T, Server, ...redisstore.Option) (*redisstore.Store, func()) {
				return redisstore.New(driver.Refuse(&driver.QuarantineError{Until: time.Now().Add(time.Hour)})), func() {}
			}
		},
	},
	{
		bug: "nil is an empty string", breaks: "replies are in the terms of the family", fails: "of nothing = ",
		harness: doing(func(next call) call {
			return func(ctx context.Context, args ...any) (any, error) {
				reply, err := next(ctx, args...)
				if reply == nil && err == nil {
					reply = ""
				}
				return reply, err
			}
		}),
	},
	{
		bug: "replies come in another order", breaks: "Pipeline replies in order, with errors in their position", fails: "Pipeline = ",
		harness: pinning(func(ctx context.Context, c driver.Conn, commands [][]any) ([]any, error) {
			replies, err := c.Pipeline(ctx, commands...)
			slices.Reverse(replies)
			return replies, err
		}),
	},
	{
		bug: "what is watched stays so", breaks: "Pinned watches on one connection, and unwatches afterwards", fails: "Pinned = ",
		harness: pinning(func(ctx context.Context, c driver.Conn, commands [][]any) ([]any, error) {
			if len(commands) == 1 && commands[0][0] == "WATCH" { // which redigo does not understand, and the server does
				commands = [][]any{{"EVAL", "return 'OK'", 0}}
			}
			return c.Pipeline(ctx, commands...)
		}),
	},
	{
		bug: "all confirmations are of subscriptions", breaks: "a Subscription tells its events apart", fails: "Receive = ",
		harness: subscribing(func(s driver.Subscription) driver.Subscription {
			return brokenSubscription{Subscription: s, receive: func() (driver.Event, error) {
				event, err := s.Receive()
				if event.Kind == driver.EventUnsubscribed {
					event.Kind = driver.EventSubscribed
				}
				return event, err
			}}
		}),
	},
	{
		bug: "an error reply is a confirmation", breaks: "an error reply leaves the Subscription usable and in order", fails: "events: ",
		harness: subscribing(func(s driver.Subscription) driver.Subscription {
			told := false
			return brokenSubscription{Subscription: s, receive: func() (driver.Event, error) {
				event, err := s.Receive()
				if errors.As(err, new(*driver.ReplyError)) && !told {
					told = true
					return driver.Event{Kind: driver.EventSubscribed, Channel: "b"}, nil
				}
				return event, err
			}}
		}),
	},
	{
		bug: "a closed Subscription takes requests", breaks: "Close ends a Receive", fails: "Subscribe after Close = nil",
		harness: subscribing(func(s driver.Subscription) driver.Subscription {
			return brokenSubscription{Subscription: s, subscribe: func(channel string) error {
				_ = s.Subscribe(channel)
				return nil
			}}
		}),
	},
	{
		bug: "a ctx that has ended is not looked at", breaks: "a ctx that has ended sends nothing", fails: "Do = <nil>",
		harness: doing(deaf),
	},
	{
		bug: "Pipeline does not look at its ctx", breaks: "Pinned ends with its ctx on a server that hangs", fails: "Pipeline = ",
		harness: pinning(func(ctx context.Context, c driver.Conn, commands [][]any) ([]any, error) {
			return c.Pipeline(context.WithoutCancel(ctx), commands...)
		}),
	},
	{
		bug: "a reply is that of another", breaks: "a cancellation that meets the reply harms nothing", fails: "instead of",
		harness: doing(func(next call) call {
			var last atomic.Value
			last.Store("")
			return func(ctx context.Context, args ...any) (any, error) {
				reply, err := next(ctx, args...)
				if text, ok := reply.(string); ok {
					return last.Swap(text), err
				}
				return reply, err
			}
		}),
	},
	{
		bug: "replies together come in another order", breaks: "commands together are answered in order, with errors in their position", fails: "OnceAll: ",
		harness: piping(func(ctx context.Context, commands []*driver.Command, send sender) {
			send(ctx, commands)
			for i, j := 0, len(commands)-1; i < j; i, j = i+1, j-1 {
				a, b := commands[i], commands[j]
				a.Reply, a.Err, b.Reply, b.Err = b.Reply, b.Err, a.Reply, a.Err
			}
		}),
	},
	{
		bug: "all commands together are sent again", breaks: "of commands together, only what may be sent twice is", fails: "OnceAll: ",
		harness: piping(func(ctx context.Context, commands []*driver.Command, send sender) {
			send(ctx, commands)
			var failed []*driver.Command
			for _, c := range commands {
				if c.Err != nil && !errors.As(c.Err, new(*driver.ReplyError)) {
					failed = append(failed, c)
				}
			}
			if len(failed) > 0 {
				send(ctx, failed)
			}
		}),
	},
	{
		bug: "of commands together nobody knows whether they were sent", breaks: "commands together that found no server were not sent", fails: "something went wrong",
		harness: piping(func(ctx context.Context, commands []*driver.Command, send sender) {
			send(ctx, commands)
			for _, c := range commands {
				c.Err = vague(c.Err)
			}
		}),
	},
}

// hiding makes errors vague.
func hiding(next call) call {
	return func(ctx context.Context, args ...any) (any, error) {
		reply, err := next(ctx, args...)
		return reply, vague(err)
	}
}

// deaf does not look at the ctx.
func deaf(next call) call {
	return func(ctx context.Context, args ...any) (any, error) { return next(context.WithoutCancel(ctx), args...) }
}
