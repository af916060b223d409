package quarantinetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

const (
	soon = 25 * time.Second // less than quarantine by default, 31.3 s or more, and enough for a busy machine

	// On a busy machine a reading of the server's clock comes late, and the store must then refuse: see
	// redisstore.WithServerThatForgetsNothing. So there are more rounds until a third were cut short.
	fewestRounds, mostRounds = 3, 30

	// The soonest grant comes within it. A slow machine delays some of them, and a slow store all.
	atOnce = 2 * time.Second
)

// Restarts end a server that saves all that it answers.
var Restarts = map[string]func(s *redistest.Server){
	"kill -9": func(s *redistest.Server) { s.Kill() },
	"a clean restart": func(s *redistest.Server) {
		_, _ = s.Do("SHUTDOWN", "NOSAVE")
		s.Kill() // reaps it
	},
}

// CutShort tests that a server that was declared to forget nothing grants again soon when it is back,
// with default options, and keeps what it has granted. Each round must be granted, or be refused because
// of the server's clock. At least a third must be granted, and one of them at once. end is one of [Restarts].
func CutShort(t *testing.T, open func(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store, end func(*redistest.Server)) {
	server := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	trial.WhileBusy(t, atOnce, func(take testing.TB, _ time.Duration) { // a later take must be as fast
		rounds, granted, soonest := 0, 0, soon
		for rounds < fewestRounds || 3*granted < rounds && rounds < mostRounds {
			if t.Failed() {
				return
			}
			rounds++
			t.Run(fmt.Sprint("round ", rounds), func(t *testing.T) {
				if took, ok := isCutShort(t, server, open(t, server.Addr(), redisstore.WithServerThatForgetsNothing()), end); ok {
					granted++
					soonest = min(soonest, took)
				}
			})
		}
		t.Logf("granted in %d rounds of %d, the soonest %v after the server was back", granted, rounds, soonest)
		switch {
		case 3*granted < rounds:
			t.Errorf("quarantine was cut short in %d rounds of %d; want a third", granted, rounds)
		case soonest >= atOnce:
			take.Errorf("the soonest of %d grants came %v after the server was back; want one within %v", granted, soonest, atOnce)
		}
	})
}

// isCutShort tells whether the server granted again soon, and when. If not, its clock was the reason.
func isCutShort(t *testing.T, server *redistest.Server, store *redisstore.Store, end func(*redistest.Server)) (time.Duration, bool) {
	mustTake := func(key string) {
		t.Helper()
		if r, err := store.SetNX(t.Context(), key, "mine", longestTTL); err != nil || !r.OK {
			t.Fatalf("SetNX of %q = %+v, %v", key, r, err)
		}
	}
	mustTake(t.Name())
	mustTake(t.Name() + ", held over the restart") // the second grant has the clock read before
	end(server)
	server.Restart()
	for back := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		r, err := store.SetNX(t.Context(), t.Name()+", new", "mine", longestTTL)
		took := time.Since(back).Round(time.Millisecond)
		switch refused := (*redisstore.QuarantineError)(nil); {
		case r.OK && took < soon:
			t.Logf("granted %v after the server was back", took)
			if r, err := store.SetNX(t.Context(), t.Name()+", held over the restart", "other", longestTTL); err != nil || r.OK {
				t.Errorf("SetNX of a lock that is held = %+v, %v", r, err)
			}
			return took, true
		case took >= soon:
			t.Errorf("%v after the server was back: SetNX = %+v, %v; want a grant, or that the clock speaks against it", took, r, err)
			return 0, false
		case err == nil:
			t.Errorf("SetNX of a free key = %+v", r)
			return 0, false
		case errors.As(err, &refused) && strings.Contains(err.Error(), "is not believed"):
			if !strings.Contains(err.Error(), "since its clock has gone ahead by ") {
				t.Errorf("SetNX = %v; want a grant, or that the clock speaks against it", err)
			}
			t.Log(err)
			return 0, false
		}
		// The connection is one of before, or the server could not be asked.
	}
}

// longestTTL is that of a store with default options.
const longestTTL = 30 * time.Second
