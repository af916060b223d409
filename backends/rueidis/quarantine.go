package rueidis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends/redis"
	client "github.com/redis/rueidis"
)

// Quarantine returns o with a DialCtxFn around what o dials with. It refuses every new connection to a server that has been up
// for less than maxTTL and a second: such a server may have forgotten a lock that is still held. Give it the same maxTTL as
// the store (redis.WithMaxTTL; backends.DefaultMaxTTL without it). The error is a *redis.QuarantineError. It takes TLS,
// dialling and credentials from o, so call it when those are set; an AuthCredentialsFn is asked twice for each connection.
// Sentinels are connected to in the same way and may be refused as well: it is not for clients with Sentinel.MasterSet.
//
// It needs the permission to call INFO, and refuses the connection without it; a password that is missing comes out here
// as well, as NOAUTH. A server that tells no uptime passes; Check of the store has a finding for it.
func Quarantine(o client.ClientOption, maxTTL time.Duration) client.ClientOption {
	own := o
	o.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		c, err := dial(ctx, own, addr, dialer, config)
		if err != nil {
			return nil, err
		}
		if err := quarantine(ctx, c, own, maxTTL); err != nil {
			_ = c.Close() // nothing was sent on it but the question
			return nil, err
		}
		return c, nil
	}
	return o
}

// dial is what rueidis does by itself.
func dial(ctx context.Context, o client.ClientOption, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
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

// quarantine asks on the bare connection, before rueidis says HELLO on it.
func quarantine(ctx context.Context, c net.Conn, o client.ClientOption, maxTTL time.Duration) error {
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
	if err != nil {
		if reply := (*redis.ReplyError)(nil); errors.As(err, &reply) && isGeneric(reply.Code()) {
			return c.SetDeadline(time.Time{}) // a server that knows no such command or section tells no uptime
		}
		return fmt.Errorf("quarantine needs INFO server (see WithoutQuarantine): %w", err)
	}
	if err := redis.Quarantine(info, maxTTL); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// isGeneric tells ERR, or words without a code, from a code that says more, such as NOPERM or LOADING.
func isGeneric(code string) bool { return code == "ERR" || code != strings.ToUpper(code) }

// ask authenticates and returns the reply to INFO server.
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
	authenticates := question != nil
	if _, err := c.Write(appendCommand(question, "INFO", "server")); err != nil {
		return "", err
	}
	r := bufio.NewReader(c) // reads no further than our replies: nothing else was asked
	var refused error
	if authenticates {
		if _, refused = readText(r); refused != nil && !errors.As(refused, new(*redis.ReplyError)) {
			return "", refused
		}
	}
	info, err := readText(r)
	if refused != nil {
		return "", refused // tells more than NOAUTH
	}
	return info, err
}

func appendCommand(b []byte, args ...string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

const maxInfo = 1 << 20 // bytes; a server's is two thousand

// readText reads a string, or an error as a *redis.ReplyError.
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
		return "", &redis.ReplyError{Text: text}
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
