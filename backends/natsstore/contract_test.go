package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const maxTTL = time.Hour

// resolution: a TTL has whole seconds.
const resolution = time.Second

// install starts a server with a stream, and returns a connection to it.
func install(t testing.TB) *nats.Conn {
	t.Helper()
	conn := dial(t, run(t).ClientURL())
	if err := natsstore.New(conn).Install(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestContract(t *testing.T) {
	conn := install(t)
	other := dial(t, conn.ConnectedUrl())
	store := natsstore.New(conn, natsstore.WithMaxTTL(maxTTL))
	keepsStore(t, store, other)
	keepsOthers(t, store, other)
}

// In a stream with replicas, a write is refused while another one of the same subject is under way.
func TestContractOfAStreamWithReplicas(t *testing.T) {
	c := start(t, 3, byDefault)
	store, other := natsstore.New(c.conn, natsstore.WithMaxTTL(maxTTL)), dial(t, c.url())
	keepsStore(t, store, other)
	t.Run("others", func(t *testing.T) {
		full.Only(t)
		keepsOthers(t, store, other)
	})
}

func keepsStore(t *testing.T, store *natsstore.Store, other *nats.Conn) {
	t.Run("Store", func(t *testing.T) {
		t.Parallel()
		backendtest.Run(t, backendtest.Harness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, New: func(t *testing.T) (backends.Store, backendtest.Outside) {
			return store, newOutside(t, other)
		}})
	})
}

// keepsOthers is about what some strategies and operators need beside a Store.
func keepsOthers(t *testing.T, store *natsstore.Store, other *nats.Conn) {
	o := func(t *testing.T) outside { return newOutside(t, other) }
	t.Run("NumberedStore", func(t *testing.T) {
		t.Parallel()
		backendtest.RunNumbered(t, backendtest.NumberedHarness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, NoQueue: true, New: func(t *testing.T) (backends.NumberedStore, backendtest.Outside) {
			return store, o(t)
		}})
	})
	t.Run("Inspector", func(t *testing.T) {
		t.Parallel()
		backendtest.RunInspector(t, backendtest.InspectorHarness{MaxTTL: maxTTL, Resolution: resolution, NoLeft: true, NoLast: true, New: func(t *testing.T) (backendtest.InspectedStore, backendtest.SharedOutside) {
			return store, o(t)
		}})
	})
}

// outside reads and changes the messages past the store, by the client library's own JetStream.
type outside struct {
	t  *testing.T
	js jetstream.JetStream
	s  jetstream.Stream
}

func newOutside(t *testing.T, conn *nats.Conn) outside {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(context.Background(), "LOCKSTEP")
	if err != nil {
		t.Fatal(err)
	}
	return outside{t, js, s}
}

// subject is written once more here, in another way than by the store.
func subject(key string) string {
	if key == "" {
		return "lockstep.lock.%"
	}
	token := ""
	for _, c := range []byte(key) {
		if c < 0x80 && (strings.ContainsRune("-_:/@=+,~", rune(c)) || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z') {
			token += string(rune(c))
		} else {
			token += fmt.Sprintf("%%%02X", c)
		}
	}
	return "lockstep.lock." + token
}

func (o outside) Get(key string) (value string, left time.Duration, ok bool) {
	o.t.Helper()
	m, err := o.s.GetLastMsgForSubject(context.Background(), subject(key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return "", 0, false
	}
	if err != nil {
		o.t.Error(err)
		return "", 0, false
	}
	if ttl := m.Header.Get("Nats-TTL"); ttl != "" {
		d, err := time.ParseDuration(ttl)
		if err != nil {
			o.t.Error(err)
		}
		// the server is in this process, so its clock is ours
		left = max(time.Until(m.Time.Add(d)), time.Millisecond)
	}
	value, ours := strings.CutPrefix(string(m.Data), "=")
	if !ours {
		value = ""
	}
	return value, left, true
}

func (o outside) put(key, value string, ttl time.Duration) {
	o.t.Helper()
	m := nats.NewMsg(subject(key))
	m.Data = []byte(value)
	if ttl > 0 {
		m.Header.Set("Nats-TTL", fmt.Sprintf("%ds", (ttl+time.Second-1)/time.Second))
	}
	if _, err := o.js.PublishMsg(context.Background(), m); err != nil {
		o.t.Error(err)
	}
}

func (o outside) Set(key, value string, ttl time.Duration) { o.t.Helper(); o.put(key, "="+value, ttl) }
func (o outside) SetOther(key string)                      { o.t.Helper(); o.put(key, "-", 0) }
func (o outside) SetShared(key string)                     { o.t.Helper(); o.put(key, "-", 0) }

// Delete purges the subject, as an operator may. A deletion by sequence would miss a lock that is
// renewed meanwhile.
func (o outside) Delete(key string) {
	o.t.Helper()
	if err := o.s.Purge(context.Background(), jetstream.WithPurgeSubject(subject(key))); err != nil {
		o.t.Error(err)
	}
}
