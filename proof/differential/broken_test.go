package differential

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

// A broken store is a store in memory with one wrong call.
type broken struct {
	*memory.LegacyStore
	setNX       func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error)
	setNXFenced func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error)
	expireIf    func(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	deleteIf    func(ctx context.Context, key, value string) (bool, error)
	raise       func(ctx context.Context, key, value string, to uint64) (bool, error)
	enter       func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error)
	leave       func(ctx context.Context, key, token string) (bool, error)
	getSet      func(ctx context.Context, key, value string) (string, bool, error)
	txExpireIf  func(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
}

func (b *broken) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	if b.setNX != nil {
		return b.setNX(ctx, key, value, ttl)
	}
	return b.LegacyStore.SetNX(ctx, key, value, ttl)
}

func (b *broken) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return b.number(ctx, key, value, ttl, byCount)
}

func (b *broken) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	if t.Waiter != "" || t.InOrder {
		return b.LegacyStore.SetNXNumbered(ctx, key, value, ttl, t)
	}
	return b.number(ctx, key, value, ttl, byClock)
}

func (b *broken) number(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
	if b.setNXFenced != nil {
		return b.setNXFenced(ctx, key, value, ttl, n)
	}
	return n.draw(ctx, b.LegacyStore, key, value, ttl)
}

func (b *broken) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	if b.expireIf != nil {
		return b.expireIf(ctx, key, value, ttl)
	}
	return b.LegacyStore.ExpireIf(ctx, key, value, ttl)
}

func (b *broken) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	if b.deleteIf != nil {
		return b.deleteIf(ctx, key, value)
	}
	return b.LegacyStore.DeleteIf(ctx, key, value)
}

func (b *broken) RaiseFence(ctx context.Context, key, value string, to uint64) (bool, error) {
	if b.raise != nil {
		return b.raise(ctx, key, value, to)
	}
	return b.LegacyStore.RaiseFence(ctx, key, value, to)
}

func (b *broken) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	if b.enter != nil {
		return b.enter(ctx, key, token, ttl, a)
	}
	return b.LegacyStore.Enter(ctx, key, token, ttl, a)
}

func (b *broken) Leave(ctx context.Context, key, token string) (bool, error) {
	if b.leave != nil {
		return b.leave(ctx, key, token)
	}
	return b.LegacyStore.Leave(ctx, key, token)
}

func (b *broken) GetSet(ctx context.Context, key, value string) (string, bool, error) {
	if b.getSet != nil {
		return b.getSet(ctx, key, value)
	}
	return b.LegacyStore.GetSet(ctx, key, value)
}

func (b *broken) TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	if b.txExpireIf != nil {
		return b.txExpireIf(ctx, key, value, ttl)
	}
	return b.LegacyStore.TxExpireIf(ctx, key, value, ttl)
}

// breaks are errors that stores have had: this one while it was written, and others.
var breaks = map[string]func(b *broken, s *memory.Store){
	"DeleteIf does not look whose the key is": func(b *broken, s *memory.Store) {
		b.deleteIf = func(ctx context.Context, key, value string) (bool, error) {
			ok, err := s.DeleteIf(ctx, key, value)
			if !ok && err == nil {
				return b.Delete(ctx, key)
			}
			return ok, err
		}
	},
	"DeleteIf wakes nobody": func(b *broken, _ *memory.Store) { b.deleteIf = b.TxDeleteIf },
	"ExpireIf shortens": func(b *broken, s *memory.Store) {
		b.expireIf = func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
			return b.LegacyStore.TxExpireIf(ctx, key, value, ttl)
		}
	},
	"ExpireIf brings back what has ended": func(b *broken, s *memory.Store) {
		b.expireIf = func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
			ok, err := s.ExpireIf(ctx, key, value, ttl)
			if !ok && err == nil {
				r, err := s.SetNX(ctx, key, value, ttl)
				return r.OK, err
			}
			return ok, err
		}
	},
	"SetNX with the same value does not set its ttl": func(b *broken, s *memory.Store) {
		b.setNX = func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			if old, _, found := s.Get(key); found && old == value && value != "" {
				return backends.Result{OK: true}, nil
			}
			return s.SetNX(ctx, key, value, ttl)
		}
	},
	"SetNX with the same value shortens": func(b *broken, s *memory.Store) {
		b.setNX = func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			r, err := s.SetNX(ctx, key, value, ttl)
			if r.OK {
				_, err = s.Legacy().TxExpireIf(ctx, key, value, ttl)
			}
			return r, err
		}
	},
	"SetNX gives a millisecond too little": func(b *broken, s *memory.Store) {
		b.setNX = func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			return s.SetNX(ctx, key, value, max(ttl-time.Millisecond, min(ttl, time.Millisecond)))
		}
	},
	"SetNX tells no Foreign": func(b *broken, s *memory.Store) {
		b.setNX = func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			r, err := s.SetNX(ctx, key, value, ttl)
			r.Foreign = false
			return r, err
		}
	},
	"SetNX takes a list for a lock": func(b *broken, s *memory.Store) {
		b.setNX = func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			r, err := s.SetNX(ctx, key, value, ttl)
			if kindOf(err) == wrongType {
				return backends.Result{Foreign: true}, nil
			}
			return r, err
		}
	},
	"SetNXFenced counts what it had counted": func(b *broken, s *memory.Store) {
		b.setNXFenced = func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
			if old, _, found := s.Get(key); found && old == value && n == byCount && ctx.Err() == nil && ttl >= time.Millisecond && ttl <= maxTTL {
				_, _ = s.DeleteIf(ctx, key, value)
			}
			return n.draw(ctx, s.Legacy(), key, value, ttl)
		}
	},
	"SetNXFenced forgets with the key": func(b *broken, s *memory.Store) {
		b.setNXFenced = func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
			r, err := n.draw(ctx, s.Legacy(), key, value, ttl)
			if n == byCount && r.OK {
				r.Fence = 1
			}
			return r, err
		}
	},
	"RaiseFence lowers": func(b *broken, s *memory.Store) {
		b.raise = func(ctx context.Context, key, value string, to uint64) (bool, error) {
			ok, err := s.RaiseFence(ctx, key, value, to)
			if old, _, found := s.Get(key); !ok && err == nil && found && old == value {
				return true, nil
			}
			return ok, err
		}
	},
	"Enter counts a token that is there once more": func(b *broken, s *memory.Store) {
		entered := map[string]bool{}
		b.enter = func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
			r, err := s.Enter(ctx, key, token, ttl, a)
			if r.OK && entered[key+token] && r.Holds == 1 {
				r.Holds++
			}
			entered[key+token] = entered[key+token] || r.OK
			return r, err
		}
	},
	"Enter forgets the limit": func(b *broken, s *memory.Store) {
		b.enter = func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
			a.Limit = 0
			return s.Enter(ctx, key, token, ttl, a)
		}
	},
	"Leave ends all holds": func(b *broken, s *memory.Store) {
		b.leave = func(ctx context.Context, key, token string) (bool, error) {
			ok, err := s.Leave(ctx, key, token)
			if ok {
				s.Delete(key)
			}
			return ok, err
		}
	},
	"GetSet keeps the expiry": func(b *broken, s *memory.Store) {
		b.getSet = func(ctx context.Context, key, value string) (string, bool, error) {
			_, left, _ := s.Get(key)
			old, found, err := b.LegacyStore.GetSet(ctx, key, value)
			if found && left > 0 {
				s.Set(key, value, left)
			}
			return old, found, err
		}
	},
	"TxExpireIf does not shorten": func(b *broken, s *memory.Store) {
		b.txExpireIf = func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
			return s.ExpireIf(ctx, key, value, ttl)
		}
	},
}

func TestABrokenStoreIsFoundInAFewOperations(t *testing.T) {
	for name, breaks := range breaks {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t, subject{fake: true, prepare: func(*testing.T) func(t *testing.T) (store, outside) {
				return func(*testing.T) (store, outside) {
					s := memory.New(memory.WithMaxTTL(maxTTL))
					b := &broken{LegacyStore: s.Legacy()}
					breaks(b, s)
					return b, s
				}
			}})
			for first := uint64(1); first <= 60; first++ { // 15,000 operations; most need far fewer
				f := tr.run(t, draw(first, sequence))
				if f == nil {
					continue
				}
				f = tr.shorten(t, f)
				if len(f.steps) > 6 {
					t.Errorf("%d operations are not few:\n%s", len(f.steps), f)
				}
				t.Logf("seed %d:\n%s", first, f)
				return
			}
			t.Error("it is not found")
		})
	}
}
