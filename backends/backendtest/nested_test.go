package backendtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var nestedDoubles = slices.Concat(nestedEnterDoubles, nestedRenewDoubles, nestedLeaveDoubles, nestedForeignDoubles, nestedManyDoubles,
	nestedWatchDoubles())

// nestedWatchDoubles are those of any store, with the Watch alone.
func nestedWatchDoubles() (doubles []broken[backends.NestedStore]) {
	for _, d := range watchDoubles {
		doubles = append(doubles, broken[backends.NestedStore]{
			bug: d.bug, breaks: ofHolds(d.breaks), noWatch: d.noWatch,
			store: func(m *memory.Store) backends.NestedStore { return nestedDouble{Store: m, watch: d.store(m).Watch} },
		})
	}
	return doubles
}

// nestedDouble is a memory store with some methods replaced.
type nestedDouble struct {
	*memory.Store
	enter enterFunc
	renew renewFunc
	leave leaveFunc
	watch watchFunc
}

type (
	enterFunc = func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error)
	renewFunc = func(ctx context.Context, key, token string, ttl time.Duration) (bool, error)
	leaveFunc = func(ctx context.Context, key, token string) (bool, error)
)

func (d nestedDouble) Enter(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
	if d.enter != nil {
		return d.enter(ctx, key, owner, token, ttl)
	}
	return d.Store.Enter(ctx, key, owner, token, ttl)
}

func (d nestedDouble) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	if d.renew != nil {
		return d.renew(ctx, key, token, ttl)
	}
	return d.Store.Renew(ctx, key, token, ttl)
}

func (d nestedDouble) Leave(ctx context.Context, key, token string) (bool, error) {
	if d.leave != nil {
		return d.leave(ctx, key, token)
	}
	return d.Store.Leave(ctx, key, token)
}

func (d nestedDouble) Watch(ctx context.Context, key string, wake func()) error {
	if d.watch != nil {
		return d.watch(ctx, key, wake)
	}
	return d.Store.Watch(ctx, key, wake)
}

func badEnter(f func(m *memory.Store) enterFunc) func(*memory.Store) backends.NestedStore {
	return func(m *memory.Store) backends.NestedStore { return nestedDouble{Store: m, enter: f(m)} }
}

func badRenew(f func(m *memory.Store) renewFunc) func(*memory.Store) backends.NestedStore {
	return func(m *memory.Store) backends.NestedStore { return nestedDouble{Store: m, renew: f(m)} }
}

func badLeave(f func(m *memory.Store) leaveFunc) func(*memory.Store) backends.NestedStore {
	return func(m *memory.Store) backends.NestedStore { return nestedDouble{Store: m, leave: f(m)} }
}

// afterEnter is a store that does something wrong after Enter.
func afterEnter(wrong func(m *memory.Store, key string, ttl time.Duration, res *backends.Result)) func(*memory.Store) backends.NestedStore {
	return badEnter(func(m *memory.Store) enterFunc {
		return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
			res, err := m.Enter(ctx, key, owner, token, ttl)
			wrong(m, key, ttl, &res)
			return res, err
		}
	})
}

// holds looks without changing anything: a Renew never shortens.
func holds(m *memory.Store, key, token string) bool {
	ok, _ := m.Renew(background, key, token, time.Millisecond)
	return ok
}

// mistaking is a store that takes names for others.
func mistaking(key, owner, token func(string) string) func(*memory.Store) backends.NestedStore {
	same := func(s string) string { return s }
	for _, f := range []*func(string) string{&key, &owner, &token} {
		if *f == nil {
			*f = same
		}
	}
	return func(m *memory.Store) backends.NestedStore {
		return nestedDouble{
			Store: m,
			enter: func(ctx context.Context, k, o, t string, ttl time.Duration) (backends.Result, error) {
				return m.Enter(ctx, key(k), owner(o), token(t), ttl)
			},
			renew: func(ctx context.Context, k, t string, ttl time.Duration) (bool, error) {
				return m.Renew(ctx, key(k), token(t), ttl)
			},
			leave: func(ctx context.Context, k, t string) (bool, error) { return m.Leave(ctx, key(k), token(t)) },
		}
	}
}

// remembering is a store that keeps a list of who ever entered.
type remembering struct {
	*memory.Store
	mu     sync.Mutex
	owner  map[string]string
	tokens map[string][]string
}

func remember(m *memory.Store) *remembering {
	return &remembering{Store: m, owner: make(map[string]string), tokens: make(map[string][]string)}
}

func (r *remembering) Enter(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res, err := r.Store.Enter(ctx, key, owner, token, ttl)
	if res.OK {
		r.owner[key] = owner
		r.tokens[key] = append(r.tokens[key], token)
	}
	return res, err
}

func enterWithoutLeft(m *memory.Store) enterFunc {
	return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
		res, err := m.Enter(ctx, key, owner, token, ttl)
		res.Left = 0
		return res, err
	}
}
