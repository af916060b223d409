package instance_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// slowPlace stores a token. Each call takes time on the way there and on the way back.
type slowPlace struct {
	mu    sync.Mutex
	token string
	puts  []trip // of the next calls of Put; those after them take no time
}

type trip struct {
	there, back time.Duration
	err         error // instead of the answer
}

func (p *slowPlace) Put(_ context.Context, req contract.Request) (backends.Result, error) {
	p.mu.Lock()
	var way trip
	if len(p.puts) > 0 {
		way, p.puts = p.puts[0], p.puts[1:]
	}
	p.mu.Unlock()
	time.Sleep(way.there)
	p.mu.Lock()
	free := p.token == ""
	if free {
		p.token = req.Token
	}
	p.mu.Unlock()
	time.Sleep(way.back)
	return backends.Result{OK: free}, way.err
}

func (p *slowPlace) DeleteIf(_ context.Context, _, token string) (bool, error) {
	time.Sleep(10 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token != token {
		return false, nil
	}
	p.token = ""
	return true, nil
}

func (p *slowPlace) ExpireIf(context.Context, string, string, time.Duration) (bool, error) {
	return false, nil
}
func (p *slowPlace) Watch(context.Context, string, string, func()) error { return nil }

// A failed attempt has stored its token. Because of it the next attempt finds the lock held,
// whether its answer comes before that of the cleanup or after.
func TestAnAttemptDoesNotMeetTheGhostOfTheOneBefore(t *testing.T) {
	for name, c := range map[string]struct{ first, second trip }{
		"the cleanup is answered later": {trip{err: errors.New("connection reset")}, trip{}},
		"the cleanup is answered first": {trip{err: errors.New("connection reset")}, trip{back: time.Second}},
		"a grant that came too late":    {trip{back: time.Minute}, trip{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := instance.Over(&slowPlace{puts: []trip{c.first, c.second}}, nil)
				req := contract.Request{Key: "key", Token: contract.NewToken(), TTL: 30 * time.Second}
				if _, err := l.Acquire(t.Context(), req); err == nil || errors.Is(err, locker.ErrHeld) {
					t.Fatalf("the first = %v", err)
				}
				req.Token = contract.NewToken()
				if _, err := l.Acquire(t.Context(), req); err != nil {
					t.Errorf("the second = %v; nobody else wants the lock", err)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}
