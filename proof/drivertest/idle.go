package drivertest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const (
	idleConns = 5
	idleFor   = 6 * time.Second // longer than a connection goes untested
)

// forgottenConnections is about a load balancer or NAT. Its connections stay silent, so each costs a
// limit; but what was idle as long as one that is found dead costs nothing more.
func forgottenConnections(t *testing.T, h Harness) {
	for name, store := range h.idling() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewRelay(t, redistest.Start(t).Addr())
			pauses, forgot := 0, 0
			idle(t, store(t, Server{Addr: proxy.Addr()}), inFull(20), func() {
				time.Sleep(idleFor)
				pauses++
				if proxy.Forsake() > 0 {
					forgot++
				}
				if h.Shares {
					time.Sleep(4 * time.Second) // such a connection is tested later, or by the client library
				}
			})
			least := pauses
			if h.Shares { // the client library closes a connection that it has found dead, and the next call opens one
				least = (pauses + 2) / 3
			}
			if forgot < least {
				t.Errorf("there was a connection to forget in %d of %d pauses", forgot, pauses)
			}
		})
	}
}

// closedConnections is about a server with a timeout for idle connections, and about one that was
// restarted. What a client library looks for in a socket does not show it with TLS. After a short pause there is one
// round only: what cleans up after it uses the connections, so that they were not idle in the next one.
func closedConnections(t *testing.T, h Harness) {
	server := redistest.Start(t)
	pki := httptest.NewTLSServer(nil)
	t.Cleanup(pki.Close)
	roots := x509.NewCertPool()
	roots.AddCert(pki.Certificate())
	for name, store := range h.idling() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for after, rounds := range map[time.Duration]int{idleFor: inFull(20), 300 * time.Millisecond: 0} {
				proxy := redistest.NewRelay(t, server.Addr())
				addr := terminate(t, proxy.Addr(), &tls.Config{Certificates: pki.TLS.Certificates, MinVersion: tls.VersionTLS12})
				to := Server{Addr: addr, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
				idle(t, store(t, to), rounds, func() {
					time.Sleep(after)
					proxy.CutAll()
					eventually(t, "the end of the connections", func() bool { return proxy.Open() == 0 })
				})
			}
		})
	}
}

// endingConnection is about a client that could not know: the connection ends when the next command is
// on its way.
func endingConnection(t *testing.T, h Harness) {
	for name, store := range h.idling() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			idle(t, store(t, Server{Addr: proxy.Addr()}), 0, func() {
				time.Sleep(300 * time.Millisecond)
				proxy.Add(redistest.Rule{Fault: redistest.CutRequest, Commands: []string{"SET"}})
			})
		})
	}
}

// idling are the ways to a client for locks.
func (h Harness) idling() map[string]func(t *testing.T, to Server) Client {
	opts := []redisstore.Option{redisstore.WithoutQuarantine(), redisstore.WithMaxTTL(time.Hour)}
	return map[string]func(t *testing.T, to Server) Client{
		"Open": func(t *testing.T, to Server) Client {
			store, closes := h.Open(t, to, opts...)
			return Client{New: func(...redisstore.Option) *redisstore.Store { return store }, Close: closes}
		},
		"New": func(t *testing.T, to Server) Client { return h.Connect(t, to) },
	}
}

// idle locks after a pause in which the connections die, and then once after each of so many more. On a busy
// machine the next connection may not be there in time, and then the lock fails rightly.
func idle(t *testing.T, c Client, rounds int, pause func()) {
	trial.WhileBusy(t, time.Second, func(take testing.TB, d time.Duration) {
		survive(take, c, fmt.Sprint("a", d), rounds, pause) // what cleans up after another take may still have its key
	})
}

func survive(t testing.TB, c Client, key string, rounds int, pause func()) {
	locks := locker.New(single.New(c.New()), locker.WithoutRenewal())
	lock := func() {
		t.Helper()
		l, err := locks.Lock(t.Context(), key)
		if err != nil {
			t.Errorf("Lock = %v", err)
			return
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
	lock()
	if c.Executor != nil {
		several(t, c.Executor)
	}
	pause()
	for range 2 * idleConns {
		lock()
	}
	for range rounds {
		pause()
		lock()
	}
}

// inFull is n in full size.
func inFull(n int) int {
	if full.Size() {
		return n
	}
	return 0
}

// several makes the client open several connections.
func several(t testing.TB, e driver.Executor) {
	var out, all sync.WaitGroup
	out.Add(idleConns)
	for range idleConns {
		all.Go(func() {
			if err := e.Pinned(t.Context(), "a", func(c driver.Conn) error {
				_, err := c.Pipeline(t.Context(), []any{"PING"})
				out.Done()
				out.Wait()
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
