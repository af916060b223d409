package etcd

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstep-go/lockstep/internal/verify/etcdtest"
)

// BenchmarkAhead takes a lock that nobody else wants, and gives it back: in turns with [Store.ahead]
// and without it. The ratio is that of the medians. The member is on this host, or as far away as in
// the same data centre.
func BenchmarkAhead(b *testing.B) {
	for _, away := range []time.Duration{0, 500 * time.Microsecond} {
		b.Run(away.String(), func(b *testing.B) { ahead(b, away) })
	}
}

// A wire takes some time for what a client sends.
type wire struct {
	net.Conn
	delay time.Duration
}

func (w wire) Write(p []byte) (int, error) {
	time.Sleep(w.delay)
	return w.Conn.Write(p)
}

func ahead(b *testing.B, away time.Duration) {
	dial := grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return wire{conn, away}, err
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: etcdtest.Start(b, 1).Endpoints(), DialOptions: []grpc.DialOption{dial}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	store := New(client)
	var took [2][]time.Duration
	for b.Loop() {
		for i, ahead := range []bool{true, false} {
			store.lucky.Store(ahead)
			began := time.Now()
			if r, err := store.SetNX(b.Context(), "k", "token", 10*time.Second); err != nil || !r.OK {
				b.Fatal(r, err)
			}
			if ok, err := store.DeleteIf(b.Context(), "k", "token"); err != nil || !ok {
				b.Fatal(ok, err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	var medians [2]time.Duration
	for i, all := range took {
		slices.Sort(all)
		medians[i] = all[len(all)/2]
	}
	b.ReportMetric(float64(medians[0].Microseconds()), "ahead-µs")
	b.ReportMetric(float64(medians[1].Microseconds()), "without-µs")
	b.ReportMetric(float64(medians[0])/float64(medians[1]), "ratio")
}
