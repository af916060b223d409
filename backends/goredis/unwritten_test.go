package goredis_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// curious is a hook that looks at the arguments, before a command and after it, as tracing does.
type curious struct{}

func (curious) DialHook(next client.DialHook) client.DialHook { return next }

func (curious) ProcessHook(next client.ProcessHook) client.ProcessHook {
	return func(ctx context.Context, cmd client.Cmder) error {
		defer cmd.Args()
		cmd.Args()
		return next(ctx, cmd)
	}
}

func (curious) ProcessPipelineHook(next client.ProcessPipelineHook) client.ProcessPipelineHook {
	return func(ctx context.Context, cmds []client.Cmder) error {
		for _, cmd := range cmds {
			cmd.Args()
			defer cmd.Args()
		}
		return next(ctx, cmds)
	}
}

// Whether a command was written is found out by a question for its arguments. A hook that asks
// takes the knowledge away, and nothing else: neither the reply, nor the caution.
func TestAHookThatLooksAtTheArgumentsChangesNoAnswer(t *testing.T) {
	server := redistest.Start(t)
	c := dial(t, &client.Options{Addr: server.Addr(), MaxRetries: -1})
	c.AddHook(curious{})
	store := goredis.New(c)
	if r, err := store.SetNX(t.Context(), "a", "token", 20*time.Second); !r.OK || err != nil {
		t.Errorf("SetNX = %+v, %v", r, err)
	}
	if r, err := store.SetNX(t.Context(), "a", "other", 20*time.Second); r.OK || r.Left <= 0 || err != nil {
		t.Errorf("SetNX of another = %+v, %v", r, err)
	}
	if ok, err := store.DeleteIf(t.Context(), "a", "token"); !ok || err != nil {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // to which a connection can be made, but is not served
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, hooks := range map[string][]client.Hook{"no hook": nil, "a hook": {curious{}}} {
		c := dial(t, &client.Options{Addr: silent.Addr().String(), MaxRetries: -1, ReadTimeout: 50 * time.Millisecond})
		for _, hook := range hooks {
			c.AddHook(hook)
		}
		_, err := goredis.New(c).SetNX(t.Context(), "a", "token", 20*time.Second)
		if unsent := backends.Unsent(err); err == nil || unsent != (hooks == nil) {
			t.Errorf("%s: %v; unsent %v", name, err, unsent)
		}
	}
}

// The library sends a renewal again. That it could not reach the server then says nothing of the first try.
func TestARenewalThatWasSentAndCouldNotBeSentAgainIsUnknown(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var cut atomic.Bool
	store, c := goredis.Open(&client.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if cut.Load() {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		return new(net.Dialer).DialContext(ctx, "tcp", proxy.Addr())
	}})
	defer c.Close()
	if r, err := store.SetNX(t.Context(), "key", "token", 5*time.Second); !r.OK || err != nil {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
	if ok, err := store.ExpireIf(t.Context(), "key", "token", 6*time.Second); !ok || err != nil { // the server has the script
		t.Fatalf("ExpireIf = %v, %v", ok, err)
	}
	proxy.Add(redistest.Rule{Fault: redistest.CutReply, Commands: []string{"EVALSHA"}, Times: 1})
	cut.Store(true)
	ok, err := store.ExpireIf(t.Context(), "key", "token", 20*time.Second)
	if ok || err == nil || backends.Unsent(err) || strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("ExpireIf = %v, %v; want an unknown outcome", ok, err)
	}
	if left, err := server.Do("PTTL", "key"); err != nil || left.(int64) < 10_000 {
		t.Errorf("PTTL = %v, %v; want what was sent first", left, err)
	}
}
