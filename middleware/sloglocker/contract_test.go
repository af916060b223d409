package sloglocker_test

import (
	"log/slog"
	"testing"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/sloglocker"
	"github.com/lockstep-go/lockstep/proof/beneath"
)

// TestContractOfEveryStrategyUnderTheMiddleware also looks for tokens in what was logged.
func TestContractOfEveryStrategyUnderTheMiddleware(t *testing.T) {
	beneath.Around(t, func(t *testing.T, l locker.Locker) locker.Locker {
		j, s := newJournal(), &secrets{}
		t.Cleanup(func() {
			if s.in(j.all()) {
				t.Error("a token is in the log")
			}
		})
		return contract.Wrap(l, sloglocker.New(sloglocker.WithLogger(slog.New(j))), s.watch)
	})
}
