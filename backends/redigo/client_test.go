package redigo_test

import (
	"strings"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func dial(t testing.TB, addr string, opts ...client.DialOption) *client.Pool {
	return redigo.Pool(t, addr, opts...)
}

func setNX(t *testing.T, store *redisstore.Store, key string) {
	t.Helper()
	if r, err := store.SetNX(t.Context(), key, "token", 20*time.Second); err != nil || !r.OK {
		t.Fatalf("SetNX = %v, %v", r, err)
	}
}

func TestOpenLetsTheOptionsOfItsCallerWin(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, pool := redigo.Open(server.Addr(), []client.DialOption{client.DialDatabase(3), client.DialReadTimeout(time.Minute)},
		redisstore.WithoutQuarantine(), redisstore.WithPrefix("app:"))
	defer pool.Close()
	if pool.TestOnBorrowContext == nil || pool.IdleTimeout == 0 || pool.MaxIdle == 0 {
		t.Errorf("pool: %+v", pool.Stats())
	}
	setNX(t, store, "a")
	if r, err := server.Do("INFO", "keyspace"); err != nil || !strings.Contains(r.(string), "db3:keys=1") {
		t.Errorf("INFO keyspace = %v, %v", r, err)
	}
	if _, err := redigo.Driven(pool).Executor.Do(t.Context(), "BLPOP", "nothing", "1.1"); err != nil {
		t.Errorf("a command of over a second: %v", err)
	}
}

func TestOnlyAStoreOfOpenHasAnEndpoint(t *testing.T) {
	store, pool := redigo.Open("10.0.0.7:6379", nil)
	defer pool.Close()
	if got := store.Endpoint(); got != "10.0.0.7:6379" {
		t.Errorf("of Open: %q", got)
	}
	if got := redigo.New(pool).Endpoint(); got != "" { // a pool does not tell
		t.Errorf("of New: %q", got)
	}
}

// mock is a connection without a server, as in the tests of applications.
type mock struct {
	client.Conn
	sent *[]string
}

func (m mock) Send(name string, _ ...any) error {
	*m.sent = append(*m.sent, name)
	return nil
}

func (mock) Flush() error                   { return nil }
func (mock) Receive() (any, error)          { return "OK", nil }
func (mock) Do(string, ...any) (any, error) { return nil, nil } // of the pool, before it takes a connection back
func (mock) Err() error                     { return nil }
func (mock) Close() error                   { return nil }

func TestAPoolOfMocksWillDo(t *testing.T) {
	var sent []string
	pool := &client.Pool{Dial: func() (client.Conn, error) { return mock{sent: &sent}, nil }}
	setNX(t, redigo.New(pool), "a")
	if len(sent) != 1 || sent[0] != "SET" {
		t.Errorf("sent %v", sent)
	}
}

// patience is how long a test waits for what must happen on any machine.
const patience = 20 * time.Second

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}
