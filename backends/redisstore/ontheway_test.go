package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
	"github.com/lockstep-go/lockstep/internal/turns"
)

// forgetting is a server that grants all that is asked for. Behind its endpoint another server
// appears while a command is on its way.
type forgetting struct {
	q    *driver.Quarantine
	held bool // the key holds our token already
	sha  bool // it knows the digests of scripts
	at   int  // the command that is on its way then, counted from 1
	sent int
	in   *[]any // the replies of the open transaction
}

// reply answers a command. An error is an error reply.
func (f *forgetting) reply(args []any) any {
	if f.sent++; f.sent == f.at {
		_ = f.q.Saw("", serverB.String(), nil)
	}
	said := f.says(args)
	switch {
	case args[0] == "MULTI":
		f.in = &[]any{}
	case args[0] == "EXEC" && f.in != nil:
		said, f.in = *f.in, nil
	case f.in != nil:
		*f.in = append(*f.in, said)
		said = "QUEUED"
	}
	return said
}

func (f *forgetting) says(args []any) any {
	if args[0] == "EVALSHA" && !f.sha {
		return &driver.ReplyError{Text: "NOSCRIPT No matching script."}
	}
	if args[0] == "EVALSHA" || args[0] == "EVAL" {
		switch digest[args[1]] {
		case scripts.Acquire.Digest, scripts.Transfer.Digest:
			return []any{int64(1), ""}
		case scripts.Number.Digest, scripts.TransferNumbered.Digest:
			return []any{int64(1), "7"}
		case scripts.Enqueue.Digest, scripts.Numbered.Digest:
			return []any{int64(1), "7", ""}
		case scripts.Enter.Digest, scripts.EnterNumbered.Digest, scripts.TransferHold.Digest, scripts.TransferHoldNumbered.Digest:
			return []any{int64(1), int64(1), "7", int64(0)}
		}
	}
	switch args[0] {
	case "SET":
		if f.held {
			return nil
		}
		return "OK"
	case "GET":
		return "token"
	case "GETSET":
		return nil
	}
	return int64(1) // PTTL as well
}

// digest is that of a script that is named by its digest, or sent in full.
var digest = func() map[any]any {
	all := map[any]any{}
	for _, s := range []scripts.Script{
		scripts.Acquire, scripts.Enqueue, scripts.Numbered, scripts.Number, scripts.Enter, scripts.EnterNumbered,
		scripts.Transfer, scripts.TransferNumbered, scripts.TransferHold, scripts.TransferHoldNumbered,
	} {
		all[s.Digest], all[s.Full(s.Call(nil))[1]] = s.Digest, s.Digest
	}
	return all
}()

func (f *forgetting) Do(_ context.Context, args ...any) (any, error) {
	said := f.reply(args)
	return said, asError(said)
}

func (f *forgetting) Once(ctx context.Context, args ...any) (any, error) { return f.Do(ctx, args...) }
func (f *forgetting) Subscribe(context.Context) driver.Subscription      { return nil }

func (f *forgetting) Pinned(_ context.Context, _ string, fn func(driver.Conn) error) error {
	return fn(f)
}

func (f *forgetting) Pipeline(_ context.Context, commands ...[]any) ([]any, error) {
	replies := make([]any, len(commands))
	for i, args := range commands {
		replies[i] = f.reply(args)
	}
	return replies, nil
}

// pipelined is forgetting with a client library that can send commands together.
type pipelined struct{ *forgetting }

func (p pipelined) DoAll(ctx context.Context, commands []*driver.Command) {
	for _, c := range commands {
		c.Reply, c.Err = p.Do(ctx, c.Args...)
	}
}
func (p pipelined) OnceAll(ctx context.Context, commands []*driver.Command) { p.DoAll(ctx, commands) }
func (p pipelined) Lane(context.Context, []any) any                         { return nil }

// ways are all calls that grant.
var ways = map[string]func(ctx context.Context, s *Store) (backends.Result, error){
	"SetNX": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.SetNX(ctx, "key", "token", longest)
	},
	"StartSetNX": func(ctx context.Context, s *Store) (r backends.Result, err error) {
		answered := make(chan struct{})
		s.StartSetNX(ctx, "key", "token", longest, func(answer backends.Result, failed error) {
			r, err = answer, failed
			close(answered)
		})
		<-answered
		return r, err
	},
	"SetNXQueued for a free key": func(ctx context.Context, s *Store) (backends.Result, error) {
		s.turns.FoundEmpty("key")
		return s.SetNXQueued(ctx, "key", "token", longest, backends.Turn{Waiter: "w"})
	},
	"SetNXQueued with a position": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.SetNXQueued(ctx, "key", "token", longest, backends.Turn{Waiter: "w"})
	},
	"SetNXQueued in order": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.SetNXQueued(ctx, "key", "token", longest, backends.Turn{InOrder: true})
	},
	"SetNXNumbered": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.SetNXNumbered(ctx, "key", "token", longest, backends.Turn{})
	},
	"SetNXNumbered for a free key": func(ctx context.Context, s *Store) (backends.Result, error) {
		s.turns.FoundEmpty("key")
		return s.SetNXNumbered(ctx, "key", "token", longest, backends.Turn{Waiter: "w"})
	},
	"SetNXNumbered with a position": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.SetNXNumbered(ctx, "key", "token", longest, backends.Turn{Waiter: "w"})
	},
	"SetNXFenced": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.SetNXFenced(ctx, "key", "token", longest)
	},
	"Enter": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.Enter(ctx, "key", "token", longest, backends.Admission{Limit: 2})
	},
	"Enter with a position": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.Enter(ctx, "key", "token", longest, backends.Admission{Limit: 2, Turn: backends.Turn{Waiter: "w"}})
	},
	"Enter with a number and a slot": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.Enter(ctx, "key", "token", longest, backends.Admission{Limit: 2, Numbered: true, Slots: true})
	},
	"Transfer": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.Transfer(ctx, "key", "from", "token", longest, false)
	},
	"Transfer with a number": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.Transfer(ctx, "key", "from", "token", longest, true)
	},
	"TransferHold": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.TransferHold(ctx, "key", "from", "token", longest, "", false)
	},
	"TransferHold with a number": func(ctx context.Context, s *Store) (backends.Result, error) {
		return s.TransferHold(ctx, "key", "from", "token", longest, "", true)
	},
	"SetNXForever": func(ctx context.Context, s *Store) (backends.Result, error) {
		ok, err := s.SetNXForever(ctx, "key", "token")
		return backends.Result{OK: ok}, err
	},
	"GetSet": func(ctx context.Context, s *Store) (backends.Result, error) {
		old, found, err := s.GetSet(ctx, "key", "token")
		return backends.Result{OK: err == nil && !found && old == ""}, err
	},
	"SetBit": func(ctx context.Context, s *Store) (backends.Result, error) {
		ok, err := s.SetBit(ctx, "key", 0, true)
		return backends.Result{OK: ok}, err
	},
}

// TestNoWayToAGrantCountsIfQuarantineBegins: the server that granted may have forgotten that another
// holder has the lock. Quarantine begins while any one of the commands of the call is on its way.
func TestNoWayToAGrantCountsIfQuarantineBegins(t *testing.T) {
	for options, opts := range map[string][]Option{
		"no options":                        nil,
		"without wake-ups":                  {WithoutWakes()},
		"without scripts":                   {WithoutScripts()},
		"with replicas":                     {WithReplicas(1, longest)},
		"without scripts and with replicas": {WithoutScripts(), WithReplicas(1, longest)},
	} {
		for _, held := range []bool{false, true} {
			for i := range 4 {
				shares, sha := i%2 == 1, i < 2
				played := 0
				for way, ask := range ways {
					synctest.Test(t, func(t *testing.T) {
						what := fmt.Sprintf("%s, %s, held: %v, knows scripts: %v, shares round trips: %v", way, options, held, sha, shares)
						play := func(at int) (*forgetting, backends.Result, error) {
							f := &forgetting{q: driver.NewQuarantine(), held: held, sha: sha, at: at}
							var exec driver.Executor = f
							if shares {
								exec = pipelined{f}
							}
							s := New(exec, append([]Option{WithMaxTTL(longest), Observed("", f.q)}, opts...)...)
							s.turns.Add(&turns.Turn{Key: "key", Waiter: "w", Wake: func() {}})
							_ = f.q.Saw("", serverA.String(), nil)
							s.multi.Store(true) // or the first transaction of a store tries MULTI
							r, err := ask(t.Context(), s)
							return f, r, err
						}
						all, r, err := play(0)
						if backends.Permanent(err) {
							return // the options refuse this call
						}
						if !r.OK && err == nil && held && strings.HasSuffix(way, "free key") {
							return // only tells that the key is not free
						}
						if err != nil || !r.OK {
							t.Fatalf("%s: %+v, %v; want a grant", what, r, err)
						}
						played++
						for at := 1; at <= all.sent; at++ {
							_, r, err := play(at)
							refused, ok := errors.AsType[*QuarantineError](err)
							if r.OK || !ok {
								t.Errorf("%s: quarantine begins at command %d of %d: %+v, %v; want quarantine", what, at, all.sent, r, err)
								continue
							}
							if backends.Unsent(refused) && at == all.sent {
								t.Errorf("%s: at command %d of %d: %v: there is something to clean up", what, at, all.sent, err)
							}
						}
					})
				}
				if played < 6 {
					t.Errorf("%s: %d calls of %d grant", options, played, len(ways))
				}
			}
		}
	}
}
