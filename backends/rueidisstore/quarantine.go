package rueidisstore

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/rueidis"
)

// Quarantine adds to o what a store needs to see the connections of a client, and returns the option that
// gives it to the store. Call it before the client is made, once for each client, when TLS, dialling and
// credentials of o are set:
//
//	quarantine := rueidis.Quarantine(&o)
//	c, err := client.NewClient(o)
//	store := rueidisstore.New(c, quarantine)
//
// [New] can't do this by itself, since rueidis asks for a function that dials when the client is made, and
// never again. Several stores on one client share the option.
//
// On each new connection, INFO server and INFO replication are sent, and AUTH before them; an
// AuthCredentialsFn is asked twice. Without the permission for INFO nothing is noticed, and Check
// of the store has a finding. Connections to replicas are refused, but for those of
// Standalone.ReplicaAddress. A client for a cluster does not tell which node a command goes to, so
// all grants are refused while one node is in quarantine. See driver.Quarantine for what is noticed,
// and what is not.
func Quarantine(o *client.ClientOption) redisstore.Option {
	if o == nil {
		return redisstore.Invalid("options are nil: they need an InitAddress at least")
	}
	q, own := driver.NewQuarantine(), *o
	o.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		c, err := dial(ctx, own, addr, dialer, config)
		endpoint, others := addr, own.Standalone.ReplicaAddress
		if own.Sentinel.MasterSet != "" {
			endpoint, others = own.Sentinel.MasterSet, own.InitAddress
		}
		if err != nil || slices.Contains(others, addr) {
			return c, err
		}
		c = q.Track(endpoint, c)
		if err := look(ctx, c, own, func(info string, err error) error { return q.Saw(endpoint, info, err) }); err != nil {
			_ = c.Close() // nothing was sent on it but the question
			return nil, undialled{driver.Connecting(err), ctx.Err() != nil && errors.Is(err, ctx.Err())}
		}
		return c, nil
	}
	return redisstore.Observed("", q)
}

// dial is what rueidis does by itself. Besides, its error says that nothing was sent, and its connection
// says when it ended while it was idle.
func dial(ctx context.Context, o client.ClientOption, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	c, err := dialAs(ctx, o, addr, dialer, config)
	if err != nil {
		return nil, undialled{driver.Connecting(err), ctx.Err() != nil}
	}
	return driver.Mark(c), nil
}

func dialAs(ctx context.Context, o client.ClientOption, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	switch {
	case o.DialCtxFn != nil:
		return o.DialCtxFn(ctx, addr, dialer, config)
	case o.DialFn != nil:
		return o.DialFn(addr, dialer, config)
	case config != nil:
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", addr)
	}
	return dialer.DialContext(ctx, "tcp", addr)
}

// look asks on the bare connection, before rueidis says HELLO on it.
func look(ctx context.Context, c net.Conn, o client.ClientOption, saw func(info string, err error) error) error {
	limit := o.Dialer.Timeout
	if limit <= 0 {
		limit = client.DefaultDialTimeout
	}
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	info, err := ask(c, o)
	if !stop() {
		return ctx.Err()
	}
	if err := saw(info, err); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// ask authenticates and returns the replies to INFO server and INFO replication.
func ask(c net.Conn, o client.ClientOption) (string, error) {
	user, password := o.Username, o.Password
	if o.AuthCredentialsFn != nil {
		credentials, err := o.AuthCredentialsFn(client.AuthCredentialsContext{Address: c.RemoteAddr()})
		if err != nil {
			return "", err
		}
		user, password = credentials.Username, credentials.Password
	}
	var question []byte
	switch {
	case user != "":
		question = appendCommand(question, "AUTH", user, password)
	case password != "":
		question = appendCommand(question, "AUTH", password)
	}
	replies := 2
	if question != nil {
		replies++
	}
	question = appendCommand(question, "INFO", "server")
	if _, err := c.Write(appendCommand(question, "INFO", "replication")); err != nil {
		return "", err
	}
	// All replies are read, also behind an error: rueidis panics at one that it has not asked for.
	// It reads no further than our replies, since nothing else was asked.
	r := bufio.NewReader(c)
	var info string
	var first error // the error of AUTH tells more than the NOAUTH that follows it
	for i := range replies {
		text, err := readText(r)
		switch {
		case driver.IsTurnedAway(err): // nothing comes behind it
			return "", err
		case err != nil && !errors.As(err, new(*driver.ReplyError)):
			return "", err
		case first == nil:
			first = err
		}
		if i >= replies-2 {
			info += text
		}
	}
	if first != nil {
		return "", first
	}
	return info, nil
}

func appendCommand(b []byte, args ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

const maxInfo = 1 << 20 // bytes; a server's is two thousand

// readText reads a string, or an error as a *redisstore.ReplyError.
func readText(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[:1], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case "+":
		return text, nil
	case "-":
		return "", &driver.ReplyError{Text: text}
	case "$":
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > maxInfo {
			return "", fmt.Errorf("unexpected reply %q", line)
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		return string(b[:n]), nil
	}
	return "", fmt.Errorf("unexpected reply %q", line)
}
