package redigo

import (
	"testing"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver/drivertest"
)

func TestDriver(t *testing.T) {
	connect := func(t *testing.T, to drivertest.Server) executor {
		return open(t, to.Addr, client.DialUsername(to.User), client.DialPassword(to.Password))
	}
	drivertest.Run(t, drivertest.Harness{
		Store: func(t *testing.T, to drivertest.Server, opts ...redisstore.Option) *redisstore.Store {
			return New(connect(t, to).pool, opts...)
		},
		Executors: map[string]func(*testing.T, drivertest.Server) driver.Executor{
			"RESP2": func(t *testing.T, to drivertest.Server) driver.Executor { return connect(t, to) },
		},
		Nil: map[string]*redisstore.Store{"nil": New(nil)},
	})
}
