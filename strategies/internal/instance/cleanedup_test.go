package instance_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

type unsent struct{ error }

func (unsent) Unsent() bool    { return true }
func (u unsent) Unwrap() error { return u.error }

func TestAnUnknownOutcomeSaysUntilWhenItIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		until := time.Now().Add(ttl).Format(time.TimeOnly)
		for _, c := range []struct {
			name string
			ctx  context.Context
			err  error
			want string
		}{
			{"unknown", t.Context(), io.EOF, fmt.Sprintf(`lockstep: acquire "k": EOF; cleanup runs until %s`, until)},
			{"not done", t.Context(), unsent{io.EOF}, `lockstep: acquire "k": EOF`},
			{"of a node, whose quorum cleans up", calls.ForNode(t.Context()), io.EOF, `lockstep: acquire "k": EOF`},
		} {
			store := memory.New()
			l := instance.New(store, func(context.Context, string, string, time.Duration) (backends.Result, error) {
				return backends.Result{}, c.err
			})
			_, err := l.Acquire(c.ctx, contract.Request{Key: "k", Token: "token", TTL: ttl})
			if err == nil || err.Error() != c.want || !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v; want %s", c.name, err, c.want)
			}
		}
		time.Sleep(time.Minute)
	})
}
