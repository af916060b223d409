package goredis_test

import (
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// Each command is a round trip, but for the two INFO, which are sent together.
func TestAFirstLockTakesThreeRoundTrips(t *testing.T) {
	for name, c := range map[string]struct {
		opts []redisstore.Option
		want []string
	}{
		"with quarantine":    {want: []string{"HELLO", "INFO", "INFO", "SET"}},
		"without quarantine": {opts: []redisstore.Option{redisstore.WithoutQuarantine()}, want: []string{"HELLO", "SET"}},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			store, conn := goredis.Open(&client.Options{Addr: proxy.Addr()}, append(c.opts, hour)...)
			t.Cleanup(func() { conn.Close() })
			if r, err := store.SetNX(t.Context(), "a", "token", long); err != nil || !r.OK {
				t.Fatal(r, err)
			}
			if seen := proxy.Seen(); !slices.Equal(seen, c.want) {
				t.Errorf("%v; want %v", seen, c.want)
			}
		})
	}
}

func TestOpenNamesTheClientThatAsksForIt(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	store, c := goredis.Open(&client.Options{Addr: proxy.Addr(), IdentitySuffix: "mine"}, hour)
	t.Cleanup(func() { c.Close() })
	if r, err := store.SetNX(t.Context(), "a", "token", long); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	if proxy.Count("CLIENT") == 0 {
		t.Errorf("%v; want CLIENT SETINFO", proxy.Seen())
	}
}
