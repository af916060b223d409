package locker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker/contract"
)

func TestAHeadThatQuitsAtOnceMakesTheNextWaiterTheHead(t *testing.T) {
	var ls lines
	ln, first := ls.enter("key", "", time.Second, 0)
	if first != nil {
		t.Fatal("the first caller in a line is not its head")
	}
	_, second := ls.enter("key", "", time.Second, 0)
	_, third := ls.enter("key", "", time.Second, 0)
	ls.tell(ln, &lineEvent{is: onLeave})
	isTurn(t, "the second", second, true)
	isTurn(t, "the third", third, false)
	ls.quit(ln, second) // its ctx ended at the same moment
	isTurn(t, "the third", third, true)
	ls.tell(ln, &lineEvent{is: onLeave})
	if len(ls.byKey) != 0 {
		t.Errorf("%d lines are left", len(ls.byKey))
	}
}

func isTurn(t *testing.T, which string, p *waiter, want bool) {
	t.Helper()
	select {
	case <-p.turn:
		if !want {
			t.Errorf("%s is the head", which)
		}
	default:
		if want {
			t.Errorf("%s is not the head", which)
		}
	}
}

// A store may answer a Watch after its ctx has ended, and after the next Watch has begun.
func TestAWatchThatHasEndedSaysNothingOfTheNext(t *testing.T) {
	var ls lines
	ln, _ := ls.enter("key", "", time.Second, 0)
	ls.tell(ln, &lineEvent{is: onSleep})
	ended := ln.watch
	ls.tell(ln, &lineEvent{is: onUnknown})
	ls.tell(ln, &lineEvent{is: onSleep})
	ls.tell(ln, &lineEvent{is: onWatchFailed, watch: ended, err: ended.Err()})
	if now := ls.tell(ln, &lineEvent{is: onSignal}); now.err != nil {
		t.Errorf("the head ends with %v, which is of the watch before", now.err)
	}
	ls.tell(ln, &lineEvent{is: onWatched, watch: ended})
	if state := ls.look(ln); state.watch != watchBegun {
		t.Error("the next watch is active, as the one before says")
	}
}

// By then the line may be used for another key.
func TestALateWakeUpOfAWatchThatHasEndedWakesNobody(t *testing.T) {
	store := &granting{}
	w := &waiting{Locker: store, lines: &lines{}}
	ln, _ := w.lines.enter("key", "", time.Second, 0)
	w.lines.tell(ln, &lineEvent{is: onSleep})
	w.watch(ln, "key", ln.watch)
	w.lines.tell(ln, &lineEvent{is: onSignal})
	w.lines.tell(ln, &lineEvent{is: onUnknown})
	store.wake()
	if w.lines.look(ln).woken {
		t.Error("the head is woken")
	}
}

// A process may be paused between the handover and the moment at which the waiter runs.
func TestAWaiterThatIsHandedAnEndedLeaseMakesAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &granting{}
		w := &waiting{Locker: store, lines: &lines{}, handovers: &handovers{}, cleanups: cleanup.New(false)}
		ln, _ := w.lines.enter("key", "", time.Second, 0)
		ln.state.handed = &grant{Lease: contract.Lease{Key: "key", Token: "late", Expires: time.Now()}}
		req := contract.Request{Key: "key", Token: "own", TTL: time.Second}
		at := &place{w: w, key: req.Key, ttl: req.TTL, ln: ln}
		so := &effort{wait: &waitPolicy{}}
		err := w.wait(context.Background(), context.Background(), at, &req, so)
		if err != nil || so.got.Token != "own" {
			t.Errorf("granted token %q, error %v; want the token of its own attempt", so.got.Token, err)
		}
		synctest.Wait()
		if !slices.Equal(store.released, []string{"late"}) {
			t.Errorf("released tokens %q; want the one that came too late", store.released)
		}
		at.leave(&so.got.Lease, true)
	})
}

func TestNothingIsLeftOfAKeyThatHasRested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := &lines{otherSoftware: true}
		ls.freed("key")
		if ls.rest("key") == 0 {
			t.Fatal("the key does not rest")
		}
		time.Sleep(time.Second)
		ls.freed("other") // a key that is released often has one entry
		ls.freed("other")
		if len(ls.rests) != 1 || ls.rest("key") != 0 {
			t.Errorf("%d keys rest; want one", len(ls.rests))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(ls.rests) != 0 {
			t.Errorf("%d entries are left", len(ls.rests))
		}
	})
}

// granting grants everything.
type granting struct {
	Locker
	released []string
	wake     func() // of the last Watch
}

func (g *granting) Watch(_ context.Context, _, _ string, wake func()) error {
	g.wake = wake
	return nil
}

func (g *granting) Acquire(_ context.Context, req contract.Request) (contract.Lease, error) {
	return contract.Lease{Key: req.Key, Token: req.Token, Expires: contract.Until(time.Now(), req.TTL)}, nil
}

func (g *granting) Release(_ context.Context, lease contract.Lease) error {
	g.released = append(g.released, lease.Token)
	return nil
}

// A call that is let out of its line, and whose ctx ends at the same moment, is told nothing of the line. The
// line may have ended, and the next caller may have it for another key.
func TestACallThatWasLetOutIsToldNothingOfAnotherKey(t *testing.T) {
	for range 1000 {
		ls := &lines{}
		ln, _ := ls.enter("key", "", time.Minute, 0)
		_, first := ls.enter("key", "", time.Minute, 0)
		_, second := ls.enter("key", "", time.Minute, 0)
		ls.tell(ln, &lineEvent{is: onAttempt})
		ls.tell(ln, &lineEvent{is: onGrant, shared: true, room: -1, until: time.Now().Add(time.Minute)})
		if first.joins || !second.joins {
			t.Fatalf("first joins: %v, second joins: %v; want the second to join the first", first.joins, second.joins)
		}
		ls.tell(ln, &lineEvent{is: onLeave})
		other, _ := ls.enter("other", "", time.Minute, 0)
		if other != ln { // under the race detector, a sync.Pool drops some of what it is given
			continue
		}
		ls.tell(other, &lineEvent{is: onHeld, held: &HeldError{Key: "other"}, until: time.Now().Add(time.Minute)})
		if held, unwanted, fault := ls.quit(ln, second); held != nil || unwanted != nil || fault != nil {
			t.Errorf("the call for key is told %+v, %v and %v", held, unwanted, fault)
		}
		return
	}
	t.Fatal("no line was used again")
}

// The call that is let out beside the new head is no head: it makes one attempt, and comes back to where it
// stood.
func TestACallThatIsLetOutMakesItsAttemptOutsideOfTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{lines: &lines{}, ledger: new(cleanup.Ledger), server: func() string { return "" }}
		so := &effort{wait: &waitPolicy{}}
		ctx, cancel := context.WithCancel(t.Context())
		var places [4]*place
		turns := make([]lineAction, len(places))
		for i := range places {
			places[i] = &place{w: w, key: "key", ttl: time.Minute}
			go func() { turns[i], _ = places[i].turn(ctx, ctx, &effort{wait: so.wait}) }()
			synctest.Wait()
		}
		head, next, let, last := places[0], places[1], places[2], places[3]
		head.leave(&contract.Lease{Key: "key", Expires: time.Now().Add(time.Minute), Share: contract.Share{Holds: 1, Room: 2}}, true)
		synctest.Wait()
		if next.ln == nil || !turns[1].joins || let.ln != nil || !turns[2].joins || last.ln != nil || turns[3].joins {
			t.Fatalf("the turns are %+v; want the next one as the head, and the one behind it outside of the line", turns)
		}
		if over, err := let.answered(false, &HeldError{Key: "key"}, so); over {
			t.Fatalf("the call that was let out ends with %v", err)
		}
		go func() { _, _ = let.turn(ctx, ctx, so) }()
		synctest.Wait()
		if line := w.lines.find("key", ""); len(line.queue) != 2 || line.queue[0].number != let.number {
			t.Errorf("%d calls are behind the head; want two, the one that was let out first", len(line.queue))
		}
		cancel()
		synctest.Wait()
	})
}
