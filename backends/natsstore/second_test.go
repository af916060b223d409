package natsstore_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/silent"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// named counts the connections that a server has for a name.
func named(t testing.TB, s *server.Server, name string) (n int) {
	t.Helper()
	all, err := s.Connz(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all.Conns {
		if c.Name == name {
			n++
		}
	}
	return n
}

// answered returns when the connection named app answers soon. A grant that took long, as on a busy machine,
// may have left a doubt of the connection: then the next requests go over a second one, and a test that makes
// the first one silent shows nothing.
func answered(t testing.TB, s *server.Server, store *natsstore.Store) {
	t.Helper()
	eventually(t, "the first connection answers soon", func() bool {
		began := time.Now()
		_, err := store.Inspect(t.Context(), "warm")
		return err == nil && time.Since(began) < 250*time.Millisecond && named(t, s, "app lockstep") == 0
	})
}

// unanswered asks for a grant over a connection that has just fallen silent.
func unanswered(t testing.TB, store *natsstore.Store, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if r, err := store.SetNX(ctx, "silent", "token", 20*time.Second); err == nil || backends.Unsent(err) {
		t.Fatalf("SetNX on a silent connection = %+v, %v; want an unknown outcome", r, err)
	}
}

// unansweredFor is longer than it takes to find that a connection is silent.
const unansweredFor = 1200 * time.Millisecond

// silently is a store whose connection, named app, has fallen silent under a grant with so much time. The
// server asks for a password, which only the URL has.
func silently(t testing.TB, limit time.Duration, opts ...nats.Option) (*natsstore.Store, *nats.Conn, *server.Server, *redistest.Proxy) {
	t.Helper()
	s := run(t, func(o *server.Options) { o.Username, o.Password = "ann", "sesame" })
	if err := natsstore.New(dial(t, "nats://ann:sesame@"+s.Addr().String())).Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	relay := redistest.NewRelay(t, s.Addr().String())
	conn := dial(t, "nats://ann:sesame@"+relay.Addr(), append(opts, nats.Name("app"))...)
	t.Cleanup(relay.CutAll)
	store := natsstore.New(conn)
	grant(t, store, "warm", "token", 20*time.Second)
	answered(t, s, store)
	relay.Forsake()
	unanswered(t, store, limit)
	return store, conn, s, relay
}

func TestRequestsGoOverASecondConnectionWhileTheFirstIsSilent(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
		var told atomic.Int64
		tell := func(*nats.Conn) { told.Add(1) }
		store, _, s, relay := silently(t, limit, nats.ClosedHandler(tell), nats.ReconnectHandler(tell), nats.ConnectHandler(tell),
			nats.DisconnectErrHandler(func(*nats.Conn, error) { told.Add(1) }))
		eventually(t, "the application was told of its connection", func() bool { return told.Load() == 1 })
		woken := make(chan struct{}, 100)
		if err := store.Watch(t.Context(), "b", func() { woken <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			grant(t, store, "b", "token", 20*time.Second)
			if ok, err := store.ExpireIf(t.Context(), "b", "token", 20*time.Second); !ok || err != nil {
				t.Fatalf("ExpireIf = %v, %v", ok, err)
			}
			if ok, err := store.DeleteIf(t.Context(), "b", "token"); !ok || err != nil {
				t.Fatalf("DeleteIf = %v, %v", ok, err)
			}
		}
		eventually(t, "each release and the second connection wake the watcher", func() bool { return len(woken) >= 21 })
		if n := named(t, s, "app lockstep"); n != 1 {
			t.Errorf("%d second connections", n)
		}
		if n := told.Load(); n != 1 {
			t.Errorf("the application was told %d times of a connection that is not its own", n-1)
		}
		relay.CutAll() // the client library makes the first one again; the second one is cut, too
		eventually(t, "there is no second connection", func() bool {
			_, err := store.Inspect(t.Context(), "b")
			return err == nil && named(t, s, "app lockstep") == 0 && named(t, s, "app") == 1
		})
		grant(t, store, "b", "token", 20*time.Second)
	})
}

// The server takes connections with TLS only. The address of the first connection leads nowhere any more, so
// the second one must have the roots and the other address of the first.
func TestTheSecondConnectionHasTheTLSAndTheServersOfTheFirst(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
		config, roots := silent.Certificates(t)
		s := run(t, func(o *server.Options) {
			o.TLSConfig, o.TLSTimeout, o.Username, o.Password = config, patience.Seconds(), "ann", "sesame"
		})
		direct := "tls://ann:sesame@" + s.Addr().String()
		if err := natsstore.New(dial(t, direct, nats.Secure(roots))).Install(trial.Patient(t), 1); err != nil {
			t.Fatal(err)
		}
		relay := redistest.NewRelay(t, s.Addr().String())
		conn := dial(t, "tls://ann:sesame@"+relay.Addr()+","+direct, nats.Secure(roots), nats.DontRandomize(), nats.Name("app"))
		t.Cleanup(relay.CutAll)
		store := natsstore.New(conn)
		grant(t, store, "warm", "token", 20*time.Second)
		answered(t, s, store)
		relay.Forsake()
		relay.Lead("127.0.0.1:1")
		unanswered(t, store, limit)
		for range 20 {
			grant(t, store, "b", "token", 20*time.Second)
			if ok, err := store.DeleteIf(t.Context(), "b", "token"); !ok || err != nil {
				t.Fatalf("DeleteIf = %v, %v", ok, err)
			}
		}
		if n := named(t, s, "app lockstep"); n != 1 {
			t.Errorf("%d second connections", n)
		}
	})
}

// refusing dials all servers but those at a host: such a dial ends only by its limit.
type refusing struct {
	net.Dialer

	host string
	ends chan struct{}
}

func (r *refusing) Dial(network, addr string) (net.Conn, error) {
	if strings.HasPrefix(addr, r.host) {
		<-r.ends
		return nil, net.ErrClosed
	}
	return r.Dialer.Dial(network, addr)
}

func refuse(t testing.TB, host string) nats.Option {
	d := &refusing{host: host, ends: make(chan struct{})}
	t.Cleanup(func() { close(d.ends) })
	return nats.SetCustomDialer(d)
}

// The application waits for a server as long as the test lasts. The store waits for two seconds.
func TestAServerThatTakesNoConnectionLeavesTheNextOneForTheSecond(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.2:1"
	for name, with := range map[string]func(t testing.TB) nats.Option{
		"the dialer of the client library": func(testing.TB) nats.Option {
			return nats.Dialer(&net.Dialer{Timeout: time.Hour, ControlContext: func(ctx context.Context, _, addr string, _ syscall.RawConn) error {
				if addr == nobody {
					<-ctx.Done()
				}
				return ctx.Err()
			}})
		},
		"a dialer of the application": func(t testing.TB) nats.Option {
			return refuse(t, nobody)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
				s := run(t)
				direct := s.ClientURL()
				if err := natsstore.New(dial(t, direct)).Install(trial.Patient(t), 1); err != nil {
					t.Fatal(err)
				}
				relay := redistest.NewRelay(t, s.Addr().String())
				t.Cleanup(relay.CutAll)
				store := natsstore.New(dial(t, "nats://"+relay.Addr()+",nats://"+nobody+","+direct, with(t), nats.DontRandomize(), nats.Name("app")))
				grant(t, store, "warm", "token", 20*time.Second)
				answered(t, s, store)
				relay.Forsake()
				unanswered(t, store, limit)
				if ok, err := store.ExpireIf(trial.Patient(t), "warm", "token", 20*time.Second); !ok || err != nil {
					t.Fatalf("ExpireIf = %v, %v; want it to be renewed over the third server", ok, err)
				}
			})
		})
	}
}

// The dials of the second connection take longer than that.
func TestCallsForPeopleAreGivenUpAfterTenSeconds(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
		const host, others = "127.0.0.2:", 20
		s := run(t)
		relay := redistest.NewRelay(t, s.Addr().String())
		t.Cleanup(relay.CutAll)
		urls := "nats://" + relay.Addr()
		for i := range others {
			urls += ",nats://" + host + strconv.Itoa(1+i)
		}
		store := natsstore.New(dial(t, urls, refuse(t, host), nats.DontRandomize(), nats.Name("app")))
		if err := store.Install(trial.Patient(t), 1); err != nil {
			t.Fatal(err)
		}
		grant(t, store, "warm", "token", 20*time.Second)
		answered(t, s, store)
		relay.Forsake()
		unanswered(t, store, limit)
		var all sync.WaitGroup
		for name, call := range map[string]func(ctx context.Context) error{
			"Inspect": func(ctx context.Context) error { _, err := store.Inspect(ctx, "warm"); return err },
			"List":    func(ctx context.Context) error { _, err := store.List(ctx, "", "", 10); return err },
			"Evict": func(ctx context.Context) error {
				_, err := store.Evict(ctx, "warm", "seen", backends.Eviction{})
				return err
			},
			"Identify": func(ctx context.Context) error { _, err := store.Identify(ctx); return err },
			"Check":    func(ctx context.Context) error { _, err := store.Check(ctx); return err },
		} {
			all.Go(func() {
				if err := call(context.WithoutCancel(t.Context())); err == nil || !strings.Contains(err.Error(), "it is given up after 10s") {
					t.Errorf("%s: %v; want that it was given up after ten seconds", name, err)
				}
			})
		}
		all.Wait()
	})
}

// Each request has less time than it takes to find that the connection is silent.
func TestRequestsWithLittleTimeFindTheSecondConnection(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
		store, _, _, relay := silently(t, limit)
		relay.Forsake() // the second one falls silent as well
		eventually(t, "a request is answered", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			ok, err := store.ExpireIf(ctx, "warm", "token", 20*time.Second)
			return ok && err == nil
		})
	})
}

// A stream without a leader answers nothing, and the connection does. On a machine where the answer of
// the connection took long, a second connection is right: such a round shows nothing, and is repeated.
func TestAConnectionThatAnswersIsNotSilent(t *testing.T) {
	t.Parallel()
	s := run(t, func(o *server.Options) { o.JetStream = false })
	conn := dial(t, s.ClientURL(), nats.Name("app"))
	if _, err := conn.Subscribe("lockstep.lock.*", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	store := natsstore.New(conn)
	for good, rounds := 0, 0; good < 3; rounds++ {
		before, slowest := connections(t, s), roundTrips(conn)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		if _, err := store.SetNX(ctx, "key", "token", 20*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SetNX = %v", err)
		}
		cancel()
		took, opened := slowest(), connections(t, s)-before
		switch {
		case opened == 0:
			good++
		case took < 100*time.Millisecond || rounds == 20:
			t.Fatalf("%d connections opened, and each answer came within %v; want none", opened, took)
		default:
			t.Logf("%d connections opened, with an answer after %v", opened, took)
		}
	}
}

// connections counts all that were ever opened.
func connections(t *testing.T, s *server.Server) uint64 {
	t.Helper()
	stats, err := s.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return stats.TotalConnections
}

// roundTrips asks conn for answers until slowest, which returns how long one took at most.
func roundTrips(conn *nats.Conn) (slowest func() time.Duration) {
	stop, most := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var longest time.Duration
		for {
			began := time.Now()
			_, _ = conn.RTT()
			longest = max(longest, time.Since(began))
			select {
			case <-stop:
				most <- longest
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() time.Duration { close(stop); return <-most }
}

// holding makes connections that can be held up: what the client writes stays in the network.
type holding struct {
	mu    sync.Mutex
	made  []*held
	alone bool // it makes no other

	refused int // connections
}

type held struct {
	net.Conn

	by   *holding
	hold bool
	late []byte
}

func (h *holding) Dial(network, addr string) (net.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.made) > 0 && h.alone {
		h.refused++
		return nil, errors.New("one connection only")
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	h.made = append(h.made, &held{Conn: c, by: h})
	return h.made[len(h.made)-1], nil
}

// refuse has it make no more connections.
func (h *holding) refuse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alone = true
}

func (h *holding) tried() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

func (c *held) Write(b []byte) (int, error) {
	c.by.mu.Lock()
	defer c.by.mu.Unlock()
	if c.hold {
		c.late = append(c.late, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// set holds up what comes over a connection, or delivers what was held up.
func (h *holding) set(t testing.TB, which int, hold bool) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.made[which]
	c.hold = hold
	if !hold {
		if _, err := c.Conn.Write(c.late); err != nil {
			t.Error(err)
		}
		c.late = nil
	}
}

// The connection answers again, and the server carries out what it was sent long ago. By then the cleanup
// of it was answered over the next connection, and confirmed for the last time.
func TestAGrantThatASilentConnectionBringsLateIsRemoved(t *testing.T) {
	t.Parallel()
	t.Run("the first", func(t *testing.T) {
		t.Parallel()
		late(t, 0, unansweredFor)
	})
	t.Run("the second", func(t *testing.T) {
		t.Parallel()
		trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) { late(t, 1, limit) })
	})
}

// stored counts the messages that the stream has ever taken.
func stored(t testing.TB, conn *nats.Conn) uint64 {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "LOCKSTEP")
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}

// late is about a grant that comes late over a connection: the first (0) or the second (1).
func late(t testing.TB, which int, limit time.Duration) {
	t.Helper()
	store, s, wire := overFirst(t)
	if which == 1 {
		fallSilent(t, store, wire, limit)
	}
	direct := dial(t, s.ClientURL())
	wire.set(t, which, true)
	const confirmations = 3 // of package cleanup
	var looks atomic.Int64  // at the key, of calls that remove it
	if _, err := direct.Subscribe("$JS.API.STREAM.MSG.GET.LOCKSTEP", func(m *nats.Msg) {
		if strings.Contains(string(m.Data), `"lockstep.lock.key"`) {
			looks.Add(1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := direct.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tried := make(chan error, 1)
	go func() {
		_, err := locker.New(single.New(store), locker.WithTTL(25*time.Second)).TryLock(ctx, "key")
		tried <- err
	}()
	go func() { // calls that have no answer keep the connection open
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			go func() { _, _ = store.ExpireIf(t.Context(), "warm", "token", 20*time.Second) }()
		}
	}()
	eventually(t, "there is another connection", func() bool { return named(t, s, "app lockstep") == which+1 })
	cancel() // the cleanup goes over the other connection
	if err := <-tried; err == nil {
		t.Fatal("TryLock: no error")
	}
	eventually(t, "the cleanup is confirmed for the last time", func() bool { return looks.Load() >= 1+confirmations })
	before := stored(t, direct)
	wire.set(t, which, false)
	eventually(t, "the late grant comes", func() bool { return stored(t, direct) > before })
	for arrived := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		state, err := natsstore.New(direct).Inspect(t.Context(), "key")
		if err == nil && state.Holding == 0 {
			return
		}
		if time.Since(arrived) > 15*time.Second { // its TTL is longer
			t.Fatal("the late grant keeps the lock until its TTL")
		}
	}
}

// overSecond is a store whose connection, named app, has fallen silent under a grant with so much time. It has
// granted "second" over a second connection since.
func overSecond(t testing.TB, limit time.Duration, change ...func(*server.Options)) (*natsstore.Store, *server.Server, *holding) {
	t.Helper()
	store, s, wire := overFirst(t, change...)
	fallSilent(t, store, wire, limit)
	return store, s, wire
}

// overFirst is a store whose connection, named app, answers.
func overFirst(t testing.TB, change ...func(*server.Options)) (*natsstore.Store, *server.Server, *holding) {
	t.Helper()
	s, wire := run(t, change...), new(holding)
	store := natsstore.New(dial(t, s.ClientURL(), nats.SetCustomDialer(wire), nats.Name("app")))
	if err := store.Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	grant(t, store, "warm", "token", 20*time.Second)
	answered(t, s, store)
	return store, s, wire
}

// fallSilent makes the first connection silent.
func fallSilent(t testing.TB, store *natsstore.Store, wire *holding, limit time.Duration) {
	t.Helper()
	wire.set(t, 0, true)
	unanswered(t, store, limit)
	grant(t, store, "second", "token", 20*time.Second)
}

// The server is slow, and a second connection as silent as the first. What was sent over it is answered in the
// end. Calls that come meanwhile go over a third one.
func TestCallsOverASecondConnectionThatIsSlowAreAnswered(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
		store, s, wire := overSecond(t, limit)
		wire.set(t, 1, true)
		slow := make(chan error, 1)
		go func() {
			ok, err := store.ExpireIf(t.Context(), "second", "token", 20*time.Second)
			if err == nil && !ok {
				err = errors.New("ExpireIf: it is not held")
			}
			slow <- err
		}()
		eventually(t, "there is a third connection", func() bool { return len(slow) > 0 || named(t, s, "app lockstep") == 2 })
		select {
		case err := <-slow:
			t.Fatalf("a call over the second connection ended before it was answered: %v", err)
		default:
		}
		eventually(t, "a call goes over the third connection", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			ok, err := store.ExpireIf(ctx, "warm", "token", 20*time.Second)
			return ok && err == nil
		})
		wire.set(t, 1, false)
		if err := <-slow; err != nil {
			t.Error(err)
		}
		eventually(t, "the second connection is closed after its last call", func() bool { return named(t, s, "app lockstep") == 1 })
		grant(t, store, "fourth", "token", 20*time.Second)
	})
}

// The second connection pauses, and the server takes no other one: calls go on over it.
func TestASecondConnectionThatPausesIsKeptIfThereIsNoOther(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
		store, s, wire := overSecond(t, limit)
		wire.refuse()
		wire.set(t, 1, true)
		eventually(t, "a third connection is tried", func() bool { return wire.tried() > 0 })
		wire.set(t, 1, false)
		for range 6 {
			if ok, err := store.ExpireIf(t.Context(), "second", "token", 20*time.Second); !ok || err != nil {
				t.Fatalf("ExpireIf = %v, %v", ok, err)
			}
		}
		if n := named(t, s, "app lockstep"); n != 1 {
			t.Errorf("%d second connections", n)
		}
	})
}

// The second connection is silent for good, and the server takes no third one beside it.
func TestASilentSecondConnectionMakesRoomForTheNext(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
		store, _, wire := overSecond(t, limit, func(o *server.Options) { o.MaxConn = 2 })
		wire.set(t, 1, true)
		eventually(t, "a call goes over the next connection", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			ok, err := store.ExpireIf(ctx, "warm", "token", 20*time.Second)
			return ok && err == nil
		})
	})
}

// Then all is as without a second connection.
func TestAUserWhoMayNotConnectAgain(t *testing.T) {
	t.Parallel()
	trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
		s, wire := run(t), &holding{alone: true}
		if err := natsstore.New(dial(t, s.ClientURL())).Install(trial.Patient(t), 1); err != nil {
			t.Fatal(err)
		}
		store := natsstore.New(dial(t, s.ClientURL(), nats.SetCustomDialer(wire)))
		grant(t, store, "warm", "token", 20*time.Second)
		answered(t, s, store)
		wire.set(t, 0, true)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			if _, err := store.SetNX(ctx, "key", "token", 20*time.Second); err == nil || backends.Unsent(err) {
				t.Errorf("SetNX on a silent connection: %v; want an unknown outcome", err)
			}
			cancel()
		}
		if wire.tried() == 0 {
			t.Error("no second connection was tried: this test shows nothing")
		}
		wire.set(t, 0, false)
		if ok, err := store.ExpireIf(t.Context(), "warm", "token", 20*time.Second); !ok || err != nil {
			t.Errorf("ExpireIf = %v, %v", ok, err)
		}
	})
}

// A connection that is closed meanwhile leaves nothing that runs. No other test may run.
func TestAConnectionThatIsClosedWhileASecondOneIsUsed(t *testing.T) {
	trial.WhileBusy(t, unansweredFor, func(t testing.TB, limit time.Duration) {
		store, conn, s, _ := silently(t, limit)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := store.Watch(ctx, "b", func() {}); err != nil {
			t.Fatal(err)
		}
		grant(t, store, "b", "token", 20*time.Second)
		if n := named(t, s, "app lockstep"); n != 1 {
			t.Fatalf("%d second connections", n)
		}
		conn.Close()
		cancel()
		eventually(t, "nothing runs", func() bool {
			stacks := make([]byte, 4<<20)
			all := string(stacks[:runtime.Stack(stacks, true)])
			return named(t, s, "app lockstep") == 0 && !strings.Contains(all, "natsstore.(*")
		})
		if _, err := store.SetNX(t.Context(), "b", "token", time.Second); !isPermanent(err) {
			t.Errorf("SetNX of a connection that is closed: %v", err)
		}
	})
}
