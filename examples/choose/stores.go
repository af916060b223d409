package main

import (
	"context"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/strategies"
	"github.com/redis/go-redis/v9"
)

// stores are the backends of this program. Leave out a client library that you do not want in the binary.
var stores = strategies.Backends{
	"goredis": func(_ context.Context, addr string) (backends.Store, func() error, error) {
		store, client := goredis.Open(&redis.Options{Addr: addr})
		return store, client.Close, nil
	},
	"redigo": func(_ context.Context, addr string) (backends.Store, func() error, error) {
		store, pool := redigo.Open(addr, nil)
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
