package goredis_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/silent"
	client "github.com/redis/go-redis/v9"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, o := range map[string]client.Options{
		"default options":     {},
		"without a timeout":   {ReadTimeout: -1, WriteTimeout: -1},
		"that follow the ctx": {ContextTimeoutEnabled: true, ReadTimeout: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent.Run(t, server.Addr(), func(t *testing.T, addr string) *redisstore.Store {
				set := o
				set.Addr = addr
				c := client.NewClient(&set)
				t.Cleanup(func() { c.Close() })
				return goredis.New(c)
			}, (*redisstore.Store).Check)
		})
	}
	t.Run("Open", func(t *testing.T) {
		t.Parallel()
		silent.Run(t, server.Addr(), func(t *testing.T, addr string) *redisstore.Store {
			s, c := goredis.Open(&client.Options{Addr: addr}, redisstore.WithoutQuarantine()) // or the new server would be in it
			t.Cleanup(func() { c.Close() })
			return s
		}, (*redisstore.Store).Check)
	})
}
