package goredis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	client "github.com/redis/go-redis/v9"
)

func TestARingIsRefusedBeforeAnythingIsSent(t *testing.T) {
	ring := client.NewRing(&client.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	for name, c := range map[string]goredis.Client{"ring": ring, "universal": client.UniversalClient(ring)} {
		for mode, opts := range map[string][]redisstore.Option{
			"scripts": nil, "no scripts": {redisstore.WithoutScripts()}, "replicas": {redisstore.WithReplicas(1, time.Second)},
		} {
			store := goredis.New(c, opts...)
			_, set := store.SetNX(t.Context(), "key", "value", time.Second)
			_, extend := store.ExpireIf(t.Context(), "key", "value", time.Second)
			_, remove := store.DeleteIf(t.Context(), "key", "value")
			watch := store.Watch(t.Context(), "key", func() {})
			for call, err := range map[string]error{"SetNX": set, "ExpireIf": extend, "DeleteIf": remove, "Watch": watch} {
				var refusal interface {
					Permanent() bool
					ErrorType() string
				}
				if err == nil || !strings.Contains(err.Error(), "Ring") || !errors.As(err, &refusal) || !refusal.Permanent() || refusal.ErrorType() != "invalid" {
					t.Errorf("%s, %s: %s = %v", name, mode, call, err)
				}
			}
		}
	}
}
