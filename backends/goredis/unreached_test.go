package goredis_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	client "github.com/redis/go-redis/v9"
)

func TestAClusterOfWhichNothingIsReachedIsAFault(t *testing.T) {
	errUnplugged := errors.New("unplugged")
	c := client.NewClusterClient(&client.ClusterOptions{
		Addrs: []string{"127.0.0.1:1"}, MaxRedirects: -1, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errUnplugged },
	})
	defer c.Close()
	for mode, opts := range map[string][]redisstore.Option{"scripts": nil, "no scripts": {redisstore.WithoutScripts()}} {
		ok, err := goredis.New(c, opts...).ExpireIf(t.Context(), "key", "token", time.Second)
		if ok || !errors.Is(err, errUnplugged) {
			t.Errorf("%s: ExpireIf = %v, %v", mode, ok, err)
		}
	}
}

// TestOpenKeepsTheHookOfItsCaller: an embedded server tells no uptime, and so passes quarantine.
func TestOpenKeepsTheHookOfItsCaller(t *testing.T) {
	server := embedded.New()
	defer server.Close()
	errHook := errors.New("not today")
	called := 0
	store, c := goredis.Open(&client.Options{Addr: "127.0.0.1:1", Dialer: server.Dial, OnConnect: func(context.Context, *client.Conn) error {
		if called++; called == 1 {
			return errHook
		}
		return nil
	}})
	defer c.Close()
	if _, err := store.SetNX(t.Context(), "a", "token", time.Second); !errors.Is(err, errHook) {
		t.Errorf("SetNX = %v, want what the hook says", err)
	}
	if res, err := store.SetNX(t.Context(), "a", "token", time.Second); err != nil || !res.OK || called != 2 {
		t.Errorf("SetNX = %+v, %v after %d calls of the hook", res, err, called)
	}
}
