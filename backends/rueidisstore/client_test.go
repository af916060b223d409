package rueidisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/rueidis"
)

// options are those that rueidis has by default, but for a cache, of which each connection would have 128 MB.
func options(addrs ...string) client.ClientOption {
	return client.ClientOption{InitAddress: addrs, DisableCache: true}
}

func dial(t testing.TB, addrs ...string) client.Client { return connect(t, options(addrs...)) }

// connect tries again while the first connections take longer than o allows: the limits are about calls.
func connect(t testing.TB, o client.ClientOption) client.Client {
	t.Helper()
	c, err := client.NewClient(o)
	for began := time.Now(); errors.Is(err, context.DeadlineExceeded) && time.Since(began) < patience; {
		c, err = client.NewClient(o)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func open(t testing.TB, o client.ClientOption, opts ...redisstore.Option) (*redisstore.Store, client.Client) {
	t.Helper()
	s, c, err := rueidisstore.Open(o, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return s, c
}

func setNX(t testing.TB, store *redisstore.Store, key string) {
	t.Helper()
	if r, err := store.SetNX(t.Context(), key, "token", 20*time.Second); err != nil || !r.OK {
		t.Fatalf("SetNX = %v, %v", r, err)
	}
}

// code of an error reply, also of one to what opened the connection.
func code(err error) string {
	if reply := (*redisstore.ReplyError)(nil); errors.As(err, &reply) {
		return reply.Code()
	}
	return ""
}

// expired is a ctx that ends soon.
func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestQuarantineAsksAsWhoConnects(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("default's"))
	for _, rules := range [][]string{
		{"locks", "on", ">a secret", "~*", "&*", "+@all"}, {"unknowing", "on", ">a secret", "~*", "&*", "+@all", "-info"},
	} {
		if _, err := server.Do(append([]string{"ACL", "SETUSER"}, rules...)...); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		set  func(o *client.ClientOption)
		code string // empty: the lock is granted
	}{
		"nobody":               {func(*client.ClientOption) {}, "NOAUTH"},
		"the default user":     {func(o *client.ClientOption) { o.Password = "default's" }, ""},
		"a user":               {func(o *client.ClientOption) { o.Username, o.Password = "locks", "a secret" }, ""},
		"a wrong password":     {func(o *client.ClientOption) { o.Username, o.Password = "locks", "wrong" }, "WRONGPASS"},
		"a user without +info": {func(o *client.ClientOption) { o.Username, o.Password = "unknowing", "a secret" }, ""},
		"credentials that are asked for": {func(o *client.ClientOption) {
			o.AuthCredentialsFn = func(client.AuthCredentialsContext) (client.AuthCredentials, error) {
				return client.AuthCredentials{Username: "locks", Password: "a secret"}, nil
			}
		}, ""},
	} {
		o := options(server.Addr())
		c.set(&o)
		store, _ := open(t, o)
		r, err := store.SetNX(t.Context(), "a", "token", time.Second)
		if r.OK != (c.code == "") || code(err) != c.code {
			t.Errorf("%s: SetNX = %v, want %s", name, err, c.code)
		}
	}
}

// counting counts the connections that are open.
type counting struct {
	net.Conn
	open *int
}

func (c counting) Close() error {
	*c.open--
	return c.Conn.Close()
}

func TestQuarantineDialsAsItsCallerDoesAndClosesWhatItRefuses(t *testing.T) {
	server := redistest.Start(t)
	dialled, left := 0, 0
	wrap := func(c net.Conn, err error) (net.Conn, error) {
		dialled++
		left++
		return counting{c, &left}, err
	}
	for name, set := range map[string]func(o *client.ClientOption){
		"DialCtxFn": func(o *client.ClientOption) {
			o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return wrap(d.DialContext(ctx, "tcp", addr))
			}
		},
		"DialFn": func(o *client.ClientOption) {
			o.DialFn = func(addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) { return wrap(d.Dial("tcp", addr)) }
		},
	} {
		dialled, left = 0, 0
		o := options(server.Addr())
		set(&o)
		_ = rueidisstore.New(dial(t, server.Addr()), rueidisstore.Quarantine(&o), redisstore.WithQuarantine(time.Hour))
		quarantined := (*redisstore.QuarantineError)(nil)
		if c, err := o.DialCtxFn(t.Context(), server.Addr(), &o.Dialer, nil); c != nil || !errors.As(err, &quarantined) || dialled != 1 || left != 0 {
			t.Errorf("%s: %v, %v; %d dialled, %d left", name, c, err, dialled, left)
		}
	}
}

func TestAQuestionThatIsNotAnsweredIsGivenUp(t *testing.T) {
	server := redistest.Start(t)
	server.Pause()
	defer server.Resume()
	o := options(server.Addr())
	o.Dialer.Timeout = 50 * time.Millisecond
	_ = rueidisstore.Quarantine(&o)
	if c, err := o.DialCtxFn(t.Context(), server.Addr(), &o.Dialer, nil); c != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Dialer.Timeout: %v, %v", c, err)
	}
	o = options(server.Addr())
	_ = rueidisstore.Quarantine(&o)
	if c, err := o.DialCtxFn(expired(t), server.Addr(), &o.Dialer, nil); c != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the ctx: %v, %v", c, err)
	}
}

// TestAReplyThatIsNoneRefusesTheConnection: what does not speak the protocol is no server to lock on.
func TestAReplyThatIsNoneRefusesTheConnection(t *testing.T) {
	for _, sent := range []string{"HTTP/1.1 400 Bad Request\r\n", "$-1\r\n", "$99999999999\r\n", "$x\r\n", "$5\r\nab", "", "+PONG", "\n"} {
		o := options("127.0.0.1:1")
		o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 100))
				_, _ = io.WriteString(theirs, sent)
				theirs.Close()
			}()
			return ours, nil
		}
		_ = rueidisstore.Quarantine(&o)
		if c, err := o.DialCtxFn(t.Context(), "", nil, nil); c != nil || err == nil {
			t.Errorf("%q: %v, %v", sent, c, err)
		}
	}
}

func TestOpenLetsTheOptionsOfItsCallerWin(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := options(server.Addr())
	o.SelectDB, o.ConnWriteTimeout, o.ClientName = 3, time.Minute, "me"
	store, c := open(t, o, redisstore.WithoutQuarantine(), redisstore.WithPrefix("app:"))
	setNX(t, store, "a")
	if r, err := server.Do("INFO", "keyspace"); err != nil || !strings.Contains(r.(string), "db3:keys=1") {
		t.Errorf("INFO keyspace = %v, %v", r, err)
	}
	if err := c.Do(t.Context(), c.B().Arbitrary("BLPOP", "nothing", "1.1").Build()).Error(); !client.IsRedisNil(err) {
		t.Errorf("a command of over a second: %v", err)
	}
}

func TestOpenIsForOneServerAndSendsNothingTwice(t *testing.T) {
	for name, set := range map[string]func(o *client.ClientOption){
		"no address":    func(o *client.ClientOption) { o.InitAddress = nil },
		"two addresses": func(o *client.ClientOption) { o.InitAddress = append(o.InitAddress, "127.0.0.1:2") },
		"a sentinel":    func(o *client.ClientOption) { o.Sentinel.MasterSet = "mymaster" },
		"replicas":      func(o *client.ClientOption) { o.Standalone.ReplicaAddress = []string{"127.0.0.1:2"} },
		"redirects":     func(o *client.ClientOption) { o.Standalone.EnableRedirect = true },
		"a lifetime":    func(o *client.ClientOption) { o.ConnLifetime = time.Hour },
		"what rueidis does not take": func(o *client.ClientOption) {
			o.PipelineMultiplex = client.MaxPipelineMultiplex + 1
		},
		"a replica": func(o *client.ClientOption) { o.ReplicaOnly = true },
	} {
		o := options("127.0.0.1:1")
		set(&o)
		if s, c, err := rueidisstore.Open(o); s != nil || c != nil || err == nil {
			t.Errorf("%s: %v, %v, %v", name, s, c, err)
		}
	}
}

// patience is how long a test waits for what must happen on any machine.
const patience = 20 * time.Second

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
