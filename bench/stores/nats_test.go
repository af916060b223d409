package stores

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsServer starts a server in this process, with a stream of locks.
func natsServer(tb testing.TB, always bool) (*server.Server, *nats.Conn, jetstream.JetStream) {
	tb.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: filepath.Join(tb.TempDir(), "data"), NoLog: true, NoSigs: true, SyncAlways: always,
	}
	s, err := server.NewServer(o)
	must(tb, err)
	s.Start()
	tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		tb.Fatal("the server is not ready")
	}
	conn := natsConn(tb, s)
	must(tb, natsstore.New(conn).Install(context.Background(), 1))
	js, err := jetstream.New(conn)
	must(tb, err)
	return s, conn, js
}

func natsConn(tb testing.TB, s *server.Server) *nats.Conn {
	tb.Helper()
	conn, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1))
	must(tb, err)
	tb.Cleanup(conn.Close)
	return conn
}

// BenchmarkNATSPair is [BenchmarkPostgreSQLPair] for NATS, beside a publish and a deletion by the
// client library's own JetStream on the same connection, and beside a key-value bucket.
func BenchmarkNATSPair(b *testing.B) {
	for _, sync := range []string{"default", "always"} {
		b.Run("sync="+sync, func(b *testing.B) {
			_, conn, js := natsServer(b, sync == "always")
			raw, err := js.Stream(b.Context(), "LOCKSTEP")
			must(b, err)
			kv, err := js.CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "KV"})
			must(b, err)
			store := natsstore.New(conn)
			measure(b, []contender{
				{"publish+delete", func(ctx context.Context) error { return publishAndDelete(ctx, js, raw) }},
				{"store", func(ctx context.Context) error {
					if r, err := store.SetNX(ctx, "stored", "token", time.Second); err != nil || !r.OK {
						return fmt.Errorf("%+v, %w", r, err)
					}
					_, err := store.DeleteIf(ctx, "stored", "token")
					return err
				}},
				{"single", throughClient(single.New(store))},
				{"fenced", throughClient(fenced.New(store))},
				{"kv-create+delete", func(ctx context.Context) error { // such a key never expires
					revision, err := kv.Create(ctx, "key", []byte("token"))
					if err != nil {
						return err
					}
					return kv.Delete(ctx, "key", jetstream.LastRevision(revision))
				}},
				{"refused", func(ctx context.Context) error { // last, so that the first of the next turn finds its stream in use
					_, err := store.SetNX(ctx, "held", "token "+fmt.Sprint(time.Now().UnixNano()), 20*time.Second)
					return err
				}},
			})
		})
	}
}

func publishAndDelete(ctx context.Context, js jetstream.JetStream, raw jetstream.Stream) error {
	ack, err := js.Publish(ctx, "lockstep.lock.raw", []byte("token"), jetstream.WithMsgTTL(time.Second), jetstream.WithExpectLastSequencePerSubject(0))
	if err != nil {
		return err
	}
	return raw.DeleteMsg(ctx, ack.Sequence)
}

// BenchmarkNATSHandover is [BenchmarkPostgreSQLHandover] for NATS: each goroutine has a connection
// of its own.
func BenchmarkNATSHandover(b *testing.B) {
	for _, waiters := range []int{1, 100} {
		b.Run(fmt.Sprintf("single/%d", waiters), func(b *testing.B) {
			s, _, _ := natsServer(b, false)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			turns := make(chan struct{})
			var all sync.WaitGroup
			for range waiters + 1 {
				take := throughClient(single.New(natsstore.New(natsConn(b, s))))
				all.Go(func() {
					for ctx.Err() == nil {
						if err := take(ctx); err == nil {
							select {
							case turns <- struct{}{}:
							case <-ctx.Done():
							}
						}
					}
				})
			}
			for b.Loop() {
				<-turns
			}
			cancel()
			all.Wait()
		})
	}
}

// BenchmarkNATSIdleWaiters is [BenchmarkPostgreSQLIdleWaiters] for NATS. Messages to the server are
// counted.
func BenchmarkNATSIdleWaiters(b *testing.B) {
	s, conn, _ := natsServer(b, false)
	store := natsstore.New(conn)
	for i := range 100 {
		if r, err := store.SetNX(b.Context(), fmt.Sprint(i), "holder", 30*time.Second); err != nil || !r.OK {
			b.Fatal(r, err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	for range 10 {
		locks := locker.New(single.New(natsstore.New(natsConn(b, s))))
		for i := range 100 {
			all.Go(func() { _, _ = locks.Lock(ctx, fmt.Sprint(i)) })
		}
	}
	messages := func() int64 {
		v, err := s.Varz(nil)
		must(b, err)
		return v.InMsgs
	}
	for b.Loop() { // once: time passes
		time.Sleep(5 * time.Second)
		began, before := time.Now(), messages()
		time.Sleep(10 * time.Second)
		b.ReportMetric(float64(messages()-before)/time.Since(began).Seconds(), "messages/s")
	}
	cancel()
	all.Wait()
}
