package backendtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

// transactions is a memory store with transactions, whose commit a test replaces. seen tells whether a
// lease was its holder's when the transaction began.
type transactions struct {
	*memory.Store
	commits func(now, seen func(key, token string, shared bool) bool) func(key, token string, shared bool) bool
	early   bool // the guard is asked, and the lease is free to go before the commit
}

func (s transactions) Isolations() []string { return []string{"snapshot"} }

var errRefused = errors.New("not committed")

func (s transactions) Begin(context.Context, string) (func(key, token string, shared bool, between func()) error, error) {
	was := map[string]bool{}
	page, err := s.List(background, "", "", backends.MaxListed)
	for _, k := range page.Keys {
		for _, h := range k.Holds {
			was[h.Print] = true
		}
	}
	commit := s.commits(func(key, token string, _ bool) bool {
		state, err := s.Inspect(background, key)
		for _, h := range state.Holds {
			if err == nil && h.Print == backends.PrintOf(token) {
				return true
			}
		}
		return false
	}, func(_, token string, _ bool) bool { return was[backends.PrintOf(token)] })
	return func(key, token string, shared bool, between func()) error {
		passed := s.early && commit(key, token, shared)
		between()
		if passed || commit(key, token, shared) {
			return nil
		}
		return errRefused
	}, err
}

// lenient takes a lease that ends during a transaction for one that goes on.
type lenient struct{ transactions }

func (s lenient) Begin(ctx context.Context, isolation string) (func(key, token string, shared bool, between func()) error, error) {
	ends := map[string]time.Time{}
	page, _ := s.List(background, "", "", backends.MaxListed)
	for _, k := range page.Keys {
		for _, h := range k.Holds {
			ends[h.Print] = time.Now().Add(h.Left)
		}
	}
	commit, err := s.transactions.Begin(ctx, isolation)
	return func(key, token string, shared bool, between func()) error {
		if at, seen := ends[backends.PrintOf(token)]; seen && !time.Now().Before(at) {
			return nil
		}
		return commit(key, token, shared, between)
	}, err
}

type asks = func(key, token string, shared bool) bool

func guarding(commits func(now, seen asks) asks) func(m *memory.Store) GuardedStore {
	return func(m *memory.Store) GuardedStore { return transactions{m, commits, false} }
}

func TestGuard(t *testing.T) {
	RunGuard(t, GuardHarness{Bubble: true, New: func(*testing.T) (GuardedStore, SharedOutside) {
		m := memory.New()
		return guarding(func(now, _ asks) asks { return now })(m), m
	}})
}

// A guard that looks at the hold as the snapshot has it is that of PostgreSQL before evict touched the
// row of the lock.
func TestEverySentenceAboutAGuardFails(t *testing.T) {
	ofSnapshot := func(_, seen asks) asks { return seen }
	everySentenceFails(t, ofGuard, []broken[GuardedStore]{
		{bug: "no transaction commits", breaks: guardSentences[0].says, store: guarding(func(_, _ asks) asks {
			return func(string, string, bool) bool { return false }
		})},
		{bug: "the guard of a hold sees it as it was", breaks: guardSentences[1].says, store: guarding(func(now, seen asks) asks {
			return func(key, token string, shared bool) bool {
				return now(key, token, shared) || shared && seen(key, token, shared)
			}
		})},
		{bug: "the guard of a lock sees it as it was", breaks: guardSentences[1].says, store: guarding(func(now, seen asks) asks {
			return func(key, token string, shared bool) bool {
				return now(key, token, shared) || !shared && seen(key, token, shared)
			}
		})},
		{bug: "the guard sees a lease as it was", breaks: guardSentences[2].says, store: guarding(ofSnapshot)},
		{bug: "the guard asks whether there is any holder", breaks: guardSentences[2].says, store: func(m *memory.Store) GuardedStore {
			return transactions{m, func(_, _ asks) asks {
				return func(key, _ string, _ bool) bool {
					state, err := m.Inspect(background, key)
					return err == nil && state.Holding > 0
				}
			}, false}
		}},
		{bug: "the guard sees a lease as it was", breaks: guardSentences[3].says, store: guarding(ofSnapshot)},
		{bug: "the guard goes by the ends that it saw", breaks: guardSentences[4].says, store: func(m *memory.Store) GuardedStore {
			return lenient{guarding(func(now, _ asks) asks { return now })(m).(transactions)}
		}},
		{bug: "nothing keeps a lease from its guard to the commit", breaks: guardSentences[5].says, store: func(m *memory.Store) GuardedStore {
			return transactions{m, func(now, _ asks) asks { return now }, true}
		}},
	}, func(m *memory.Store) SharedOutside { return m })
}
