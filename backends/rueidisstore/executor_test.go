package rueidisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/rueidis"
)

// What an Executor promises and no Store shows.

func open(t testing.TB, o client.ClientOption) executor {
	t.Helper()
	o.DisableCache = true
	c, err := client.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return newExecutor(c)
}

func at(addrs ...string) client.ClientOption { return client.ClientOption{InitAddress: addrs} }

func TestRepliesThatOnlyRESP3HasAreAsRESP2WouldHaveThem(t *testing.T) {
	e := open(t, at(redistest.Start(t).Addr()))
	for script, want := range map[string]any{
		"return {map={a='b'}}":     []any{"a", "b"},
		"return {set={a=true}}":    []any{"a"},
		"return true":              int64(1),
		"return {double=1.5}":      "1.5",
		"return {big_number='12'}": "12",
		"return {verbatim_string={string='text', format='txt'}}": "text",
	} {
		if got, err := e.Do(t.Context(), "EVAL", "redis.setresp(3); "+script, 0); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %#v, %v; want %#v", script, got, err, want)
		}
	}
}

func TestArgumentsOfAllTypesArriveAsTheyAreWritten(t *testing.T) {
	e := open(t, at(redistest.Start(t).Addr()))
	got, err := e.Do(t.Context(), "EVAL", "return ARGV", 0, "a b\x00", -1, int64(1)<<60, uint32(3), uint64(1)<<63)
	if want := []any{"a b\x00", "-1", "1152921504606846976", "3", "9223372036854775808"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ARGV = %q, %v", got, err)
	}
}

func TestAConnectionThatCannotBeUnwatchedIsThrownAway(t *testing.T) {
	server := redistest.Start(t)
	if _, err := server.Do("ACL", "SETUSER", "locks", "on", ">any", "~*", "+@all", "-unwatch"); err != nil {
		t.Fatal(err)
	}
	o := at(server.Addr())
	o.Username, o.Password = "locks", "any"
	e := open(t, o)
	for range 3 {
		err := e.Pinned(t.Context(), "a", func(c driver.Conn) error {
			got, err := c.Pipeline(t.Context(), []any{"MULTI"}, []any{"INCR", "b"}, []any{"EXEC"}, []any{"WATCH", "a"})
			if err == nil && got[2] == nil {
				t.Error("the key is still watched")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.Do("INCR", "a"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnAbandonedCommandComesBeforeItsCleanUp: what a call has queued whose ctx ends is sent
// nevertheless, and what follows is behind it, also if there are more connections.
func TestAnAbandonedCommandComesBeforeItsCleanUp(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	for _, exponent := range []int{-1, 3} { // one connection, and eight
		o := at(proxy.Addr())
		o.PipelineMultiplex = exponent
		e := open(t, o)
		for range 200 { // until there are all of them
			if err := e.client.Do(t.Context(), e.client.B().Get().Key("b").Build()).Error(); !client.IsRedisNil(err) {
				t.Fatal(err)
			}
		}
		for range 20 {
			late := proxy.Add(redistest.Rule{Fault: redistest.DelayRequest, Delay: 10 * time.Millisecond, Commands: []string{"SET"}})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-late.Fired()
				cancel()
			}()
			if _, err := e.Once(ctx, "SET", "a", "token"); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("Once = %v", err)
			}
			if n, err := e.Once(t.Context(), "DEL", "a"); n != int64(1) || err != nil {
				t.Fatalf("with PipelineMultiplex %d: DEL = %v, %v", exponent, n, err)
			}
		}
	}
}

func TestADeadlineDoesNotBreakTheConnectionForOthers(t *testing.T) {
	server := redistest.Start(t)
	e := open(t, at(server.Addr())) // nothing was sent on it yet
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	come := make(chan struct{})
	time.AfterFunc(20*time.Millisecond, func() { close(come) }) // when the first call waits, on most machines
	var others sync.WaitGroup
	for range 8 {
		others.Go(func() {
			<-come
			if got, err := e.Once(t.Context(), "ECHO", "text"); got != "text" || err != nil {
				t.Errorf("Once of another = %v, %v", got, err)
			}
		})
	}
	if _, err := e.Once(ctx, "GET", "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Once = %v", err)
	}
	server.Resume()
	others.Wait()
}

// Calls share a dial. When the ctx of the call that dials ends, the others dial anew.
func TestADialThatAnotherCallGivesUpIsTriedAgain(t *testing.T) {
	for name, call := range map[string]func(context.Context, executor) error{
		"Once": func(ctx context.Context, e executor) error {
			_, err := e.Once(ctx, "SET", "a", "token")
			return err
		},
		"OnceAll": func(ctx context.Context, e executor) error {
			all := []*driver.Command{{Args: []any{"SET", "a", "token"}}, {Args: []any{"SET", "b", "token"}}}
			pipeliner{e}.OnceAll(ctx, all)
			for _, c := range all {
				if c.Alone && ctx.Err() == nil { // as the lane does
					_, c.Err = e.Once(ctx, c.Args...)
				}
			}
			return errors.Join(all[0].Err, all[1].Err)
		},
	} {
		for end, connect := range map[string]func(client.ClientOption) (client.Client, error){
			"cancellation": client.NewClient,
			"deadline": func(o client.ClientOption) (client.Client, error) {
				_, c, err := Open(o, redisstore.WithoutQuarantine())
				return c, err
			},
		} {
			t.Run(name+", "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := embedded.New()
					t.Cleanup(server.Close)
					dials := 0
					o := at("127.0.0.1:1")
					o.ForceSingleClient, o.DisableCache = true, true
					o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
						switch dials++; dials {
						case 1: // of NewClient
							return nil, errors.New("refused")
						case 2:
							<-ctx.Done()
							return nil, ctx.Err() // as the handshake of TLS does
						}
						return server.Dial(ctx, "tcp", addr)
					}
					c, err := connect(o)
					if c == nil {
						t.Fatal(err)
					}
					t.Cleanup(c.Close)
					e := newExecutor(c)
					first, cancel := context.WithCancel(t.Context())
					if end == "deadline" {
						first, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
					}
					var calls sync.WaitGroup
					calls.Go(func() {
						if err := call(first, e); !errors.Is(err, first.Err()) {
							t.Errorf("the call that dials: %v", err)
						}
					})
					synctest.Wait()
					for range 3 {
						calls.Go(func() {
							if err := call(t.Context(), e); err != nil {
								t.Errorf("a call that shares the dial: %v", err)
							}
						})
					}
					synctest.Wait()
					if end != "deadline" {
						cancel()
					}
					calls.Wait()
					cancel()
					if dials != 3 {
						t.Errorf("%d dials; want 3", dials)
					}
				})
			})
		}
	}
}

func TestACacheThatTheServerDoesNotKnowKeepsCallsFromBeingSent(t *testing.T) {
	server := embedded.New()
	t.Cleanup(server.Close)
	c, err := client.NewClient(client.ClientOption{
		InitAddress: []string{"127.0.0.1:1"}, ForceSingleClient: true,
		DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return server.Dial(ctx, "tcp", addr)
		},
	})
	if c == nil || err == nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	_, err = newExecutor(c).Once(t.Context(), "SET", "a", "token")
	if !errors.Is(err, client.ErrNoCache) || !backends.Unsent(err) {
		t.Errorf("Once = %v; not done is %v", err, backends.Unsent(err))
	}
}

func TestErrorsOfOthersAreNotTakenForTheEndOfACtx(t *testing.T) {
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	if err := (executor{state: new(state), cluster: true, slot: -1}).translate(over, timeout); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := (executor{state: new(state), cluster: true, slot: -1}).translate(gone, timeout); !errors.Is(err, context.Canceled) || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the cancellation: %v", err)
	}
	for _, foreign := range []error{context.DeadlineExceeded, context.Canceled, &net.OpError{Op: "dial", Err: context.Canceled}} {
		err := (executor{state: new(state), cluster: true, slot: -1}).translate(t.Context(), foreign)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("of another's ctx: %v", err)
		}
		if notDone := backends.Unsent(err); notDone != errors.Is(foreign, context.Canceled) {
			t.Errorf("%v: not done is %v", err, notDone)
		}
		wait := net.Error(nil)
		if errors.Is(foreign, context.DeadlineExceeded) != (errors.As(err, &wait) && wait.Timeout()) {
			t.Errorf("%v is %v", foreign, err)
		}
	}
}

func TestTheNodeOfAClusterIsThatOfTheFirstKey(t *testing.T) {
	for _, c := range []struct {
		args []any
		key  any
	}{
		{[]any{"SET", "key", "token", "NX"}, "key"},
		{[]any{"EVALSHA", "digest", "2", "key", "other", "token"}, "key"},
		{[]any{"EVAL", "source", 1, "key"}, "key"},
		{[]any{"EVAL", "source", 0, "token"}, nil},
		{[]any{"INFO", "server"}, nil},
		{[]any{"CONFIG", "GET", "appendonly"}, nil},
		{[]any{"TIME"}, nil},
		{[]any{"MULTI"}, nil},
	} {
		if key, ok := firstKey(c.args); ok != (c.key != nil) || ok && key != c.key {
			t.Errorf("%v: %q, %t", c.args, key, ok)
		}
	}
}

func TestSlotsAreReadFromTheReplyOfANode(t *testing.T) {
	at := func(host any, port int64) []any { return []any{host, port, "id"} }
	for name, c := range map[string]struct {
		reply any
		want  map[int]string // nil: nothing is told
	}{
		"two nodes": {
			[]any{[]any{int64(0), int64(99), at("a", 1), at("replica", 2)}, []any{int64(100), int64(16383), at("::1", 3)}},
			map[int]string{0: "a:1", 99: "a:1", 100: "[::1]:3", 16383: "[::1]:3"},
		},
		"itself":     {[]any{[]any{int64(5), int64(6), at("", 1)}}, map[int]string{4: "", 5: "asked:1", 7: ""}},
		"no name":    {[]any{[]any{int64(5), int64(6), at(nil, 1)}}, map[int]string{5: "asked:1"}},
		"too far":    {[]any{[]any{int64(5), int64(16384), at("a", 1)}}, nil},
		"too little": {[]any{[]any{int64(5), int64(6)}, "text", []any{int64(-1), int64(6), at("a", 1)}}, nil},
		"refused":    {nil, nil},
	} {
		e := executor{state: new(state)}
		all := e.read("asked:9", c.reply)
		if (all == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, all)
			continue
		}
		e.nodes.bySlot.Store(all)
		for slot, want := range c.want {
			got := ""
			if f := e.nodes.at(slot); f != nil {
				got = f.addr()
			}
			if got != want {
				t.Errorf("%s: slot %d is on %q; want %q", name, slot, got, want)
			}
		}
		if all == nil {
			continue
		}
		moved := []any{[]any{int64(5), int64(6), at("other", 1)}, []any{int64(7), int64(16383), at("a", 1)}, []any{int64(0), int64(4), at("asked", 1)}}
		for _, f := range e.read("asked:9", moved) {
			for _, before := range all {
				if f != nil && before != nil && f.addr() == before.addr() && f != before {
					t.Fatalf("%s: %s is another node after the next reply", name, f.addr())
				}
			}
		}
	}
}

// The first call after Close finds that the client is closed, and its outcome is unknown. Later calls say
// "closed" at once: permanent for one server, and not done for a cluster, whose client says the same while
// a node leaves it.
func TestAClosedClientIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		addrs     []string
		permanent bool
	}{
		"one server": {[]string{redistest.Start(t).Addr()}, true},
		"a cluster":  {redistest.StartCluster(t, 1, 0).Addrs(), false},
	} {
		e := open(t, at(c.addrs...))
		if e.Clustered() == c.permanent {
			t.Fatalf("%s: clustered is %v", name, e.Clustered())
		}
		e.client.Close()
		for _, known := range []bool{false, true} {
			var err error
			for err == nil { // Close of a cluster's client returns before its connections are closed
				_, err = e.Do(t.Context(), "SET", "key", "token")
			}
			wire, ok := errors.AsType[*driver.WireError](err)
			if !ok {
				t.Fatalf("%s: %v of type %T", name, err, err)
			}
			permanent, unsent := known && c.permanent, known && !c.permanent
			if word := wire.ErrorType(); word != "closed" || wire.Permanent() != permanent || wire.Unsent() != unsent {
				t.Errorf("%s: %v: word %s, permanent: %v, unsent: %v", name, err, word, wire.Permanent(), wire.Unsent())
			}
		}
	}
}
