package main

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/backends/redigo"
	lockredis "github.com/lockstep-go/lockstep/backends/redis"
	"github.com/lockstep-go/lockstep/strategies"
	"github.com/redis/go-redis/v9"
)

// maxTTL is well above the TTL that is used. A server that restarts while this program runs is in quarantine for a little longer.
var maxTTL = lockredis.WithMaxTTL(time.Minute)

// stores are those that this program can open. One that wants no redigo in its binary leaves it out.
var stores = strategies.Backends{
	"goredis": func(_ context.Context, addr string) (backends.Store, func() error, error) {
		store, client := goredis.Open(&redis.Options{Addr: addr}, maxTTL)
		return store, client.Close, nil
	},
	"redigo": func(_ context.Context, addr string) (backends.Store, func() error, error) {
		store, pool := redigo.Open(addr, nil, maxTTL)
		return store, pool.Close, nil
	},
	"embedded": func(context.Context, string) (backends.Store, func() error, error) {
		server, err := embedded.Start()
		if err != nil {
			return nil, nil, err
		}
		store, client := goredis.Open(&redis.Options{Addr: server.Addr()})
		return store, func() error { defer server.Close(); return client.Close() }, nil
	},
	"memory": func(context.Context, string) (backends.Store, func() error, error) {
		return memory.New().Legacy(), nil, nil // with the plain commands of old recipes, which clash with Store's own Get and Delete
	},
}
