package goredis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// nobody is an address at which nobody listens.
const nobody = "127.0.0.1:1"

func TestAProgramWithoutAServerWritesNothingButItsOwnError(t *testing.T) {
	const role = "GOREDIS_PROGRAM"
	programs := map[string]struct {
		run    func(ctx context.Context)
		others int // lines of go-redis
	}{
		"a lock": {run: program},
		"another client of the program": {others: 1, run: func(ctx context.Context) {
			program(ctx)
			c := client.NewClient(&client.Options{Addr: nobody, MaxRetries: -1, DialerRetries: 1})
			defer c.Close()
			_ = c.Ping(ctx).Err()
		}},
	}
	if p, ok := programs[os.Getenv(role)]; ok {
		p.run(t.Context())
		return
	}
	for name, p := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := child.Command(t, "TestAProgramWithoutAServerWritesNothingButItsOwnError", role+"="+name)
			var out bytes.Buffer
			cmd.Stderr = &out
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(lines) != 1+p.others {
				t.Errorf("%d lines, want %d", len(lines), 1+p.others)
			}
			for _, part := range []string{"the program: lockstep: lock", nobody, "connection refused", "nothing was sent"} {
				if !strings.Contains(lines[0], part) {
					t.Errorf("the first line does not have %q", part)
				}
			}
			if t.Failed() {
				t.Logf("%s", out.String())
			}
		})
	}
}

func program(ctx context.Context) {
	store, c := goredis.Open(&client.Options{Addr: nobody})
	defer c.Close()
	_, err := locker.New(single.New(store)).Lock(ctx, "a", locker.WithWait(time.Second))
	fmt.Fprintln(os.Stderr, "the program:", err)
}

// What stands in the pool for a dial that failed must not be used as a connection later.
func TestADialThatFailedIsForgottenWhenTheServerIsThere(t *testing.T) {
	for _, spare := range []int{0, 3} {
		t.Run(fmt.Sprint(spare, " connections to spare"), func(t *testing.T) {
			server := embedded.New()
			defer server.Close()
			down := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
			var up atomic.Bool
			var dials atomic.Int64
			o := &client.Options{Addr: nobody, MaxRetries: -1, MinIdleConns: spare}
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dials.Add(1); !up.Load() {
					return nil, down
				}
				return server.Dial(ctx, network, addr)
			}
			store, c := goredis.Open(o)
			defer c.Close()
			_, err := store.SetNX(t.Context(), "a", "token", time.Second)
			if !errors.Is(err, down) || !backends.Unsent(err) || !strings.Contains(err.Error(), nobody) {
				t.Errorf("SetNX = %v", err)
			}
			if n := dials.Load(); spare == 0 && (n != 1 || c.PoolStats().TotalConns != 0) {
				t.Errorf("%d dials, and %d connections in the pool", n, c.PoolStats().TotalConns)
			}
			up.Store(true)
			if r, err := store.SetNX(t.Context(), "a", "token", time.Second); err != nil || !r.OK {
				t.Errorf("SetNX = %+v, %v", r, err)
			}
		})
	}
}
