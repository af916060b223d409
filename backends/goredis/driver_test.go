package goredis

import (
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver/drivertest"
	client "github.com/redis/go-redis/v9"
)

func TestDriver(t *testing.T) {
	connect := func(t *testing.T, to drivertest.Server, protocol int) *client.Client {
		c := client.NewClient(&client.Options{Addr: to.Addr, Username: to.User, Password: to.Password, Protocol: protocol})
		t.Cleanup(func() { c.Close() })
		return c
	}
	executors := map[string]func(*testing.T, drivertest.Server) driver.Executor{}
	for name, protocol := range map[string]int{"RESP2": 2, "RESP3": 3} {
		executors[name] = func(t *testing.T, to drivertest.Server) driver.Executor {
			return newExecutor(connect(t, to, protocol))
		}
	}
	drivertest.Run(t, drivertest.Harness{
		Store: func(t *testing.T, to drivertest.Server, opts ...redisstore.Option) *redisstore.Store {
			return New(connect(t, to, 0), opts...)
		},
		Executors: executors,
		Nil:       map[string]*redisstore.Store{"nil": New(nil), "a nil pointer": New((*client.Client)(nil))},
	})
}
