package rueidis_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidis"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/rueidis"
)

func setNX(t *testing.T, store *redisstore.Store, key string) {
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
		_ = rueidis.New(dial(t, server.Addr()), rueidis.Quarantine(&o), redisstore.WithQuarantine(time.Hour))
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
	_ = rueidis.Quarantine(&o)
	if c, err := o.DialCtxFn(t.Context(), server.Addr(), &o.Dialer, nil); c != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Dialer.Timeout: %v, %v", c, err)
	}
	o = options(server.Addr())
	_ = rueidis.Quarantine(&o)
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
		_ = rueidis.Quarantine(&o)
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
		if s, c, err := rueidis.Open(o); s != nil || c != nil || err == nil {
			t.Errorf("%s: %v, %v, %v", name, s, c, err)
		}
	}
}

func TestAServerThatIsDownIsAFaultUntilItIsNot(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	store, _ := open(t, options(server.Addr()), redisstore.WithoutQuarantine())
	for range 2 {
		_, err := store.SetNX(t.Context(), "a", "token", 20*time.Second)
		if op := (*net.OpError)(nil); !errors.As(err, &op) || !cleanup.Unsent(err) {
			t.Errorf("SetNX = %v", err)
		}
	}
	if _, err := store.Check(t.Context()); err == nil {
		t.Error("Check = nil")
	}
	server.Restart()
	setNX(t, store, "a")
}

func TestOpenGivesUpAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, _ := open(t, options(server.Addr()), redisstore.WithoutQuarantine())
	setNX(t, store, "a")
	server.Pause()
	defer server.Resume()
	for _, what := range []string{"on a connection", "connecting"} {
		_, err := store.SetNX(context.Background(), "b", "token", 20*time.Second) // a ctx that can't end
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SetNX %s = %v", what, err)
		}
	}
}

func TestCheckOfARealServer(t *testing.T) {
	r, err := rueidis.New(dial(t, redistest.Start(t).Addr())).Check(t.Context())
	if err != nil || r.RunID == "" || r.Role != "master" || r.Uptime < 0 || r.Eviction != "noeviction" || r.RoundTrip <= 0 {
		t.Errorf("Check = %+v, %v", r, err)
	}
}

func TestTLSCarriesLocks(t *testing.T) {
	server := redistest.Start(t)
	pki := httptest.NewTLSServer(nil) // its certificate is for 127.0.0.1, and vouches for itself
	defer pki.Close()
	addr := terminate(t, server.Addr(), pki.TLS.Certificates)
	roots := x509.NewCertPool()
	roots.AddCert(pki.Certificate())
	for _, quarantined := range []bool{false, true} {
		for name, config := range map[string]*tls.Config{
			"that is trusted":         {RootCAs: roots, MinVersion: tls.VersionTLS12},
			"that nobody vouches for": {RootCAs: x509.NewCertPool()},
			"with another name":       {RootCAs: roots, ServerName: "elsewhere.test"},
		} {
			o := options(addr)
			o.TLSConfig = config
			opts := []redisstore.Option{redisstore.WithoutQuarantine()}
			if quarantined {
				opts = nil
			}
			store, _ := open(t, o, opts...)
			_, err := store.SetNX(t.Context(), name, "token", 20*time.Second)
			untrusted := (*tls.CertificateVerificationError)(nil)
			switch {
			case name != "that is trusted":
				if !errors.As(err, &untrusted) {
					t.Errorf("SetNX on a server %s = %v", name, err)
				}
			case err != nil:
				t.Errorf("SetNX on a server %s = %v", name, err)
			}
		}
	}
}

// terminate listens with TLS and passes on to addr what comes.
func terminate(t *testing.T, addr string, certificates []tls.Certificate) string {
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				far, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer far.Close()
				go func() {
					_, _ = io.Copy(near, far)
					near.Close()
				}()
				_, _ = io.Copy(far, near)
			}()
		}
	}()
	return l.Addr().String()
}
