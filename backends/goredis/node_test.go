package goredis

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/go-redis/v9"
)

// TestANodeOfAClusterGrantsNothingInQuarantine: the hooks are on the client of the node, and see
// each command and pipeline that goes there. What is no grant goes on.
func TestANodeOfAClusterGrantsNothingInQuarantine(t *testing.T) {
	const addr = "node:6379"
	saw := func(q *driver.Quarantine, run string) {
		_ = q.Saw(addr, fmt.Sprintf("run_id:%s\r\nuptime_in_seconds:1000000\r\nrole:master\r\nmaster_replid:%[1]s\r\n", run), nil)
	}
	for _, c := range []struct {
		begins string
		sent   int // commands that reach the node
		unsent bool
	}{
		{begins: "never", sent: 2},
		{begins: "before", sent: 1, unsent: true},
		{begins: "meanwhile", sent: 2},
	} {
		for _, piped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, pipeline: %v", c.begins, piped), func(t *testing.T) {
				q := driver.NewQuarantine()
				q.PerNode()
				q.Attach(time.Minute, 0)
				saw(q, "A")
				if c.begins == "before" {
					saw(q, "B")
				}
				sent := 0
				reached := func(cmds ...client.Cmder) {
					for _, cmd := range cmds {
						cmd.(once).SetVal("OK")
						sent++
						if c.begins == "meanwhile" && driver.Grants(cmd.Args()) {
							saw(q, "B")
						}
					}
				}
				ctx, n := t.Context(), node{q, addr}
				grant := once{newCommand(ctx, []any{"SET", "key", "token", "NX", "PX", 1000})}
				other := once{newCommand(ctx, []any{"DEL", "key"})}
				var err error
				if piped {
					err = n.ProcessPipelineHook(func(_ context.Context, cmds []client.Cmder) error {
						reached(cmds...)
						return nil
					})(ctx, []client.Cmder{grant, other})
				} else {
					hook := n.ProcessHook(func(_ context.Context, cmd client.Cmder) error {
						reached(cmd)
						return nil
					})
					err = errors.Join(hook(ctx, other), hook(ctx, grant))
				}
				refused, ok := errors.AsType[*driver.QuarantineError](grant.Err())
				switch {
				case other.Err() != nil || sent != c.sent:
					t.Errorf("DEL = %v; %d commands were sent, want %d", other.Err(), sent, c.sent)
				case ok != (c.begins != "never") || (err != nil) != ok:
					t.Errorf("the grant = %v; the hook = %v", grant.Err(), err)
				case ok && refused.Unsent() != c.unsent:
					t.Errorf("%v: unsent is %v", refused, refused.Unsent())
				}
			})
		}
	}
}

// TestAClosedClientIsClosed: that of a cluster may have closed one node only, which has left the
// cluster. Another attempt finds another node.
func TestAClosedClientIsClosed(t *testing.T) {
	one := client.NewClient(&client.Options{Addr: "127.0.0.1:1"})
	cluster := client.NewClusterClient(&client.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	for name, c := range map[string]struct {
		client    Client
		permanent bool
	}{"one server": {one, true}, "a cluster": {cluster, false}} {
		if err := c.client.(interface{ Close() error }).Close(); err != nil {
			t.Fatal(err)
		}
		_, err := New(c.client).SetNX(t.Context(), "key", "token", time.Second)
		wire, ok := errors.AsType[*driver.WireError](err)
		if !ok {
			t.Fatalf("%s: %v of type %T", name, err, err)
		}
		if word := wire.ErrorType(); word != "closed" || wire.Permanent() != c.permanent || wire.Unsent() == c.permanent {
			t.Errorf("%s: %v: word %s, permanent: %v, unsent: %v", name, err, word, wire.Permanent(), wire.Unsent())
		}
	}
}
