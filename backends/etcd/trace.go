package etcd

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// A trace is what the ctx of a call keeps of its requests: the client library replaces what gRPC says of
// them by the error of the ctx.
type trace struct {
	mu     sync.Mutex
	reason string // why the last request had no connection
	open   int    // requests that may change a lock are under way
	sent   bool   // one of them was given to a connection
	unsent bool   // one of them has ended without a connection
	gone   int    // leases that had ended
}

type traceKey struct{}

// begun is the ctx of a call: a member without a leader refuses it.
func begun(ctx context.Context) context.Context {
	return withTrace(clientv3.WithRequireLeader(ctx))
}

func withTrace(ctx context.Context) context.Context {
	return context.WithValue(ctx, traceKey{}, new(trace))
}

// traceOf is the trace of a ctx, or an empty one.
func traceOf(ctx context.Context) *trace {
	if t, ok := ctx.Value(traceKey{}).(*trace); ok {
		return t
	}
	return new(trace)
}

// harmless are the methods that change no lock.
var harmless = map[string]bool{
	pb.KV_Range_FullMethodName:          true,
	pb.Lease_LeaseGrant_FullMethodName:  true, // it has no key yet
	pb.Auth_Authenticate_FullMethodName: true,
}

// keepTrace is for a client of Open, behind the retries of the client library. A request that gRPC sends
// again by itself, and that then waits for a connection, was sent.
func keepTrace(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	t, changes := traceOf(ctx), !harmless[method]
	if changes {
		t.begin()
	}
	var to peer.Peer // gRPC fills it if one of its tries had a connection, whatever became of it
	err := invoke(ctx, method, req, reply, conn, append(slices.Clip(opts), grpc.Peer(&to))...)
	if changes {
		t.end(to.Addr != nil)
	}
	t.tell(unreached(err))
	return err
}

// begin and end are told of a request that may change a lock.
func (t *trace) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
}

func (t *trace) end(sent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
	t.sent = t.sent || sent
	t.unsent = t.unsent || !sent
}

// goOn counts a lease that has ended, and tells whether the call may go on.
func (t *trace) goOn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone++
	return t.gone < maxGone
}

func (t *trace) tell(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reason = reason
}

// reason is why the last request of ctx had no connection, or "".
func reason(ctx context.Context) string {
	t := traceOf(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reason
}

// unsent tells that nothing that changes a lock was sent under ctx. It is false if that is not known, as
// over a client that the application has made.
func unsent(ctx context.Context) bool {
	t := traceOf(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unsent && !t.sent && t.open == 0
}

// unreached is why a request had no connection until its ctx ended, or "".
func unreached(err error) string {
	_, text, _ := strings.Cut(status.Convert(err).Message(), "latest balancer error: ")
	if _, quoted, ok := strings.Cut(text, "desc = "); ok {
		if plain, err := strconv.Unquote(quoted); err == nil {
			text = plain
		}
	}
	return strings.TrimPrefix(strings.TrimPrefix(text, "transport: "), "Error while dialing: ")
}

// because is a reason as the end of an error.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// hint is what to do against an error of a connection: gRPC tells it only in words.
func hint(text string) string {
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case has("x509: "):
		return "; check RootCAs and ServerName of the client's tls.Config"
	case has("remote error: tls: ") && (has("certificate") || has("handshake failure")):
		return "; check Certificates of the client's tls.Config"
	case has("handshake failed: EOF"), has("first record does not look like a TLS handshake"):
		return "; the server may not speak TLS on this port: then use http:// in Endpoints"
	case has("server preface: ") && (has("EOF") || has("connection reset")):
		return "; the server may speak only TLS on this port: then use https:// in Endpoints"
	case has("missing port in address"):
		return "; give the address as host:port"
	}
	return ""
}
