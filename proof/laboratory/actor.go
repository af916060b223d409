package laboratory

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/redis/go-redis/v9"
)

// slow is how long an answer may take: a machine that is busy is not what this is about.
const slow = 20 * time.Second

// An actor is someone who asks for locks, with connections and a Client of its own, as in a process of its own.
type actor struct {
	name    string
	wire    *wire
	locker  locker.Locker  // one attempt
	locks   *locker.Client // waits, extends and tells
	alone   *locker.Client // the same, or that of the side that admits one holder
	clients []*redis.Client
}

func newActor(name string, r Row, servers []server) (*actor, error) {
	a := &actor{name: name, wire: newWire(len(servers))}
	stores := make([]*redisstore.Store, len(servers))
	for i, s := range servers {
		store, client := goredis.Open(&redis.Options{
			Addr: "127.0.0.1:1", // where the server is now, Dialer knows
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network(s.Addr()), s.Addr())
			},
			ReadTimeout: slow, WriteTimeout: slow,
		}, r.quarantine(), redisstore.WithMaxTTL(r.long()))
		client.AddHook(link{a.wire, i})
		stores[i], a.clients = store, append(a.clients, client)
	}
	client := func(l locker.Locker) *locker.Client {
		return locker.New(l, locker.WithTTL(min(3*locker.DefaultTTL, r.long())))
	}
	if r.pair != nil {
		beside, alone := r.pair(stores[0], a.clients[0])
		a.locker, a.locks, a.alone = beside, client(beside), client(alone)
		return a, nil
	}
	l, err := r.build(stores, r.quorum)
	if err != nil {
		a.close()
		return nil, err
	}
	a.locker, a.locks = l, client(l)
	a.alone = a.locks
	return a, nil
}

func (a *actor) close() {
	for _, c := range a.clients {
		_ = c.Close() // nothing was written that this could lose
	}
}

// network is that of an address: of a socket in the file system, or of host:port.
func network(addr string) string {
	if strings.HasPrefix(addr, "/") {
		return "unix"
	}
	return "tcp"
}
