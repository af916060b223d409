package interop_test

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9"
)

// patience is how long a test waits for what must happen on any machine.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// servers are those that both sides lock on, seen from outside.
type servers []*redistest.Server

func (ss servers) addrs() []string {
	var addrs []string
	for _, s := range ss {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// clients connects to each of them.
func (ss servers) clients(t *testing.T) []*redis.Client {
	t.Helper()
	var clients []*redis.Client
	for _, addr := range ss.addrs() {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		clients = append(clients, client)
	}
	return clients
}

func (ss servers) do(t *testing.T, args ...string) []any {
	t.Helper()
	var replies []any
	for _, s := range ss {
		reply, err := s.Do(args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		replies = append(replies, reply)
	}
	return replies
}

// owner waits until all servers have the same value at key, and returns it. A quorum is enough for an answer, so the
// rest may come later.
func (ss servers) owner(t *testing.T, key string) string {
	t.Helper()
	var value string
	eventually(t, "all servers know the same owner of "+key, func() bool {
		values := ss.do(t, "GET", key)
		value, _ = values[0].(string)
		for _, v := range values {
			if v != values[0] || v == nil {
				return false
			}
		}
		return true
	})
	return value
}

// left is how long the key lives on the server that keeps it longest.
func (ss servers) left(t *testing.T, key string) time.Duration {
	t.Helper()
	var longest int64
	for _, reply := range ss.do(t, "PTTL", key) {
		longest = max(longest, reply.(int64))
	}
	return time.Duration(longest) * time.Millisecond
}

// mustStay returns a check that the key has still the same owner, and that nobody has moved its end.
func (ss servers) mustStay(t *testing.T, key string) func() {
	t.Helper()
	owner, left := ss.owner(t, key), ss.left(t, key)
	return func() {
		t.Helper()
		if now := ss.owner(t, key); now != owner {
			t.Errorf("the key went from %q to %q", owner, now)
		}
		if now := ss.left(t, key); now > left {
			t.Errorf("the key lives for %v more, after it was %v", now, left)
		}
	}
}

// asked closes the channel it returns when the first server executes the next command that names key.
func (ss servers) asked(t *testing.T, key string) <-chan struct{} {
	t.Helper()
	conn, err := net.Dial("tcp", ss[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	context.AfterFunc(ctx, func() { conn.Close() })
	lines := bufio.NewScanner(conn)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil || !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %q, %v, %v", lines.Text(), err, lines.Err())
	}
	seen := make(chan struct{})
	go func() {
		defer cancel()
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"`+key+`"`) {
				close(seen)
				return
			}
		}
	}()
	return seen
}
