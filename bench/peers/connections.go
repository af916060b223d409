package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// goredis is a client of server i with the default options, except for the options of the place.
func (p place) goredis(i int) *redis.Client {
	o := &redis.Options{Addr: p.addrs[i], PoolSize: p.poolSize, ContextTimeoutEnabled: p.contextTimeout}
	if p.sent != nil {
		dial := redis.NewDialer(o)
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return counted(p.sent)(dial(ctx, network, addr))
		}
	}
	return redis.NewClient(o)
}

func (p place) goredisEach() []*redis.Client {
	clients := make([]*redis.Client, len(p.addrs))
	for i := range clients {
		clients[i] = p.goredis(i)
	}
	return clients
}

func closing(clients []*redis.Client) func() {
	return func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}
}

// rueidisOption has the options that rueidis needs. A thousand clients in one process need smaller
// buffers.
func (p place) rueidisOption(i int) rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: []string{p.addrs[i]}, ForceSingleClient: true}
	if p.waiters >= 100 {
		o.ReadBufferEachConn, o.WriteBufferEachConn = 16<<10, 16<<10
	}
	if p.sent != nil {
		// By default rueidis sends a PING in each connection every second. With 1,000 clients these are
		// most of the commands. The second line is the default.
		o.Dialer.KeepAlive = time.Minute
		o.ConnWriteTimeout = 10 * time.Second
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return counted(p.sent)(d.DialContext(ctx, "tcp", addr))
		}
	}
	return o
}

func (p place) rueidisEach() (all []rueidis.Client, end func(), err error) {
	end = func() {
		for _, c := range all {
			c.Close()
		}
	}
	for i := range p.addrs {
		c, err := rueidis.NewClient(p.rueidisOption(i))
		if err != nil {
			end()
			return nil, nil, err
		}
		all = append(all, c)
	}
	return all, end, nil
}

// counted makes a connection count the commands that it sends. The count of a server includes the
// commands inside scripts.
func counted(sent *atomic.Int64) func(net.Conn, error) (net.Conn, error) {
	return func(conn net.Conn, err error) (net.Conn, error) {
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			return &counting{TCPConn: tcp, sent: sent}, nil
		}
		return conn, err
	}
}

type counting struct {
	*net.TCPConn // with all its methods, which client libraries look for
	sent         *atomic.Int64
	requests     requests
}

func (c *counting) Write(b []byte) (int, error) {
	c.sent.Add(c.requests.count(b)) // before the write, so that no reply comes before its request counts
	return c.TCPConn.Write(b)
}

// requests reads the bytes of clients. They send only arrays of bulk strings. See
// https://redis.io/docs/latest/develop/reference/protocol-spec/
type requests struct {
	line []byte // the beginning of a header that is not complete
	skip int    // bytes of a bulk string, and its end of line
}

// count returns the number of requests that begin in b.
func (r *requests) count(b []byte) (n int64) {
	for len(b) > 0 {
		if r.skip > 0 {
			k := min(r.skip, len(b))
			r.skip -= k
			b = b[k:]
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			r.line = append(r.line, b...)
			return n
		}
		r.line = append(r.line, b[:end]...)
		b = b[end+1:]
		header := bytes.TrimSuffix(r.line, []byte("\r"))
		switch {
		case bytes.HasPrefix(header, []byte("*")):
			n++
		case bytes.HasPrefix(header, []byte("$")):
			length, _ := strconv.Atoi(string(header[1:])) // no client sends anything else
			r.skip = length + 2
		}
		r.line = r.line[:0]
	}
	return n
}
