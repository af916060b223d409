package goredis

import (
	"context"
	"net"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/go-redis/v9"
)

// testIdle has c test connections that were idle, before they are used again: those that c opens from
// now on. Go-redis has a test of its own, which finds connections that the server has closed, but not
// those with TLS, nor those that a NAT has forgotten.
func testIdle(c Client) {
	switch c := c.(type) {
	case interface{ OnNewNode(fn func(*client.Client)) }: // of a cluster
		c.OnNewNode(func(node *client.Client) { node.AddHook(new(idleHook)) })
	case interface{ AddHook(client.Hook) }:
		c.AddHook(new(idleHook))
	}
}

type idleHook struct{ idle driver.Idle }

func (h *idleHook) DialHook(next client.DialHook) client.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return h.idle.Watch(c), nil
	}
}

func (*idleHook) ProcessHook(next client.ProcessHook) client.ProcessHook { return next }

func (*idleHook) ProcessPipelineHook(next client.ProcessPipelineHook) client.ProcessPipelineHook {
	return next
}
