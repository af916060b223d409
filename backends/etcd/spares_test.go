package etcd

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstep-go/lockstep/proof/etcdtest"
)

func TestSparesAreYoungAndNoTTLKeepsOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p spares
		give := func(id clientv3.LeaseID, seconds int64) {
			p.note(id, term{seconds, time.Now()})
			p.give(id)
		}
		for id := range maxSpares {
			give(clientv3.LeaseID(id+1), 10)
		}
		give(100, 20)
		if p.has(20) {
			t.Error("there are more spares than the limit")
		}
		time.Sleep(5 * time.Second)
		give(101, 20)
		if p.has(10) || p.take(10) != 0 {
			t.Error("a lease in the second half of its life is a spare")
		}
		if !p.has(20) || p.take(20) != 101 || p.take(20) != 0 {
			t.Error("spares that nobody can use kept another TTL out")
		}
		p.give(102)
		if p.has(0) || p.count != 0 {
			t.Error("a lease of unknown life is a spare")
		}
	})
}

// BenchmarkPair takes a lock that nobody else wants, and gives it back: as the store does it, with a look
// before each attempt, and with a look and a new lease. They take turns. The ratios are those of the
// medians to the first. The member is on this host, or as far away as in the same data centre.
func BenchmarkPair(b *testing.B) {
	for _, away := range []time.Duration{0, 500 * time.Microsecond} {
		b.Run(away.String(), func(b *testing.B) { pair(b, away) })
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

func pair(b *testing.B, away time.Duration) {
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
	ways := []struct {
		name   string
		streak int64
		spares bool
	}{{"store", 2, true}, {"looks", 0, true}, {"without-spares", 0, false}}
	took := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, way := range ways {
			store.streak.Store(way.streak)
			if !way.spares {
				store.spares.take(10)
			}
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
	var first time.Duration
	for i, all := range took {
		slices.Sort(all)
		median := all[len(all)/2]
		if i == 0 {
			first = median
			b.ReportMetric(float64(median.Microseconds()), "store-µs")
			continue
		}
		b.ReportMetric(float64(median)/float64(first), ways[i].name+"-ratio")
	}
}
