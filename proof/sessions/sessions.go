// Package sessions compares what a store answers in sessions of a database with other settings.
package sessions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A Store is one of an SQL database.
type Store interface {
	backends.NumberedStore
	backends.FencedStore
	backends.SharedTransferStore
	backends.TransferStore
	backends.Inspector
	backends.Lister
	backends.Evictor
	backends.Identifier
}

// A Session is a store, and how its guard answers in a transaction of such a session, which is rolled back.
type Session struct {
	Store
	Guard func(ctx context.Context, lease contract.Lease) error
}

const ttl = 20 * time.Second // WithMaxTTL is not needed

// Same has every kind of statement run through odd, whose sessions have other settings, and compares
// the answers with those of plain. A store that refuses all of it is right too: then refused is why.
func Same(t *testing.T, odd, plain Session) (refused error) {
	t.Helper()
	want, got := transcript(t, plain, plain), transcript(t, odd, plain)
	if len(got) == 1 && strings.HasPrefix(got[0], "refused: ") {
		return errors.New(got[0])
	}
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			t.Errorf("an odd session: %s\nothers:         %s", g, w)
		}
	}
	return nil
}

// transcript is what the calls of one answer. The store other has the usual settings, and must see what
// the first has done, and the other way round.
func transcript(t *testing.T, one, other Session) (lines []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	say := func(what string, answer any, err error) {
		text := fmt.Sprintf("%+v", answer)
		if err != nil {
			text = fmt.Sprintf("error, permanent %v, wrong type %v: %v", backends.Permanent(err), errors.Is(err, backends.ErrWrongType), err)
		}
		lines = append(lines, what+": "+text)
	}
	result := func(what string, r backends.Result, err error) {
		if r.Fence > 1_000_000 { // by the clock
			r.Fence = uint64(time.Until(time.UnixMicro(int64(r.Fence))).Abs().Truncate(10 * time.Second))
		}
		r.Left = (r.Left + 9*time.Second).Truncate(10 * time.Second)
		say(what, r, err)
	}
	guard := func(what, key, token string) {
		lines = append(lines, fmt.Sprintf("Guard of %s: %v", what, one.Guard(ctx, contract.Lease{Key: key, Token: token}) == nil))
	}
	// short is a lease of the other session that has ended, and whose row is still there.
	short := func(key string) {
		r, err := other.SetNX(ctx, key, "short", 50*time.Millisecond)
		result("SetNX of another session", r, err)
		for held := true; held && err == nil; {
			var state backends.State
			state, err = other.Inspect(ctx, key)
			held = len(state.Holds) > 0
		}
		say("Inspect of another session", "the lease has ended", err)
	}
	number := len(lines)
	key := func(name string) string {
		return fmt.Sprintf("%s \\ ' \" 100%% %d %s", name, number, contract.NewToken())
	}
	lock, holds := key("lock"), key("holds")
	token := "holder 'x' \\ " + contract.NewToken()

	r, err := one.SetNX(ctx, lock, token, ttl)
	if backends.Permanent(err) {
		if r, err := other.SetNX(ctx, lock, token, ttl); err != nil || !r.OK {
			t.Errorf("after a refused attempt: %+v, %v; want it granted", r, err)
		}
		if ok, err := one.ExpireIf(ctx, lock, token, ttl); err == nil {
			t.Errorf("ExpireIf = %v, though SetNX is refused", ok)
		}
		ended := key("ended")
		if short(ended); one.Guard(ctx, contract.Lease{Key: ended, Token: "short"}) == nil {
			t.Error("the guard of a lease that has ended has passed")
		}
		return []string{"refused: " + err.Error()}
	}
	result("SetNX", r, err)
	r, err = other.SetNX(ctx, lock, "another", ttl)
	result("SetNX of another session", r, err)
	guard("a lock", lock, token)
	guard("another token", lock, "another")
	r, err = one.SetNX(ctx, lock, "another", ttl)
	result("SetNX of a held key", r, err)
	ok, err := one.ExpireIf(ctx, lock, token, ttl)
	say("ExpireIf", ok, err)
	ok, err = one.ExpireIf(ctx, lock, "another", ttl)
	say("ExpireIf of another token", ok, err)
	state, err := one.Inspect(ctx, lock)
	say("Inspect", len(state.Holds), err)
	r, err = one.Transfer(ctx, lock, token, token+"2", ttl, true)
	result("Transfer", r, err)
	page, err := one.List(ctx, lock, "", 10)
	say("List", len(page.Keys), err)
	ok, err = one.DeleteIf(ctx, lock, token)
	say("DeleteIf of a token that has gone", ok, err)
	ok, err = one.DeleteIf(ctx, lock, token+"2")
	say("DeleteIf", ok, err)
	short(lock)
	guard("a lease that has ended", lock, "short")
	r, err = one.SetNXNumbered(ctx, lock, "after the end", ttl, backends.Turn{})
	result("SetNXNumbered after the end of a lease", r, err)
	first := key("fenced")
	r, err = one.SetNXFenced(ctx, first, token, ttl)
	result("SetNXFenced", r, err)
	ok, err = one.RaiseFence(ctx, first, token, 7)
	say("RaiseFence", ok, err)
	for _, hold := range []string{"a", "b", "c"} {
		r, err = one.Enter(ctx, holds, token+hold, ttl, backends.Admission{Limit: 2, Slots: true, Numbered: true, Group: "g'\\"})
		result("Enter", r, err)
	}
	r, err = other.Enter(ctx, holds, "another", ttl, backends.Admission{Limit: 2, Group: "g'\\"})
	result("Enter of another session", r, err)
	ok, err = one.Renew(ctx, holds, token+"a", ttl)
	say("Renew", ok, err)
	r, err = one.TransferHold(ctx, holds, token+"a", token+"d", ttl, "g'\\", true)
	result("TransferHold", r, err)
	ok, err = one.Leave(ctx, holds, token+"b")
	say("Leave", ok, err)
	guard("a hold", holds, token+"c")
	guard("a hold that was given back", holds, token+"b")
	state, err = one.Inspect(ctx, holds)
	say("Inspect of holds", fmt.Sprint(len(state.Holds), state.Holding, state.Group), err)
	for _, h := range state.Holds {
		ok, err = one.Evict(ctx, holds, h.Print, backends.Eviction{Now: true, Foreign: true})
		say("Evict", ok, err)
	}
	_, err = one.SetNX(ctx, holds, token, ttl)
	say("SetNX of a key that was evicted", "", err)
	id, err := one.Identify(ctx)
	say("Identify", id, err)
	return lines
}
