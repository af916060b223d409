package cleanup

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestASlowServerIsCleanedUp is about a server, or a busy process, that takes longer for each call
// than the queue waits before it makes another one. Other calls, which wait longer, are answered.
func TestASlowServerIsCleanedUp(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("obeys %v, known %v", obeys, known), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, calls := New(false), new(atomic.Int64)
					for range 10 {
						q.Add(t.Context(), Entry{Key: "k", TTL: 8 * time.Minute, Known: known, Remove: func(ctx context.Context) error {
							calls.Add(1)
							end := ctx.Done()
							if !obeys {
								end = nil
							}
							select {
							case <-time.After(hangLimit + tryLimit/2):
								return nil
							case <-end:
								return ctx.Err()
							}
						}})
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					if st := q.Stats(); st != (Stats{}) {
						t.Errorf("after a minute: %d calls, %+v", calls.Load(), st)
					}
					if q.Haunted("k") {
						t.Error("an entry that was answered is still found")
					}
					time.Sleep(time.Hour)
					if st := q.Stats(); st != (Stats{}) {
						t.Errorf("an hour later: %+v", st)
					}
				})
			})
		}
	}
}

// TestAnEntryThatFailedIsTriedAgainAlthoughNewOnesFail puts entries into the queue faster than it
// probes, and no call is answered.
func TestAnEntryThatFailedIsTriedAgainAlthoughNewOnesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, first := New(false), &server{err: errDial}
		q.Add(t.Context(), Entry{TTL: time.Hour, Known: true, Remove: first.remove})
		synctest.Wait()
		others := &server{err: errDial}
		early := 0
		for i := range 200 {
			if i == 100 {
				early = first.count()
			}
			q.Add(t.Context(), Entry{TTL: time.Minute, Known: true, Remove: others.remove})
			time.Sleep(300 * time.Millisecond)
		}
		if n := first.count(); n == early {
			t.Errorf("it was called %d times, none of them lately, and the other entries %d times", n, others.count())
		}
	})
}

// TestCallsThatNeverReturnLeaveRoomForOthers is about a client library that ignores its ctx. The
// calls that hang never return.
func TestCallsThatNeverReturnLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, hanging := New(false), &server{hangs: make(chan struct{})}
		for range workers {
			q.Add(t.Context(), Entry{TTL: time.Hour, Known: true, Remove: hanging.remove})
		}
		time.Sleep(2 * hangLimit)
		answers := new(server)
		for range 100 {
			q.Add(t.Context(), Entry{TTL: time.Hour, Known: true, Remove: answers.remove})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := answers.count(); n != 100 {
			t.Errorf("%d of 100 entries were removed beside %d calls that hang", n, q.Stats().Calls)
		}
		close(hanging.hangs)
		time.Sleep(time.Minute)
		if st := q.Stats(); st != (Stats{}) {
			t.Errorf("%+v", st)
		}
	})
}

// TestALateAnswerIsNoConfirmation is about a call that returns while a confirmation is under way, which
// then fails. The call was sent before, so it says nothing of what may have arrived since.
func TestALateAnswerIsNoConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, calls := New(false), new(atomic.Int64)
		late, confirmation := make(chan struct{}), make(chan struct{})
		q.Add(t.Context(), Entry{TTL: time.Hour, Remove: func(context.Context) error {
			switch calls.Add(1) {
			case 1:
				<-late
			case 3:
				<-confirmation
				return errDial
			}
			return nil
		}})
		time.Sleep(hangLimit + baseBackoff + confirmations[0])
		synctest.Wait()
		if calls.Load() != 3 {
			t.Fatalf("%d calls; want a late one, its replacement and a confirmation", calls.Load())
		}
		close(late)
		synctest.Wait()
		close(confirmation)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := calls.Load(); n != int64(3+len(confirmations)) || q.Stats() != (Stats{}) {
			t.Errorf("%d calls; want the failed one, and %d confirmations; %+v", n, len(confirmations), q.Stats())
		}
	})
}

// TestASlowAnswerIsConfirmed is about calls that stood in a buffer, of a network that was cut off, say. After the
// answer to the first cleanup the operation itself may arrive, and its value lives for a whole TTL from then.
func TestASlowAnswerIsConfirmed(t *testing.T) {
	const short = 400 * time.Millisecond
	for _, c := range []struct {
		ttl, took time.Duration
		known     bool
		calls     int
	}{
		{ttl: short, took: 10 * time.Millisecond, calls: 2}, // the next pause is longer than the value lives
		{ttl: short, took: short - 10*time.Millisecond, calls: 2},
		{ttl: short, took: short + 200*time.Millisecond, calls: 2},
		{ttl: short, took: short + 200*time.Millisecond, calls: 1, known: true},
		{ttl: time.Minute, took: time.Second, calls: 1 + len(confirmations)},
	} {
		t.Run(fmt.Sprintf("ttl %v, took %v, known %v", c.ttl, c.took, c.known), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls []time.Duration
				q, began := New(false), time.Now()
				q.Add(t.Context(), Entry{TTL: c.ttl, Known: c.known, Remove: func(context.Context) error {
					calls = append(calls, time.Since(began))
					time.Sleep(c.took)
					return nil
				}})
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(calls) != c.calls || len(calls) > 1 && calls[1] != c.took+confirmations[0] {
					t.Errorf("called at %v; want %d calls, the second %v after the first answer", calls, c.calls, confirmations[0])
				}
				if st := q.Stats(); st != (Stats{}) {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}
