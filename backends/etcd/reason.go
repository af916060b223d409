package etcd

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// reasonKey is where the ctx of a call keeps why no member could be reached: the client library replaces
// what gRPC says of it by the error of the ctx.
type reasonKey struct{}

// begun is the ctx of a call: a member without a leader refuses it.
func begun(ctx context.Context) context.Context {
	return withReason(clientv3.WithRequireLeader(ctx))
}

func withReason(ctx context.Context) context.Context {
	return context.WithValue(ctx, reasonKey{}, new(atomic.Pointer[string]))
}

// keepReason is for a client of Open. The last request counts: one that was sent has no reason.
func keepReason(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if kept, ok := ctx.Value(reasonKey{}).(*atomic.Pointer[string]); ok {
		if text := unreached(err); text != "" {
			kept.Store(&text)
		} else {
			kept.Store(nil)
		}
	}
	return err
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

// reason is what ctx has kept.
func reason(ctx context.Context) string {
	if kept, ok := ctx.Value(reasonKey{}).(*atomic.Pointer[string]); ok {
		if text := kept.Load(); text != nil {
			return *text
		}
	}
	return ""
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
