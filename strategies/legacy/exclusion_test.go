package legacy_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// kinds are the recipes of the table in the package comment.
var kinds = map[string]func(beneath.Store) locker.Locker{
	"single": func(s beneath.Store) locker.Locker { return single.New(s) },
	"GetSet": func(s beneath.Store) locker.Locker { return legacy.GetSet(plain(s)) },
	"Expire": func(s beneath.Store) locker.Locker { return legacy.Expire(plain(s)) },
	"SetBit": func(s beneath.Store) locker.Locker { return legacy.SetBit(plain(s)) },
	"GetBit": func(s beneath.Store) locker.Locker { return legacy.GetBit(plain(s)) },
}

func TestWhichRecipesExcludeEachOtherOnOneKey(t *testing.T) {
	for holding, row := range map[string]map[string]string{
		"single": {"single": "held", "GetSet": "held", "Expire": "held", "SetBit": "-", "GetBit": "-"},
		"GetSet": {"single": "held", "GetSet": "held", "Expire": "broken", "SetBit": "-", "GetBit": "-"},
		"Expire": {"single": "held", "GetSet": "held", "Expire": "held", "SetBit": "-", "GetBit": "-"},
		"SetBit": {"single": "held", "GetSet": "held", "Expire": "broken", "SetBit": "held", "GetBit": "held"},
		"GetBit": {"single": "held", "GetSet": "held", "Expire": "broken", "SetBit": "held", "GetBit": "held"},
	} {
		for asking, want := range row {
			t.Run(asking+" asks "+holding, func(t *testing.T) {
				beneath.InFakeTime(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
					has := gets(t, holding, kinds[holding](s), long)
					if got := whatComes(t, has, kinds[asking](s)); got != want {
						t.Errorf("%s, want %s", got, want)
					}
				})
			})
		}
	}
}

// whatComes tries for a while to get a lock that is held for much longer.
func whatComes(t *testing.T, has holder, asking locker.Locker) string {
	t.Helper()
	began := time.Now()
	l, err := locker.New(asking, locker.WithTTL(time.Second), locker.WithoutRenewal()).Lock(t.Context(), "key", locker.WithWait(time.Minute))
	switch {
	case errors.Is(err, locker.ErrHeld):
		return "held"
	case err != nil:
		t.Fatal(err)
	}
	allHold(t, has, holder{"the caller that asked", l, time.Now().UnixNano()})
	_ = l.Unlock(t.Context())
	if time.Since(began) == 0 {
		return "-"
	}
	return "broken"
}

func TestAReleasedBitKeepsOthersOutForEver(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		if err := gets(t, "alice", legacy.SetBit(plain(s)), long).lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		gets(t, "bob", legacy.SetBit(plain(s)), long).lock.Unlock(t.Context())
		for _, kind := range []string{"single", "GetSet"} {
			if held := wantHeld(t, kind, kinds[kind](s), long); !held.Foreign {
				t.Errorf("%s: %v, want it to be foreign", kind, held)
			}
		}
	})
}

// TestOldAndNewProcessesExcludeEachOther runs a migration: some processes use single already.
func TestOldAndNewProcessesExcludeEachOther(t *testing.T) {
	for _, old := range []string{"Expire", "GetSet"} {
		t.Run(old, func(t *testing.T) {
			beneath.Each(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
				const each = 10
				var (
					mu     sync.Mutex
					holds  []history.Hold
					people sync.WaitGroup
				)
				for _, kind := range []string{old, "single", old, "single"} {
					locks := locker.New(kinds[kind](s), locker.WithTTL(long))
					people.Go(func() {
						for range each {
							l, err := locks.Lock(t.Context(), "key", locker.WithBackoff(func(int, float64) time.Duration { return time.Millisecond }))
							if err != nil {
								t.Error(err)
								return
							}
							start := time.Now().UnixNano()
							time.Sleep(time.Millisecond)
							end := time.Now().UnixNano()
							if err := l.Unlock(t.Context()); err != nil {
								t.Error(err)
							}
							mu.Lock()
							holds = append(holds, history.Hold{Key: "key", Who: kind, Start: start, End: end})
							mu.Unlock()
						}
					})
				}
				people.Wait()
				if found := history.Overlaps(holds); len(found) > 0 || len(holds) != 4*each {
					t.Errorf("%d holds, overlaps: %v", len(holds), found)
				}
			})
		})
	}
}
