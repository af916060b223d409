package interop_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// hour is the limit of our stores, so that a lease outlives a test.
var hour = redisstore.WithMaxTTL(time.Hour)

// onOneServer are our strategies that keep a plain string at the key of one server.
var onOneServer = map[string]func(*testing.T, servers) locker.Locker{
	"single": func(t *testing.T, ss servers) locker.Locker { return single.New(goredis.New(ss.clients(t)[0], hour)) },
	"fenced": func(t *testing.T, ss servers) locker.Locker { return fenced.New(goredis.New(ss.clients(t)[0], hour)) },
}

// onFiveServers are quorums of them. Another implementation needs three of five, so it excludes either.
var onFiveServers = map[string]func(*testing.T, servers) locker.Locker{
	"redlock of 3": func(t *testing.T, ss servers) locker.Locker { return quorum(t, ss, 3) },
	"redlock of 4": func(t *testing.T, ss servers) locker.Locker { return quorum(t, ss, 4) },
}

func quorum(t *testing.T, ss servers, w int) locker.Locker {
	t.Helper()
	var nodes []locker.Locker
	for _, client := range ss.clients(t) {
		nodes = append(nodes, single.New(goredis.New(client, hour)))
	}
	// No node fails here; a machine that is slow must not look like one that does.
	l, err := redlock.New(nodes, redlock.WithQuorum(w), redlock.WithNodeLimit(patience))
	if err != nil {
		t.Fatal(err)
	}
	return l
}
