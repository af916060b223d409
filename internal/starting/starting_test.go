package starting_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/starting"
)

type store struct{ *memory.Store }

func (s *store) Self() backends.Store { return s }

func (*store) StartSetNX(context.Context, string, string, time.Duration, func(backends.Result, error)) {
}
func (*store) StartDeleteIf(context.Context, string, string, func(bool, error)) {}

// careful has a SetNX of its own, and its values can't be compared by ==.
type careful struct {
	*store
	seen map[string]bool
}

func (c careful) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	c.seen[key] = true
	return c.store.SetNX(ctx, key, value, ttl)
}

func TestAStoreThatEmbedsAnotherIsCalledByItsOwnMethods(t *testing.T) {
	inner := &store{memory.New()}
	if s, ok := starting.Of(inner); !ok || s != inner {
		t.Errorf("Of(store) = %v, %v", s, ok)
	}
	for name, s := range map[string]backends.Store{
		"a store without these methods": memory.New(),
		"a store that embeds one":       careful{inner, map[string]bool{}},
	} {
		if _, ok := starting.Of(s); ok {
			t.Errorf("Of accepts %s: its own SetNX would not be called", name)
		}
	}
}
