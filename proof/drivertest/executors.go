package drivertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// executorSentence is one about the Executor alone.
type executorSentence struct {
	says string
	test func(t *testing.T, open func(*testing.T, Server) driver.Executor)
}

var executors = []executorSentence{
	{"replies are in the terms of the family", replies},
	{"Pipeline replies in order, with errors in their position", pipelineOrder},
	{"Pinned watches on one connection, and unwatches afterwards", pinnedWatches},
	{"a Subscription tells its events apart", events},
	{"an error reply leaves the Subscription usable and in order", deniedRequests},
	{"Close ends a Receive", closeEnds},
	{"a ctx that has ended sends nothing", endedCtx},
	{"Pinned ends with its ctx on a server that hangs", pinnedEnds},
	{"a cancellation that meets the reply harms nothing", cancellations},
}

// texts are replies and errors without the addresses that some libraries tell.
func texts(reply any) any {
	switch reply := reply.(type) {
	case *driver.ReplyError:
		return errorText(reply.Text)
	case error:
		return errorText(reply.Error())
	case []any:
		list := make([]any, len(reply))
		for i := range reply {
			list[i] = texts(reply[i])
		}
		return list
	}
	return reply
}

type errorText string

func replies(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	e := open(t, Server{Addr: redistest.Start(t).Addr()})
	script := `return {1, 'a', false, {'b', {}, redis.error_reply('OOPS inside'), redis.error_reply('ERR generic')}, redis.status_reply('fine')}`
	want := []any{int64(1), "a", nil, []any{"b", []any{}, errorText("OOPS inside"), errorText("ERR generic")}, "fine"}
	for name, call := range map[string]func(context.Context, ...any) (any, error){"Do": e.Do, "Once": e.Once} {
		if got, err := call(t.Context(), "EVAL", script, 0); err != nil || !reflect.DeepEqual(texts(got), want) {
			t.Errorf("%s = %#v, %v", name, got, err)
		}
		if got, err := call(t.Context(), "GET", "nothing"); got != nil || err != nil {
			t.Errorf("%s of nothing = %v, %v", name, got, err)
		}
		for _, text := range []string{"OOPS outside", "ERR DB index", "ERR ERR twice"} {
			_, err := call(t.Context(), "EVAL", "return redis.error_reply(ARGV[1])", 0, text)
			if reply := (*driver.ReplyError)(nil); !errors.As(err, &reply) || reply.Text != text {
				t.Errorf("%s = %v, want %s", name, err, text)
			}
		}
		if info, _ := call(t.Context(), "INFO", "server"); !strings.HasPrefix(fmt.Sprint(info), "# Server") {
			t.Errorf("%s of INFO = %q", name, info)
		}
		policy := []any{"maxmemory-policy", "noeviction"}
		if got, err := call(t.Context(), "CONFIG", "GET", policy[0]); err != nil || !reflect.DeepEqual(got, policy) {
			t.Errorf("%s of CONFIG = %v, %v", name, got, err)
		}
	}
}

func pipelineOrder(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	e := open(t, Server{Addr: redistest.Start(t).Addr()})
	err := e.Pinned(t.Context(), "a", func(c driver.Conn) error {
		got, err := c.Pipeline(t.Context(), []any{"SET", "a", "1"}, []any{"LPUSH", "a", "x"}, []any{"GET", "a"},
			[]any{"MULTI"}, []any{"INCR", "a"}, []any{"LPUSH", "a", "x"}, []any{"EXEC"})
		const wrong errorText = "WRONGTYPE Operation against a key holding the wrong kind of value"
		want := []any{"OK", wrong, "1", "OK", "QUEUED", "QUEUED", []any{int64(2), wrong}}
		if err != nil || !reflect.DeepEqual(texts(got), want) {
			t.Errorf("Pipeline = %#v, %v", got, err)
		}
		got, err = c.Pipeline(t.Context()) // on the same connection, which is still good
		if len(got) != 0 || err != nil {
			t.Errorf("Pipeline of nothing = %v, %v", got, err)
		}
		got, err = c.Pipeline(t.Context(), []any{"GET", "a"})
		if err != nil || !reflect.DeepEqual(got, []any{"2"}) {
			t.Errorf("Pipeline = %v, %v", got, err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("Pinned = %v", err)
	}
}

func pinnedWatches(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := open(t, Server{Addr: proxy.Addr()})
	exec := func(c driver.Conn) any {
		t.Helper()
		got, err := c.Pipeline(t.Context(), []any{"MULTI"}, []any{"SET", "b", "1"}, []any{"EXEC"})
		if err != nil {
			t.Fatal(err)
		}
		return got[2]
	}
	id := func(c driver.Conn) any {
		t.Helper()
		got, err := c.Pipeline(t.Context(), []any{"CLIENT", "ID"})
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	var first any
	own := errors.New("own")
	err := e.Pinned(t.Context(), "a", func(c driver.Conn) error {
		first = id(c)
		for _, changed := range []bool{false, true} {
			if _, err := c.Pipeline(t.Context(), []any{"WATCH", "a"}, []any{"GET", "a"}); err != nil {
				t.Fatal(err)
			}
			if changed {
				do(t, server, "INCR", "a")
			}
			if got := exec(c); (got == nil) != changed {
				t.Errorf("EXEC = %v when changed: %t", got, changed)
			}
		}
		_, err := c.Pipeline(t.Context(), []any{"WATCH", "a"})
		return errors.Join(err, own)
	})
	if !errors.Is(err, own) || proxy.Count("UNWATCH") != 1 {
		t.Fatalf("Pinned = %v after %v", err, proxy.Seen())
	}
	do(t, server, "INCR", "a")
	err = e.Pinned(t.Context(), "a", func(c driver.Conn) error {
		if got := exec(c); got == nil {
			t.Error("the key is still watched")
		}
		if again := id(c); again != first {
			t.Errorf("connection %v was not used again, but %v", first, again)
		}
		if _, err := c.Pipeline(t.Context(), []any{"WATCH", "a"}, []any{"MULTI"}, []any{"EXEC"}); err != nil {
			t.Error(err)
		}
		return own
	})
	if err != own || proxy.Count("UNWATCH") != 1 || proxy.Count("DISCARD") != 0 { //nolint:errorlint // as it is
		t.Errorf("Pinned = %v after %v: nothing was left watched", err, proxy.Seen())
	}
}

func events(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	server := redistest.Start(t)
	s := open(t, Server{Addr: server.Addr()}).Subscribe(t.Context())
	for _, step := range []struct {
		request func() error
		want    driver.Event
	}{
		{s.Ping, driver.Event{Kind: driver.EventPong}}, // the server answers otherwise before anything is subscribed
		{func() error { return s.Subscribe("a") }, driver.Event{Kind: driver.EventSubscribed, Channel: "a"}},
		{func() error { return s.Subscribe("b") }, driver.Event{Kind: driver.EventSubscribed, Channel: "b"}},
		{s.Ping, driver.Event{Kind: driver.EventPong}},
		{func() error { do(t, server, "PUBLISH", "b", "text"); return nil }, driver.Event{Kind: driver.EventMessage, Channel: "b", Payload: "text"}},
		{func() error { return s.Unsubscribe("a") }, driver.Event{Kind: driver.EventUnsubscribed, Channel: "a"}},
		{func() error { return s.Unsubscribe("b") }, driver.Event{Kind: driver.EventUnsubscribed, Channel: "b"}},
		{func() error { return s.Unsubscribe("b") }, driver.Event{Kind: driver.EventUnsubscribed, Channel: "b"}}, // once more
	} {
		if err := step.request(); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Receive(); got != step.want || err != nil {
			t.Errorf("Receive = %+v, %v, want %+v", got, err, step.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

func deniedRequests(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	server := redistest.Start(t)
	do(t, server, "ACL", "SETUSER", "locks", "on", ">any", "+@all", "-ping", "-unsubscribe", "resetchannels", "&a", "&c*")
	s := open(t, Server{Addr: server.Addr(), User: "locks", Password: "any"}).Subscribe(t.Context())
	defer func() { _ = s.Close() }()
	var want, got []string
	ask := func(answer string, err error) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, answer)
	}
	for i := range 100 { // a library may send some of them together
		ask("NOPERM", s.Subscribe("b"))
		ask("a", s.Subscribe("a"))
		ask("NOPERM", s.Ping())
		channel := fmt.Sprint("c", i)
		ask(channel, s.Subscribe(channel))
		ask("NOPERM", s.Unsubscribe("a"))
	}
	for range want {
		event, err := s.Receive()
		if reply := (*driver.ReplyError)(nil); errors.As(err, &reply) {
			got = append(got, reply.Code())
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Channel)
	}
	if !slices.Equal(got, want) {
		t.Errorf("events: %v", got)
	}
}

func closeEnds(t *testing.T, open func(*testing.T, Server) driver.Executor) {
	server := redistest.Start(t)
	if err := open(t, Server{Addr: server.Addr()}).Subscribe(t.Context()).Close(); err != nil {
		t.Errorf("Close before anything = %v", err)
	}
	for _, paused := range []bool{false, true} {
		s := open(t, Server{Addr: server.Addr()}).Subscribe(t.Context())
		if err := s.Subscribe("a"); err != nil {
			t.Fatal(err)
		}
		received := make(chan error)
		go func() {
			for {
				if _, err := s.Receive(); err != nil {
					received <- err
					return
				}
			}
		}()
		if paused {
			server.Pause()
			if err := s.Ping(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		<-received //nolint:errcheck // the Close causes it
		if err := s.Subscribe("b"); err == nil {
			t.Error("Subscribe after Close = nil")
		}
		_ = s.Close() // again, as the family does
		if paused {
			server.Resume()
		}
	}
}
