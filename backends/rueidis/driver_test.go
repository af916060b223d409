package rueidis

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver/drivertest"
	client "github.com/redis/rueidis"
)

func TestDriver(t *testing.T) {
	options := func(to drivertest.Server) client.ClientOption {
		o := at(to.Addr)
		o.Username, o.Password = to.User, to.Password
		o.Dialer.KeepAlive, o.ConnWriteTimeout = time.Hour, time.Minute // no pings in between
		return o
	}
	executors := map[string]func(*testing.T, drivertest.Server) driver.Executor{}
	for name, resp2 := range map[string]bool{"RESP2": true, "RESP3": false} {
		executors[name] = func(t *testing.T, to drivertest.Server) driver.Executor {
			o := options(to)
			o.AlwaysRESP2 = resp2
			return open(t, o)
		}
	}
	drivertest.Run(t, drivertest.Harness{
		Store: func(t *testing.T, to drivertest.Server, opts ...redisstore.Option) *redisstore.Store {
			o := options(to)
			o.ForceSingleClient, o.DisableCache = true, true // not an error if it can't connect
			c, err := client.NewClient(o)
			if c == nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			return New(c, opts...)
		},
		Executors: executors,
		Nil:       map[string]*redisstore.Store{"nil": New(nil)},
	})
}
