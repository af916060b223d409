package redisstore_test

import (
	"errors"
	"os"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// Some tests need a real server, and so the store of an adapter: it is that of package goredis.

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func dial(t *testing.T, o *client.Options) *client.Client {
	c := client.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func startEmbedded(t *testing.T) string {
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Addr()
}

func isPermanent(err error, code string) bool {
	reply := (*redisstore.ReplyError)(nil)
	return errors.As(err, &reply) && reply.Code() == code && backends.Permanent(err)
}
