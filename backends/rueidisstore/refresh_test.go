package rueidisstore_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/rueidis"
)

// rueidis ends a connection with the error of a refresh. A grant that was sent on it may have been done, though
// the error looks as if no connection was opened. The credentials come back later.
func TestAFailedRefreshOfCredentialsLeavesAGrantUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		openings int32 // calls of AuthCredentialsFn that open the connection
		connect  func(client.ClientOption) *redisstore.Store
	}{
		"Open": {2, func(o client.ClientOption) *redisstore.Store {
			store, _ := open(t, o)
			return store
		}},
		"Quarantine": {2, func(o client.ClientOption) *redisstore.Store {
			quarantine := rueidisstore.Quarantine(&o)
			return rueidisstore.New(connect(t, o), quarantine)
		}},
		"New": {1, func(o client.ClientOption) *redisstore.Store { return rueidisstore.New(connect(t, o)) }},
	} {
		for fault, refused := range map[string]bool{"no way to the service of tokens": false, "AUTH is refused": true} {
			t.Run(name+", "+fault, func(t *testing.T) {
				server := redistest.Start(t)
				command(t, server, "ACL", "SETUSER", "locks", "on", ">right", "~*", "&*", "+@all")
				proxy := redistest.NewProxy(t, server.Addr())
				var calls atomic.Int32
				var back atomic.Bool
				begin := make(chan struct{})
				o := options(proxy.Addr())
				o.ForceSingleClient = true
				o.ConnWriteTimeout, o.Dialer.KeepAlive = time.Minute, time.Hour
				o.AuthCredentialsFn = func(client.AuthCredentialsContext) (client.AuthCredentials, error) {
					n := calls.Add(1)
					if n == c.openings+1 {
						<-begin
					}
					switch {
					case n <= c.openings:
						return client.AuthCredentials{Username: "locks", Password: "right", RefreshAfter: time.Now()}, nil
					case back.Load():
						return client.AuthCredentials{Username: "locks", Password: "right"}, nil
					case refused:
						return client.AuthCredentials{Username: "locks", Password: "wrong"}, nil
					}
					_, err := net.Dial("tcp", "127.0.0.1:1")
					return client.AuthCredentials{}, err
				}
				store := c.connect(o)
				setNX(t, store, "warm")

				server.Pause()
				auths, sets := proxy.Count("AUTH"), proxy.Count("SET")
				if refused {
					close(begin)
					eventually(t, "AUTH is sent", func() bool { return proxy.Count("AUTH") > auths })
				}
				proxy.Add(redistest.Rule{Fault: redistest.DelayReply, Delay: time.Minute, Commands: []string{"SET"}})
				done := make(chan error, 1)
				go func() {
					_, err := store.SetNX(t.Context(), "a", "token", 20*time.Second)
					done <- err
				}()
				eventually(t, "SET is sent", func() bool { return proxy.Count("SET") > sets })
				server.Resume()
				if !refused {
					close(begin)
				}
				if err := <-done; err == nil || backends.Unsent(err) || backends.Permanent(err) {
					t.Errorf("SetNX = %v; unsent %v, permanent %v; want an unknown outcome", err, backends.Unsent(err), backends.Permanent(err))
				}
				eventually(t, "SET is done", func() bool { return command(t, server, "EXISTS", "a") == int64(1) })
				if _, err := store.DeleteIf(t.Context(), "a", "token"); err == nil || backends.Permanent(err) {
					t.Errorf("DeleteIf without credentials = %v; want an error that is not permanent", err)
				}
				back.Store(true)
				if ok, err := store.DeleteIf(t.Context(), "a", "token"); !ok || err != nil {
					t.Errorf("DeleteIf = %v, %v", ok, err)
				}
			})
		}
	}
}
