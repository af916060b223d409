package otellocker_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/proof/beneath"
)

// TestContractOfEveryStrategyUnderTheMiddleware also checks that both gauges are back at zero.
func TestContractOfEveryStrategyUnderTheMiddleware(t *testing.T) {
	beneath.Around(t, func(t *testing.T, l locker.Locker) locker.Locker {
		s, tokens := newSDK(), &tokens{}
		t.Cleanup(func() {
			s.wantSound(t)
			s.wantNone(t, tokens)
			if waiting, held := s.level("lock.waiting"), s.level("lock.held"); waiting != 0 || held != 0 {
				t.Errorf("at the end lock.waiting is %d and lock.held is %d; want 0", waiting, held)
			}
		})
		return contract.Wrap(noting{l, tokens}, otellocker.New(s.options(otellocker.WithHoldSpan())...))
	})
}
