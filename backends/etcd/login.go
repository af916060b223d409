package etcd

import (
	"context"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A login is the Auth of a client of [Open]. The client library logs in again for each renewal, and when
// its token has ended, whatever connection the call goes over. So it does that over the way on which calls
// for locks go now: the connection of the client may be the one that is silent.
type login struct {
	clientv3.Auth
	client *clientv3.Client
	ways   atomic.Pointer[ways] // of the first store on the client
}

// Authenticate implements [clientv3.Auth].
func (l *login) Authenticate(ctx context.Context, name, password string) (*clientv3.AuthenticateResponse, error) {
	auth := l.Auth
	if w := l.ways.Load(); w != nil {
		if conn, left := w.besides(); left {
			auth = clientv3.NewAuthFromAuthClient(pb.NewAuthClient(conn), l.client)
		}
	}
	return auth.Authenticate(ctx, name, password)
}

// logsIn tells that the client logs in over the ways.
func (w *ways) logsIn() bool {
	l, ok := w.client.Auth.(*login)
	return ok && l.ways.Load() == w
}

// besides is the connection of the store over which calls go now, if they have left those of the client.
func (w *ways) besides() (conn own, left bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return own{w.now.conn, w.now.waits}, w.now != w.first
}
