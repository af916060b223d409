package redisstore_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	client "github.com/redis/go-redis/v9"
)

// A key lives for a ms more than the TTL, which no answer may tell as time that is left.
func TestNothingSaysThatMoreIsLeftThanTheTTL(t *testing.T) {
	for name, addr := range map[string]string{"redis": redistest.Start(t).Addr(), "embedded": startEmbedded(t)} {
		t.Run(name, func(t *testing.T) {
			s := goredis.New(dial(t, &client.Options{Addr: addr}))
			const ttl = 20 * time.Second
			granted := func(what string, r backends.Result, err error) {
				t.Helper()
				if err != nil || !r.OK {
					t.Fatalf("%s = %+v, %v", what, r, err)
				}
			}
			atMost := func(what string, left time.Duration, err error) {
				t.Helper()
				if err != nil || left <= 0 || left > ttl {
					t.Errorf("%s: %v left, %v; want at most %v", what, left, err, ttl)
				}
			}
			inspected := func(key string) {
				t.Helper()
				state, err := s.Inspect(trial.Patient(t), key)
				if err != nil || len(state.Holds) != 1 {
					t.Fatalf("Inspect = %+v, %v", state, err)
				}
				atMost("Inspect", state.Holds[0].Left, nil)
			}
			r, err := s.SetNX(t.Context(), "key", "mine", ttl)
			granted("SetNX", r, err)
			left, _, err := s.Left(t.Context(), "key")
			atMost("Left", left, err)
			r, err = s.SetNX(t.Context(), "key", "other", ttl)
			atMost("SetNX", r.Left, err)
			r, err = s.SetNXQueued(t.Context(), "key", "other", ttl, backends.Turn{})
			atMost("SetNXQueued", r.Left, err)
			inspected("key")

			r, err = s.Enter(t.Context(), "shared", "mine", ttl, backends.Admission{Group: "me", Limit: 1})
			granted("Enter", r, err)
			r, err = s.Enter(t.Context(), "shared", "other", ttl, backends.Admission{Group: "me", Limit: 1})
			atMost("Enter", r.Left, err)
			inspected("shared")
		})
	}
}
