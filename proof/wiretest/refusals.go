package wiretest

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// TurnedAway lets servers close each new connection, and looks whether each error names what the
// server said before. hello is whether the client library begins with HELLO.
func TurnedAway(t *testing.T, connect Connect, hello bool) {
	full := redistest.Start(t)
	full.Fill()
	const denied = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. " +
		"In this mode connections are only accepted from the loopback interface.\r\n"
	for _, c := range []struct {
		name, addr string
		want       []string
		kind       string
		class      class // empty: it depends on the client library
	}{
		{"max clients", full.Addr(), []string{"ERR max number of clients reached", "raise maxclients"}, "redis_maxclients", notDone},
		{"protected mode", turnAway(t, denied, false), []string{"DENIED Redis is running in protected mode;", "protected-mode"}, "redis_denied", permanent},
		{"protected mode, after a command", turnAway(t, denied, true), []string{"DENIED Redis is running in protected mode;", "protected-mode"}, "redis_denied", permanent},
		{"no answer", turnAway(t, "", true), []string{"may speak only TLS", "does not know the first command"}, "eof", ""},
	} {
		for name, opt := range map[string]redisstore.Option{"quarantine": nil, "no quarantine": redisstore.WithoutQuarantine()} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				const tries = 50
				wrong := 0
				store, _ := connect(t, Server{Addr: c.addr, Timeout: patience}, opt, redisstore.WithMaxTTL(long))
				for range tries {
					_, err := store.SetNX(context.Background(), "a", "token", short)
					if err == nil {
						t.Fatal("no error")
					}
					is := strings.Contains(err.Error(), c.addr) && typeOf(err) == c.kind && (c.class == "" || classOf(err) == c.class)
					for _, words := range c.want {
						is = is && strings.Contains(err.Error(), words)
					}
					if c.kind == "eof" && hello && opt != nil {
						is = is && strings.Contains(err.Error(), "HELLO")
					}
					if !is {
						if wrong++; wrong == 1 {
							t.Errorf("%v, %s, %s; want %q, %s, %s", err, typeOf(err), classOf(err), c.want, c.kind, c.class)
						}
					}
				}
				if wrong > 0 {
					t.Errorf("%d of %d errors are wrong", wrong, tries)
				}
			})
		}
	}
}

// turnAway sends text and closes each connection: at once, or when it has read something.
func turnAway(t *testing.T, text string, reads bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if reads {
				_, _ = c.Read(make([]byte, 4096))
			}
			_, _ = c.Write([]byte(text))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}
