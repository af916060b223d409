package locker_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestWhoIsRefusedLearnsTheLabelOfTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		holder := locker.New(single.New(store), locker.WithHolder("api-7f9c/4711"))
		l, err := holder.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		other := locker.New(single.New(store))
		for what, call := range map[string]func() error{
			"TryLock": func() error { _, err := other.TryLock(t.Context(), "key"); return err },
			"Lock":    func() error { _, err := other.Lock(t.Context(), "key", locker.WithWait(time.Second)); return err },
			"a Lock behind another": func() error {
				var first sync.WaitGroup
				first.Go(func() { _, _ = other.Lock(t.Context(), "key", locker.WithWait(2*time.Second)) })
				synctest.Wait()
				_, err := other.Lock(t.Context(), "key", locker.WithWait(time.Second))
				first.Wait()
				return err
			},
		} {
			err := call()
			var held *locker.HeldError
			if !errors.As(err, &held) || held.Holder != "api-7f9c/4711" || !strings.Contains(err.Error(), `held by "api-7f9c/4711"`) {
				t.Errorf("%s = %v", what, err)
			}
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l, err = other.Lock(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		var held *locker.HeldError
		if _, err := holder.TryLock(t.Context(), "key"); !errors.As(err, &held) || held.Holder != "" {
			t.Errorf("TryLock of a lock whose holder has no label = %v", err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEveryTokenAndWaiterHasTheLabelAndASecretOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		s.store.Set("key", "another", 25*time.Second)
		c := locker.New(s, locker.WithHolder("ann"))
		l, err := c.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		seen := map[string]bool{}
		for i, req := range s.acquires {
			if backends.HolderOf(req.Token) != "ann" || seen[req.Token] {
				t.Errorf("attempt %d has a token without the label, or one that was used before", i)
			}
			if req.Waiter != "" && backends.HolderOf(req.Waiter) != "ann" || i == len(s.acquires)-1 && req.Waiter == "" {
				t.Errorf("attempt %d has the waiter %q", i, req.Waiter)
			}
			if shown := fmt.Sprintf("%v %+v %#v", req, req, req); strings.Contains(shown, req.Token) {
				t.Errorf("the token is shown: %s", shown)
			}
			seen[req.Token] = true
		}
		if len(seen) < 2 {
			t.Errorf("%d attempts", len(seen))
		}
	})
}

func TestALabelThatCannotBeReadBackIsRefused(t *testing.T) {
	for label, want := range map[string]string{
		"":                       "holder is empty; leave locker.WithHolder out",
		strings.Repeat("x", 101): "holder of 101 bytes is over the limit of 100",
		"a\nb":                   `holder "a\nb" is not printable UTF-8`,
		"\xff":                   `holder "\xff" is not printable UTF-8`,
		strings.Repeat(" ", 2):   `holder "  " begins or ends with a space`,
		"ann@host":               `holder "ann@host" has an @, which queues use themselves`,
		"lockstep:x":             `holder "lockstep:x" begins with "lockstep:", which the stores use themselves`,
	} {
		_, err := locker.New(newSpy(), locker.WithHolder(label)).TryLock(t.Context(), "key")
		if err == nil || err.Error() != `lockstep: lock "key": `+want {
			t.Errorf("%q: %v; want %s", label, err, want)
		}
		if backends.ValidHolder(label) || backends.HolderOf(label+" "+contract.NewToken()) != "" {
			t.Errorf("%q is read although it is refused", label)
		}
	}
	for _, label := range []string{"x", "Ünï côde 7", strings.Repeat("x", 100), "a b", "host/12 CRONJOB"} {
		store := memory.New()
		if _, err := locker.New(single.New(store), locker.WithHolder(label)).TryLock(t.Context(), "key"); err != nil {
			t.Errorf("%q: %v", label, err)
		}
		if !backends.ValidHolder(label) {
			t.Errorf("%q is taken, and not read", label)
		}
		if s, err := store.Inspect(t.Context(), "key"); err != nil || len(s.Holds) != 1 || s.Holds[0].Holder != label {
			t.Errorf("%q is read back as %+v, %v", label, s, err)
		}
	}
}
