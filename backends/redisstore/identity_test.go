package redisstore_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	client "github.com/redis/go-redis/v9"
)

// checkNodes runs CheckNodes over stores at these addresses.
func checkNodes(t *testing.T, o ...*client.Options) *backends.NodesError {
	t.Helper()
	var nodes []backends.Identifier
	for _, o := range o {
		nodes = append(nodes, goredis.New(dial(t, o), redisstore.WithPrefix("app:")))
	}
	err := backends.CheckNodes(trial.Patient(t), nodes...)
	if err == nil {
		return &backends.NodesError{}
	}
	found := (*backends.NodesError)(nil)
	if !errors.As(err, &found) {
		t.Fatal(err)
	}
	return found
}

func at(addr string) *client.Options { return &client.Options{Addr: addr, MaxRetries: -1} }

func TestDistinctServersPassTheCheckOfNodes(t *testing.T) {
	servers := redistest.StartN(t, 3)
	if got := checkNodes(t, at(servers[0].Addr()), at(servers[1].Addr()), at(servers[2].Addr())); len(got.Same)+len(got.Followers)+len(got.Unreachable) > 0 {
		t.Error(got)
	}
	if n, err := servers[0].Do("DBSIZE"); n != int64(0) || err != nil {
		t.Errorf("%v keys, %v: a server that tells its run_id needs none", n, err)
	}
}

func TestOneServerByTwoAddressesOrInTwoDatabasesIsOneNode(t *testing.T) {
	servers := redistest.StartN(t, 2)
	proxy := redistest.NewProxy(t, servers[0].Addr())
	other := at(servers[1].Addr())
	other.DB = 3
	got := checkNodes(t, at(servers[0].Addr()), at(servers[1].Addr()), at(proxy.Addr()), other)
	if want := [][2]int{{0, 2}, {1, 3}}; !reflect.DeepEqual(got.Same, want) || len(got.Unreachable) > 0 {
		t.Errorf("%v, want the same: %v", got, want)
	}
}

func TestAReplicaOrAServerThatIsDownIsNoNode(t *testing.T) {
	master := redistest.Start(t)
	host, port, _ := net.SplitHostPort(master.Addr())
	replica, dead := redistest.Start(t, redistest.WithArgs("--replicaof", host, port)), redistest.Start(t)
	dead.Kill()
	got := checkNodes(t, at(master.Addr()), at(replica.Addr()), at(dead.Addr()))
	if want := []int{1}; !reflect.DeepEqual(got.Followers, want) || len(got.Same) > 0 || len(got.Unreachable) != 1 || got.Unreachable[2] == nil {
		t.Errorf("%+v", got)
	}
	if op := (*net.OpError)(nil); !errors.As(error(got), &op) {
		t.Errorf("%v does not unwrap to what the network said", got)
	}
}

func TestServersThatDoNotTellTheirRunIDAreToldApartByAKey(t *testing.T) {
	one, two := startEmbedded(t), startEmbedded(t)
	if got := checkNodes(t, at(one), at(two), at(one)); !reflect.DeepEqual(got.Same, [][2]int{{0, 2}}) || len(got.Unreachable) > 0 {
		t.Errorf("embedded: %+v", got)
	}
	c := dial(t, at(one))
	if left := c.PTTL(t.Context(), "app:lockstep:server").Val(); left <= 0 || left > time.Minute {
		t.Errorf("the key lives for %v", left)
	}

	servers := redistest.StartN(t, 2)
	var all []*client.Options
	for _, s := range append(servers, servers[1]) {
		if _, err := s.Do("ACL", "SETUSER", "locks", "reset", "on", ">secret", "~app:*", "+set", "+get"); err != nil {
			t.Fatal(err)
		}
		all = append(all, &client.Options{Addr: s.Addr(), Username: "locks", Password: "secret"})
	}
	if got := checkNodes(t, all...); !reflect.DeepEqual(got.Same, [][2]int{{1, 2}}) || len(got.Unreachable) > 0 {
		t.Errorf("without the permission for INFO: %+v", got)
	}
}

// A key that is gone before it was read is set anew, under another name.
func TestAnIdentityThatExpiresIsGivenAnew(t *testing.T) {
	server := startEmbedded(t)
	c, outside := dial(t, at(server)), dial(t, at(server))
	gone := 0
	c.AddHook(beforeGet(func() {
		if gone < 2 {
			gone++
			outside.Del(context.Background(), "lockstep:server")
		}
	}))
	id, err := goredis.New(c).Identify(trial.Patient(t))
	if err != nil || id.Server == "" || id.Server != outside.Get(t.Context(), "lockstep:server").Val() || gone != 2 {
		t.Errorf("Identify = %+v, %v", id, err)
	}
	c.AddHook(beforeGet(func() { outside.Del(context.Background(), "lockstep:server") }))
	if id, err := goredis.New(c).Identify(trial.Patient(t)); err == nil {
		t.Errorf("Identify of a server that keeps nothing = %+v", id)
	}
}

type beforeGet func()

func (b beforeGet) DialHook(next client.DialHook) client.DialHook { return next }
func (b beforeGet) ProcessHook(next client.ProcessHook) client.ProcessHook {
	return func(ctx context.Context, cmd client.Cmder) error {
		if cmd.Name() == "get" {
			b()
		}
		return next(ctx, cmd)
	}
}
func (b beforeGet) ProcessPipelineHook(next client.ProcessPipelineHook) client.ProcessPipelineHook {
	return next
}

func TestIdentifyPassesOnWhatIsNoAnswer(t *testing.T) {
	server := redistest.Start(t)
	s := goredis.New(dial(t, at(server.Addr())))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if id, err := s.Identify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Identify with a ctx that is done = %+v, %v", id, err)
	}
	if _, err := server.Do("ACL", "SETUSER", "default", "-info", "-set"); err != nil {
		t.Fatal(err)
	}
	if id, err := s.Identify(trial.Patient(t)); !isPermanent(err, "NOPERM") || id.Server != "" {
		t.Errorf("Identify without INFO and SET = %+v, %v", id, err)
	}
	server.Kill()
	if id, err := s.Identify(t.Context()); err == nil {
		t.Errorf("Identify of a server that is down = %+v", id)
	}
}

// A young server grants nothing to a store with the strict form of quarantine. It may be looked at, also on
// the connection that shows that it is young.
func TestAYoungServerMayBeLookedAt(t *testing.T) {
	server := redistest.Start(t)
	for call, do := range map[string]func(ctx context.Context, s *redisstore.Store) error{
		"Identify": func(ctx context.Context, s *redisstore.Store) error { _, err := s.Identify(ctx); return err },
		"Check":    func(ctx context.Context, s *redisstore.Store) error { _, err := s.Check(ctx); return err },
		"List":     func(ctx context.Context, s *redisstore.Store) error { _, err := s.List(ctx, "", "", 10); return err },
		"Inspect":  func(ctx context.Context, s *redisstore.Store) error { _, err := s.Inspect(ctx, "k"); return err },
		"Evict": func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Evict(ctx, "k", "seen", backends.Eviction{})
			return err
		},
	} {
		s, c := goredis.Open(at(server.Addr()), redisstore.WithPrefix("app:"), redisstore.WithQuarantine(time.Hour))
		if err := do(t.Context(), s); err != nil {
			t.Errorf("%s: %v", call, err)
		}
		refused := (*redisstore.QuarantineError)(nil)
		if r, err := s.SetNX(t.Context(), "k", "token", time.Second); !errors.As(err, &refused) {
			t.Errorf("SetNX after %s = %+v, %v; want quarantine", call, r, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
