package campaign

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/redis/go-redis/v9"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestAProcessThatDidNotSeeTheRestart restarts a server without persistence under a holder, and
// lets another client ask for the lock:
//
//   - The quarantine of a client that used the server before the restart refuses the grant (S).
//   - A client that was opened after the restart does not know of it, and gets the lock (V). So
//     does the client of a new process.
//   - WithQuarantine refuses the grant: the server has not been up for long enough (S).
//
// Run it: go test ./proof/campaign -run TestAProcessThatDidNotSeeTheRestart -v
func TestAProcessThatDidNotSeeTheRestart(t *testing.T) {
	trials := 3
	if full.Size() {
		trials = 50
	}
	const longest = 10 * time.Second
	for _, c := range []struct {
		strategy, fault string
		early           bool // the client is opened before the restart
		option          redisstore.Option
		violated        bool
	}{
		{"single, quarantine", "restart that the process saw", true, redisstore.WithMaxTTL(longest), false},
		{"single, quarantine", "restart before the process", false, redisstore.WithMaxTTL(longest), true},
		{"single, WithQuarantine", "restart before the process", false, redisstore.WithQuarantine(longest), false},
	} {
		t.Run(c.strategy+", "+c.fault, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			open := func(opts ...redisstore.Option) *locker.Client {
				store, c := goredis.Open(&redis.Options{Addr: server.Addr()}, append(opts, redisstore.WithMaxTTL(longest))...)
				t.Cleanup(func() { c.Close() })
				return locker.New(single.New(store), locker.WithTTL(longest))
			}
			granted := 0
			for range trials {
				held := mustTryLock(t, open(redisstore.WithoutQuarantine()), "key")
				var other *locker.Client
				if c.early {
					other = open(c.option)
					mustBeHeld(t, other)
				}
				server.Kill()
				server.Restart()
				if !c.early {
					other = open(c.option)
				}
				l, err := other.TryLock(t.Context(), "key")
				for c.early && isUnknown(err) { // on a connection to the server that was killed
					l, err = other.TryLock(t.Context(), "key")
				}
				if held.Context().Err() != nil {
					t.Fatal("the lease ended before the other client had its answer: the machine is too busy")
				}
				switch {
				case err == nil:
					granted++
					l.Unlock(t.Context())
				case !errors.As(err, new(*redisstore.QuarantineError)):
					t.Errorf("TryLock = %v", err)
				}
				held.Unlock(t.Context())
			}
			if want := map[bool]int{true: trials}[c.violated]; granted != want {
				t.Errorf("two holders in %d of %d; want %d", granted, trials, want)
			}
			matrix.Cell{
				Strategy: c.strategy, Fault: c.fault, Where: "redis-server", Trials: trials, Violations: granted, Command: command(t.Name()),
			}.Report(t)
		})
	}
}

func mustBeHeld(t *testing.T, c *locker.Client) {
	t.Helper()
	if _, err := c.TryLock(t.Context(), "key"); !errors.Is(err, locker.ErrHeld) {
		t.Fatalf("TryLock of a lock that is held = %v", err)
	}
}

func isUnknown(err error) bool {
	return err != nil && !errors.Is(err, locker.ErrHeld) && !errors.As(err, new(*redisstore.QuarantineError))
}
