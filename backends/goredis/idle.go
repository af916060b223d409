package goredis

import (
	"context"
	"net"
	"runtime"
	"sync"
	"weak"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/go-redis/v9"
)

// testIdle has c test connections that were idle, before they are used again: those that c opens from
// now on. Go-redis has a test of its own, which finds connections that the server has closed, but not
// those with TLS, nor those that a NAT has forgotten. A client gets one hook, however many stores are
// made on it: each one costs every dial and every transaction.
func testIdle(c Client) {
	switch c := c.(type) {
	case interface {
		OnNewNode(fn func(*client.Client))
		Options() *client.ClusterOptions
	}:
		if isFirst(&clusters, c.Options()) {
			c.OnNewNode(func(node *client.Client) { node.AddHook(new(idleHook)) })
		}
	case interface {
		AddHook(client.Hook)
		Options() *client.Options
	}:
		if isFirst(&clients, c.Options()) {
			c.AddHook(new(idleHook))
		}
	}
}

// The clients that have the hook, by their options: each client has a copy of its own.
var clients, clusters sync.Map

func isFirst[T any](of *sync.Map, options *T) bool {
	key := weak.Make(options)
	if _, known := of.LoadOrStore(key, nil); known {
		return false
	}
	runtime.AddCleanup(options, func(key weak.Pointer[T]) { of.Delete(key) }, key)
	return true
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
