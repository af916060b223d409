package pagelocker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
)

// queueless is a store that keeps no queue, as those of SQLite, etcd and NATS are.
type queueless struct{ *memory.Store }

func (q queueless) Inspect(ctx context.Context, key string) (backends.State, error) {
	s, err := q.Store.Inspect(ctx, key)
	s.Waiting = backends.NotKnown
	return s, err
}

func (q queueless) List(ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
	page, err := q.Store.List(ctx, prefix, after, limit)
	for i := range page.Keys {
		page.Keys[i].Waiting = backends.NotKnown
	}
	return page, err
}

// A store that keeps no queue can't tell how many wait. So the page does not say that nobody waits.
func TestHowManyWaitIsNotKnownWithoutAQueue(t *testing.T) {
	play(t, func(s *scene) {
		page := pagelocker.New(pagelocker.WithStore(queueless{s.Store}), pagelocker.WithKeyMetrics("order/1"))
		s.page = page
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		for target, want := range map[string]string{
			"/":             "held 1 waiting not known",
			"/?key=order/1": "Not known: this store keeps no queue.",
		} {
			text := mainOf(s.get(target).Body.String())
			if !strings.Contains(text, want) || strings.Contains(text, "Nobody waits") {
				s.Errorf("%s shows %q; want %q", target, text, want)
			}
		}
		if r := s.report(""); !r.Others || !r.Locks[0].Others || r.Unknown {
			s.Errorf("the JSON of the list is %+v", r)
		}
		text := s.get("/metrics").Body.String()
		if !strings.Contains(text, "lockstep_key_holds{key=\"order/1\"} 1\n") {
			s.Errorf("metrics %s", text)
		}
		for _, name := range []string{"lockstep_waiters", "lockstep_longest_queue", "lockstep_key_waiters{"} {
			if strings.Contains(text, name) {
				s.Errorf("the metrics have %s of a store that keeps no queue", name)
			}
		}
	})
}
