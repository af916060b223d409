package etcd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/stats"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/etcd"
	"github.com/lockstep-go/lockstep/proof/silent"
)

// opened opens a store. before is called with each request that changes a lock, before it goes to gRPC.
func opened(t *testing.T, addr string, before func(ctx context.Context, conn *grpc.ClientConn), opts ...grpc.DialOption) *etcd.Store {
	t.Helper()
	store, client, err := etcd.Open(clientv3.Config{Endpoints: []string{"http://" + addr}, DialOptions: append(opts,
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if method == pb.KV_Txn_FullMethodName {
				before(ctx, conn)
			}
			return invoke(ctx, method, req, reply, conn, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if method == pb.Lease_LeaseKeepAlive_FullMethodName {
				before(ctx, conn)
			}
			return next(ctx, desc, conn, method, opts...)
		}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return store
}

// changes are calls that end in a transaction or in a renewal.
var changes = map[string]func(ctx context.Context, s *etcd.Store) error{
	"SetNX": func(ctx context.Context, s *etcd.Store) error {
		_, err := s.SetNX(ctx, "k", "token", time.Second)
		return err
	},
	"Enter": func(ctx context.Context, s *etcd.Store) error {
		_, err := s.Enter(ctx, "shared", "token", time.Second, backends.Admission{})
		return err
	},
	"DeleteIf": func(ctx context.Context, s *etcd.Store) error { _, err := s.DeleteIf(ctx, "k", "token"); return err },
	"ExpireIf": func(ctx context.Context, s *etcd.Store) error {
		_, err := s.ExpireIf(ctx, "held", "token", time.Second)
		return err
	},
	"Leave": func(ctx context.Context, s *etcd.Store) error { _, err := s.Leave(ctx, "shared", "token"); return err },
}

// A request that waited for a connection until its ctx ended was never sent. One that was written to a
// connection may arrive, also if that falls silent or is cut.
func TestARequestThatHadNoConnectionIsNotDone(t *testing.T) {
	t.Parallel()
	c, client := one(t)
	if r, err := etcd.New(client, etcd.WithMaxTTL(patience)).SetNX(t.Context(), "held", "token", patience); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	for name, change := range changes {
		for fault, unsent := range map[string]bool{"stopped before": true, "silent": false, "stopped when it was written": false} {
			t.Run(name+" "+fault, func(t *testing.T) {
				t.Parallel()
				proxy := silent.Before(t, c.Members[0].Addr())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				store := opened(t, proxy.Addr(), func(ctx context.Context, conn *grpc.ClientConn) {
					switch fault {
					case "stopped before":
						proxy.Stop()
						for conn.GetState() == connectivity.Ready {
							conn.WaitForStateChange(ctx, connectivity.Ready)
						}
						cancel()
					case "silent":
						asked := proxy.Swallow(false)
						go func() { <-asked; cancel() }()
					default:
						asked := proxy.Swallow(false)
						go func() { <-asked; proxy.Stop(); cancel() }()
					}
				})
				if _, err := store.Inspect(ctx, "k"); err != nil { // it has a connection
					t.Fatal(err)
				}
				wantClass(t, name, change(ctx, store), false, unsent)
			})
		}
	}
}

// gRPC sends a request again by itself if the server says that it has not looked at it. If the second one
// never has a connection, the first one was still sent: a proxy may have passed it on.
func TestARequestThatGRPCSendsAgainIsUnknown(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		_ = server.Close()
		if !goesAway(conn) {
			cancel()
		}
	}()
	again := make(again, 1)
	var met atomic.Bool
	store := opened(t, server.Addr().String(), func(_ context.Context, conn *grpc.ClientConn) {
		go func() {
			defer cancel()
			select {
			case <-again:
				met.Store(true)
			case <-ctx.Done():
			}
			for state := conn.GetState(); state != connectivity.TransientFailure && ctx.Err() == nil; state = conn.GetState() {
				conn.WaitForStateChange(ctx, state)
			}
		}()
	}, grpc.WithStatsHandler(again))
	_, err = store.DeleteIf(ctx, "k", "token")
	wantClass(t, "DeleteIf", err, false, false)
	if !met.Load() {
		t.Error("gRPC has not sent it again: this test shows nothing")
	}
}

// again is told when gRPC sends a request again by itself.
type again chan struct{}

func (a again) HandleRPC(_ context.Context, s stats.RPCStats) {
	if begin, ok := s.(*stats.Begin); ok && begin.IsTransparentRetryAttempt {
		a <- struct{}{}
	}
}

func (again) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (again) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (again) HandleConn(context.Context, stats.ConnStats)                       {}

// goesAway is a server of HTTP/2 that reads one request, and says that it has looked at none: RFC 9113,
// section 6.8. It is false if there was none.
func goesAway(conn net.Conn) bool {
	frame := func(kind byte, payload ...byte) {
		_, _ = conn.Write(append([]byte{0, 0, byte(len(payload)), kind, 0, 0, 0, 0, 0}, payload...))
	}
	const preface, settings, data, goAway = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0x4, 0x0, 0x7
	if start := make([]byte, len(preface)); !whole(conn, start) || !bytes.Equal(start, []byte(preface)) {
		return false
	}
	frame(settings)
	for header := make([]byte, 9); whole(conn, header); {
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(header)>>8)); err != nil {
			return false
		}
		if header[3] == data {
			frame(goAway, make([]byte, 8)...)
			return true
		}
	}
	return false
}

func whole(from io.Reader, all []byte) bool {
	_, err := io.ReadFull(from, all)
	return err == nil
}
