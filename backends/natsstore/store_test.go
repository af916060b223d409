package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func grant(t testing.TB, store backends.Store, key, value string, ttl time.Duration) {
	t.Helper()
	if r, err := store.SetNX(t.Context(), key, value, ttl); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
}

// The server would cut the fraction off.
func TestATTLIsRoundedUpToSeconds(t *testing.T) {
	conn := install(t)
	store, o := natsstore.New(conn), newOutside(t, conn)
	for ttl, want := range map[time.Duration]string{time.Millisecond: "1s", time.Second: "1s", 1900 * time.Millisecond: "2s", 29*time.Second + 1: "30s"} {
		key := ttl.String()
		for range 2 { // the second time it is renewed
			grant(t, store, key, "token", ttl)
			m, err := o.s.GetLastMsgForSubject(t.Context(), subject(key))
			if err != nil || m.Header.Get("Nats-TTL") != want {
				t.Errorf("a TTL of %v is sent as %q, %v; want %s", ttl, m.Header.Get("Nats-TTL"), err, want)
			}
		}
	}
}

// The server does not tell how long the value still lives, so a shorter TTL may not be sent.
func TestAShorterTTLNeverShortensTheLifeOfAValue(t *testing.T) {
	conn := install(t)
	o := newOutside(t, conn)
	for name, by := range map[string]func(first *natsstore.Store) *natsstore.Store{
		"by the store that knows it":     func(first *natsstore.Store) *natsstore.Store { return first },
		"by a store that has to read it": func(*natsstore.Store) *natsstore.Store { return natsstore.New(conn, natsstore.WithMaxTTL(maxTTL)) },
	} {
		first := natsstore.New(conn, natsstore.WithMaxTTL(maxTTL))
		grant(t, first, name, "token", maxTTL)
		if ok, err := by(first).ExpireIf(t.Context(), name, "token", time.Second); !ok || err != nil {
			t.Errorf("ExpireIf %s = %v, %v", name, ok, err)
		}
		if r, err := by(first).SetNX(t.Context(), name, "token", time.Second); !r.OK || err != nil {
			t.Errorf("SetNX %s = %+v, %v", name, r, err)
		}
		if _, left, ok := o.Get(name); !ok || left < maxTTL/2 {
			t.Errorf("%s: %v left, %v", name, left, ok)
		}
	}
}

// Whoever renews or releases, and whatever the store remembers: the sequence decides.
func TestAStoreWhoseMemoryIsOutOfDateDoesTheSame(t *testing.T) {
	conn := install(t)
	one, two := natsstore.New(conn), natsstore.New(conn)
	r, err := one.SetNXNumbered(t.Context(), "k", "token", time.Minute/2, backends.Turn{})
	if err != nil || !r.OK {
		t.Fatal(r, err)
	}
	number := r.Fence
	for _, s := range []*natsstore.Store{two, one, one, two, one} {
		if ok, err := s.ExpireIf(t.Context(), "k", "token", time.Second); !ok || err != nil {
			t.Fatalf("ExpireIf = %v, %v", ok, err)
		}
		if r, err := s.SetNXNumbered(t.Context(), "k", "token", time.Second, backends.Turn{}); err != nil || !r.OK || r.Fence != number {
			t.Fatalf("SetNXNumbered = %+v, %v; want the number %d", r, err, number)
		}
	}
	if ok, err := two.DeleteIf(t.Context(), "k", "token"); !ok || err != nil {
		t.Fatalf("DeleteIf = %v, %v", ok, err)
	}
	grant(t, two, "k", "next", time.Minute/2)
	if ok, err := one.ExpireIf(t.Context(), "k", "token", time.Second); ok || err != nil {
		t.Errorf("ExpireIf of a released token = %v, %v", ok, err)
	}
	if ok, err := one.DeleteIf(t.Context(), "k", "token"); ok || err != nil {
		t.Errorf("DeleteIf of a released token = %v, %v", ok, err)
	}
	if _, _, ok := newOutside(t, conn).Get("k"); !ok {
		t.Error("the next holder's lock is gone")
	}
}

// The answer to a renewal may be lost, or another store renews. A renewal after that finds a sequence that
// it does not know, and must not take the older renewal for its own.
func TestARenewalIsWrittenAlthoughTheLockWasRenewedBefore(t *testing.T) {
	conn := install(t)
	one, two := natsstore.New(conn), natsstore.New(conn)
	grant(t, one, "k", "token", 10*time.Second)
	if ok, err := two.ExpireIf(t.Context(), "k", "token", 10*time.Second); !ok || err != nil {
		t.Fatalf("ExpireIf = %v, %v", ok, err)
	}
	left := func() time.Duration {
		_, left, _ := newOutside(t, conn).Get("k")
		return left
	}
	eventually(t, "a second of the lease is over", func() bool { return left() < 9*time.Second })
	if ok, err := one.ExpireIf(t.Context(), "k", "token", 10*time.Second); !ok || err != nil {
		t.Fatalf("ExpireIf = %v, %v", ok, err)
	}
	if left := left(); left < 9*time.Second {
		t.Errorf("the renewed lease has %v left; want 10s", left)
	}
}

func TestAConnectionThatIsMadeAgainWakesTheWaiters(t *testing.T) {
	c := start(t, 1, byDefault)
	woken := make(chan struct{}, 1)
	if err := natsstore.New(c.conn).Watch(t.Context(), "k", func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}); err != nil {
		t.Fatal(err)
	}
	await := func(what string) {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(patience):
			t.Fatalf("not woken: %s", what)
		}
	}
	for range 2 {
		c.members[0].kill()
		c.members[0].start(t)
		await("a message may have been missed")
	}
	other := natsstore.New(dial(t, c.url()))
	eventually(t, "a grant", func() bool {
		r, err := other.SetNX(t.Context(), "k", "token", time.Minute/2)
		return err == nil && r.OK
	})
	if ok, err := other.DeleteIf(t.Context(), "k", "token"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	await("the key was released by another program")
}

func TestErrorsTellTheirClass(t *testing.T) {
	want := func(what string, err error, permanent, unsent bool, says string) {
		t.Helper()
		if err == nil || isPermanent(err) != permanent || isUnsent(err) != unsent || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; permanent %v, not done %v; want %v, %v, and %q", what, err, isPermanent(err), isUnsent(err), permanent, unsent, says)
		}
	}
	set := func(s *natsstore.Store) error {
		_, err := s.SetNX(t.Context(), "k", "token", time.Second)
		return err
	}
	live := run(t, func(o *server.Options) { o.JetStreamMaxStore = 1 << 20 })
	conn := dial(t, live.ClientURL())
	_, err := natsstore.New(conn).Check(trial.Patient(t))
	if err != nil {
		t.Error(err)
	}
	want("without a stream", set(natsstore.New(conn)), false, true, "Store.Install")
	_, err = natsstore.New(conn).DeleteIf(t.Context(), "k", "token")
	want("a read without a stream", err, true, false, "Store.Install")
	if err := natsstore.New(conn).Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	want("another stream has the subject", set(natsstore.New(conn, natsstore.WithStream("OTHER"))), true, false, "Store.Install")
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "PLAIN", Subjects: []string{"plain.lock.*"}}); err != nil {
		t.Fatal(err)
	}
	want("a stream without TTL", set(natsstore.New(conn, natsstore.WithStream("PLAIN"), natsstore.WithSubject("plain"))), true, false, "2.11")
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "FULL", Subjects: []string{"full.lock.*"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, MaxMsgs: 1, Discard: jetstream.DiscardNew,
	}); err != nil {
		t.Fatal(err)
	}
	full := natsstore.New(conn, natsstore.WithStream("FULL"), natsstore.WithSubject("full"))
	grant(t, full, "other", "token", time.Minute/2)
	want("a full stream", set(full), false, true, "raise its limits")
	want("a server without JetStream", set(natsstore.New(dial(t, run(t, func(o *server.Options) { o.JetStream = false }).ClientURL()))), false, true, "JetStream is off")

	ended := run(t)
	gone := dial(t, ended.ClientURL())
	ended.Shutdown()
	eventually(t, "the connection is lost", func() bool { return !gone.IsConnected() })
	began := time.Now()
	want("without a server", set(natsstore.New(gone)), false, true, "nothing was done")
	if err := set(natsstore.New(gone)); !strings.Contains(err.Error(), strings.TrimPrefix(ended.ClientURL(), "nats://")) {
		t.Errorf("%v does not name the address (%v)", err, time.Since(began))
	}
	closed := dial(t, live.ClientURL())
	closed.Close()
	want("a closed connection", set(natsstore.New(closed)), true, false, "make a new connection")
	want("Watch on a closed connection", natsstore.New(closed).Watch(t.Context(), "k", func() {}), true, false, "make a new connection")

	want("no connection", set(natsstore.New(nil)), true, false, "nil")
	want("a connection without echo", set(natsstore.New(dial(t, live.ClientURL(), nats.NoEcho()))), true, false, "nats.NoEcho")
	for _, bad := range []natsstore.Option{
		natsstore.WithStream(""), natsstore.WithStream("a.b"), natsstore.WithStream("a b"), natsstore.WithStream("*"), natsstore.WithMaxTTL(0),
		natsstore.WithSubject(""), natsstore.WithSubject("a..b"), natsstore.WithSubject(".a"), natsstore.WithSubject("a.>"), natsstore.WithSubject("a b"),
	} {
		want("a bad option", set(natsstore.New(conn, bad)), true, false, "natsstore.With")
		want("Install with a bad option", natsstore.New(conn, bad).Install(trial.Patient(t), 1), true, false, "natsstore.With")
	}
	_, err = natsstore.New(conn).SetNX(t.Context(), strings.Repeat("\x00", 1000), "token", time.Second)
	want("a long key", err, true, false, "shorter key")
	_, err = natsstore.New(conn).SetNXNumbered(t.Context(), "k", "token", time.Second, backends.Turn{InOrder: true})
	want("an order", err, true, false, "another store")
	for _, ttl := range []time.Duration{0, time.Millisecond - 1, 31 * time.Second} {
		_, err := natsstore.New(conn).SetNX(t.Context(), "k", "token", ttl)
		want(fmt.Sprint("a ttl of ", ttl), err, true, false, "limit")
	}
}

func TestTheOutcomeOfACallThatIsNotAnsweredIsUnknown(t *testing.T) {
	// The pings of this connection find out after two seconds: both calls must have begun by then.
	trial.WhileBusy(t, 2*time.Second, func(t testing.TB, _ time.Duration) {
		c := start(t, 1, byDefault)
		store := natsstore.New(c.conn)
		c.members[0].pause(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := store.SetNX(ctx, "k", "token", time.Minute/2)
		if !errors.Is(err, context.DeadlineExceeded) || isPermanent(err) || isUnsent(err) {
			t.Errorf("after the deadline: %v", err)
		}
		lost := make(chan error, 1)
		go func() {
			_, err := store.SetNX(context.Background(), "other", "token", time.Minute/2)
			lost <- err
		}()
		select {
		case err := <-lost:
			if err == nil || isPermanent(err) || isUnsent(err) || !strings.Contains(err.Error(), "unknown") {
				t.Errorf("with a ctx that has no end: %v", err)
			}
		case <-time.After(patience):
			t.Error("a call with a ctx that has no end does not return")
		}
		c.members[0].resume()
		eventually(t, "the late grant is found, and removed", func() bool {
			ok, err := store.DeleteIf(t.Context(), "k", "token")
			return ok && err == nil
		})
	})
}

func TestNumbersEndAt2To53(t *testing.T) {
	conn := dial(t, run(t).ClientURL())
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	c := good()
	c.FirstSeq = 1<<53 - 1
	if _, err := js.CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	store := natsstore.New(conn)
	if r, err := store.SetNXNumbered(t.Context(), "last", "token", time.Second, backends.Turn{}); err != nil || r.Fence != 1<<53-1 {
		t.Errorf("SetNXNumbered = %+v, %v", r, err)
	}
	if r, err := store.SetNXNumbered(t.Context(), "k", "token", time.Second, backends.Turn{}); !isPermanent(err) || r.OK {
		t.Errorf("SetNXNumbered = %+v, %v; want a permanent error", r, err)
	}
	if _, _, ok := newOutside(t, conn).Get("k"); ok {
		t.Error("the grant without a number is still there")
	}
}
