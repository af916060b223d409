package campaign

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// A stage is what all cases share: the servers, Clients that reach them without a proxy and so
// without faults, and clients that look at the keys.
type stage struct {
	servers map[bool][]*redistest.Server // true: for replicated strategies
	looking map[bool][]*client.Client    // by server
	direct  map[string]*locker.Client    // by strategy
	others  map[string]*locker.Client    // of the other party, by strategy
	// limits the cases that connect at once, which needs most of the CPU
	warming chan struct{}
}

func setUp(t *testing.T) *stage {
	s := &stage{
		servers: map[bool][]*redistest.Server{false: redistest.StartN(t, 5), true: {startReplicated(t)}},
		looking: map[bool][]*client.Client{}, direct: map[string]*locker.Client{}, others: map[string]*locker.Client{}, warming: make(chan struct{}, 4),
	}
	clients := map[bool][]*client.Client{}
	for replicated, servers := range s.servers {
		for _, server := range servers {
			_, c := goredis.Open(&client.Options{Addr: server.Addr(), PoolSize: 50}, redisstore.WithoutQuarantine())
			t.Cleanup(func() { c.Close() })
			look := client.NewClient(&client.Options{Addr: server.Addr(), ReadTimeout: patience, PoolSize: 20, PoolTimeout: patience})
			t.Cleanup(func() { look.Close() })
			clients[replicated], s.looking[replicated] = append(clients[replicated], c), append(s.looking[replicated], look)
		}
	}
	for _, of := range strategies {
		var stores []*redisstore.Store
		for _, c := range clients[of.replicated][:of.nodes] {
			stores = append(stores, goredis.New(c, append(of.options, beneath.Long)...))
		}
		l, err := of.build(stores)
		if err != nil {
			t.Fatal(err)
		}
		others, err := of.others(stores)
		if err != nil {
			t.Fatal(err)
		}
		s.direct[of.name] = locker.New(l, locker.WithTTL(ttl), locker.WithoutRenewal())
		s.others[of.name] = locker.New(others, locker.WithTTL(ttl), locker.WithoutRenewal())
	}
	return s
}

// startReplicated returns a master that its replicas follow.
func startReplicated(t *testing.T) *redistest.Server {
	servers := redistest.StartN(t, 1+replicas, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	master := servers[0]
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for _, replica := range servers[1:] {
		if _, err := replica.Do("REPLICAOF", host, port); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the replicas follow their master", func() bool {
		n, err := master.Do("WAIT", "2", "100")
		return err == nil && n == int64(replicas)
	})
	return master
}

// A party asks for locks through a Client, as an owner if the strategy nests.
type party struct {
	*locker.Client
	owner string
}

func (p party) TryLock(ctx context.Context, key string) (*locker.Lock, error) {
	return p.Client.TryLock(locker.ContextWithOwner(ctx, p.owner), key)
}

func (p party) Lock(ctx context.Context, key string) (*locker.Lock, error) {
	return p.Client.Lock(locker.ContextWithOwner(ctx, p.owner), key, locker.WithWait(patience))
}

// parties makes the party whose network has the fault, the same owner on a network without faults,
// and another owner there.
func (s *scene) parties(ours locker.Locker) {
	s.ours = party{Client: locker.New(ours, locker.WithTTL(ttl), locker.WithoutRenewal())}
	s.same, s.other = party{Client: s.direct[s.strategy.name]}, party{Client: s.others[s.strategy.name]}
	if s.strategy.nested {
		s.ours.owner, s.same.owner, s.other.owner = "we", "we", "they"
	}
}

// taken counts the nodes that have the key, besides the holds around the operation or beside it. A
// bit that is off does not count.
func (s *scene) taken() (nodes int) {
	for _, look := range s.looking[s.strategy.replicated][:s.strategy.nodes] {
		var there bool
		if s.strategy.nested || s.strategy.beside > 0 {
			there = s.holds(look) > s.around
		} else {
			exists, err := look.Exists(context.Background(), s.key).Result()
			if err != nil {
				s.Errorf("looking at the store: %v", err)
			}
			// a value of another type counts
			there = exists == 1 && look.Get(context.Background(), s.key).Val() != "\x00"
		}
		if there {
			nodes++
		}
	}
	return nodes
}

// holds counts the holds of the key.
func (s *scene) holds(look *client.Client) (n int) {
	members, err := look.ZRange(context.Background(), s.key, 0, -1).Result()
	if err != nil {
		s.Errorf("looking at the store: %v", err)
	}
	for _, member := range members {
		if !strings.HasPrefix(member, "\x00group:") {
			n++
		}
	}
	if len(members) > 0 && n == 0 {
		s.Errorf("the key exists without a hold: %q", members)
	}
	return n
}

// extended counts the nodes on which the key has more than ttl left.
func (s *scene) extended() (nodes int) {
	for _, look := range s.looking[s.strategy.replicated][:s.strategy.nodes] {
		left, err := look.PTTL(context.Background(), s.key).Result()
		if err != nil {
			s.Errorf("looking at the store: %v", err)
		}
		if left > ttl {
			nodes++
		}
	}
	return nodes
}
