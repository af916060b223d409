package cleanup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

// server has the values that entries remove.
type server struct {
	mu    sync.Mutex
	err   error         // of each call
	hangs chan struct{} // each call waits for it and ignores its ctx, unless obeys is set; nil: none
	obeys bool          // calls that hang end with their ctx
	calls []time.Time
	now   int // calls under way
	most  int
}

func (s *server) remove(ctx context.Context) error {
	s.mu.Lock()
	s.calls = append(s.calls, time.Now())
	s.now++
	s.most = max(s.most, s.now)
	err, hangs, end := s.err, s.hangs, (<-chan struct{})(nil)
	if s.obeys {
		end = ctx.Done()
	}
	s.mu.Unlock()
	if hangs != nil {
		select {
		case <-hangs:
		case <-end:
			err = ctx.Err()
		}
	}
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return err
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

var errDial = &net.OpError{Op: "dial", Err: errDown}

func TestAnEntryIsConfirmedAfterTheAnswerAndIgnoresTheCallersCtx(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), definite{}, "value"))
			cancel()
			began := time.Now()
			var at []time.Duration
			q := New(false)
			q.Add(ctx, Entry{TTL: time.Hour, Known: known, Remove: func(ctx context.Context) error {
				if end, ok := ctx.Deadline(); ctx.Err() != nil || ctx.Value(definite{}) != "value" || !ok || time.Until(end) != callLimit {
					t.Error("a cleanup must have the values of the caller's ctx, not its end, and the deadline of one call")
				}
				at = append(at, time.Since(began))
				return nil
			}})
			time.Sleep(time.Minute)
			synctest.Wait()
			want := []time.Duration{0}
			if !known {
				for _, pause := range confirmations {
					want = append(want, want[len(want)-1]+pause)
				}
			}
			if fmt.Sprint(at) != fmt.Sprint(want) || q.Stats() != (Stats{}) {
				t.Errorf("known %v: called at %v, want %v; %+v", known, at, want, q.Stats())
			}
		})
	}
}

// A call on a silent connection may arrive when the connection answers again. Its cleanup went over another
// one, and may have been confirmed long ago, or be under way just then.
func TestAnEntryStaysUntilItsOperationCanNoLongerArrive(t *testing.T) {
	for _, silent := range []time.Duration{0, 20 * time.Millisecond, 600 * time.Millisecond, 2540 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			late, arrives := context.WithCancel(t.Context())
			var calls []time.Duration
			q := New(false)
			q.Add(t.Context(), Entry{TTL: 10 * time.Second, Late: late, Remove: func(context.Context) error {
				calls = append(calls, time.Since(began))
				time.Sleep(5 * time.Millisecond)
				return nil
			}})
			time.Sleep(silent)
			if st := q.Stats(); st.Entries != 1 || st.Slots != 1 {
				t.Errorf("silent for %v: %+v", silent, st)
			}
			arrives()
			synctest.Wait()
			arrived := time.Since(began)
			time.Sleep(time.Minute)
			synctest.Wait()
			after := slices.DeleteFunc(slices.Clone(calls), func(at time.Duration) bool { return at < arrived })
			if len(after) < 1+len(confirmations) || after[0]-arrived > 10*time.Millisecond && silent > 10*time.Millisecond || q.Stats() != (Stats{}) {
				t.Errorf("silent for %v: called at %v; want %d calls after the operation could arrive, the first at once; %+v",
					silent, calls, 1+len(confirmations), q.Stats())
			}
		})
	}
}

func TestOneCallAtATimeProbesAServerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := &server{err: errDial}, New(false)
		for i := range 1000 {
			q.Add(t.Context(), Entry{Key: fmt.Sprint(i), TTL: 20 * time.Second, Remove: s.remove})
		}
		synctest.Wait()
		if n := s.count(); n > workers {
			t.Errorf("%d calls at once", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := s.count(); n < 10 || n > 100 || s.most > workers || q.Stats().Calls != 0 {
			t.Errorf("%d calls in 10 s, %d at once, %+v", n, s.most, q.Stats())
		}
		if st := q.Stats(); !st.Silent || st.Entries != 1000 || st.Slots != 1000 {
			t.Errorf("%+v", st)
		}
		// a server that refuses connections has no buffers, so the entries keep their end
		time.Sleep(11 * time.Second)
		synctest.Wait()
		before := s.count()
		if st := q.Stats(); st.Entries != 0 || st.Slots != 0 {
			t.Errorf("after the TTL: %+v", st)
		}
		time.Sleep(time.Hour)
		if n := s.count(); n != before {
			t.Errorf("%d calls after the end of the last entry", n-before)
		}
	})
}

func TestAllEntriesAreRemovedSoonAfterTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := &server{err: errDial}, New(false)
		for range 1000 {
			q.Add(t.Context(), Entry{TTL: time.Minute, Known: true, Remove: s.remove})
		}
		time.Sleep(10 * time.Second)
		failed := s.count()
		s.set(func() { s.err = nil })
		time.Sleep(maxPause)
		synctest.Wait()
		if n := s.count() - failed; n != 1000 || q.Stats() != (Stats{}) || s.most > workers {
			t.Errorf("%d calls, %d at once, %+v", n, s.most, q.Stats())
		}
	})
}

// When a server that was stopped goes on, it first runs the calls in its socket buffers.
func TestAnEntryOfAServerThatHungEndsATTLAfterItsFirstAnswer(t *testing.T) {
	const ttl = 10 * time.Second
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, q := &server{hangs: make(chan struct{}), obeys: true}, New(false)
			q.Add(t.Context(), Entry{TTL: ttl, Remove: s.remove})
			time.Sleep(5 * ttl)
			if q.Stats().Entries != 1 {
				t.Fatal("the entry was dropped while the server hung")
			}
			s.set(func() { s.hangs, s.err = nil, errDial })
			if !dies {
				s.set(func() { s.err = nil })
			}
			before := s.count()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if n := s.count() - before; !dies && n != 1+len(confirmations) {
				t.Errorf("%d calls after the server went on", n)
			}
			if q.Stats().Entries != 0 {
				t.Errorf("dies %v: %+v", dies, q.Stats())
			}
		})
	}
}

func TestFewCallsHangWhateverTheNumberOfEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := &server{hangs: make(chan struct{})}, New(false)
		for range 500 {
			q.Add(t.Context(), Entry{TTL: time.Hour, Known: true, Remove: s.remove})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.most != maxHanging || q.Stats().Calls != maxHanging {
			t.Errorf("%d calls hang; want %d", s.most, maxHanging)
		}
		other := make(chan struct{})
		New(false).Add(t.Context(), Entry{TTL: time.Hour, Known: true, Remove: func(context.Context) error { close(other); return nil }})
		<-other // another server has a queue of its own
		s.set(func() { close(s.hangs); s.hangs = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if q.Stats() != (Stats{}) {
			t.Errorf("%+v", q.Stats())
		}
	})
}

// TestAValueThatWasJustGrantedIsRemovedWhileAProbeHangs is about a call that hangs long after the
// silence which it probes: the server answers all others.
func TestAValueThatWasJustGrantedIsRemovedWhileAProbeHangs(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, q := &server{hangs: make(chan struct{}), obeys: true}, New(false)
			hangs := Entry{TTL: 2 * time.Second, Known: true, Remove: s.remove}
			q.Add(t.Context(), hangs)
			time.Sleep(time.Minute) // it has ended; the server counts as silent
			q.Add(t.Context(), hangs)
			synctest.Wait()
			answered := new(server)
			for range 100 {
				q.Add(t.Context(), Entry{TTL: 400 * time.Millisecond, Known: true, AtOnce: atOnce, Remove: answered.remove})
			}
			synctest.Wait()
			if n := answered.count(); atOnce != (n == 100) || !atOnce && n > 0 || answered.most > maxHanging {
				t.Errorf("at once %v: %d calls, %d of them together", atOnce, n, answered.most)
			}
			time.Sleep(time.Minute)
			for range 100 { // and all of them hang
				q.Add(t.Context(), Entry{TTL: time.Minute, Known: true, AtOnce: atOnce, Remove: s.remove})
			}
			synctest.Wait()
			if s.most > maxHanging {
				t.Errorf("%d calls hang", s.most)
			}
			s.set(func() { close(s.hangs); s.hangs = nil })
			time.Sleep(time.Minute)
			synctest.Wait()
			if st := q.Stats(); st != (Stats{}) {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestAPermanentErrorDropsItsOwnEntryOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := &server{err: errDown}, New(false)
		calls := 0
		q.Add(t.Context(), Entry{TTL: time.Minute, Remove: func(context.Context) error { calls++; return definite{true} }})
		q.Add(t.Context(), Entry{TTL: time.Minute, Remove: s.remove})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if calls != 1 || q.Stats().Entries != 1 {
			t.Errorf("called %d times, %+v", calls, q.Stats())
		}
		time.Sleep(time.Minute)
	})
}

func TestAnAttemptWithoutASlotWaitsForOneAndFailsUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := &server{err: errDial}, New(false)
		for range maxLeftovers {
			if !q.Add(t.Context(), Entry{TTL: time.Hour, Known: true, Remove: s.remove}) {
				t.Fatal("dropped")
			}
		}
		if q.Add(t.Context(), Entry{TTL: time.Hour, Remove: s.remove}) || q.Stats().Dropped != 1 {
			t.Errorf("Add takes the slots that are for attempts: %+v", q.Stats())
		}
		for range maxSlots - maxLeftovers {
			if _, err := q.Reserve(t.Context(), "", true); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := q.Reserve(ctx, "", true)
		const want = "not sent: too many attempts and cleanups wait for an answer of the server: context deadline exceeded"
		if !outcome.Unsent(err) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second || err.Error() != want {
			t.Errorf("Reserve = %v after %v", err, time.Since(began))
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := q.Reserve(t.Context(), "", true); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		q.Free()
		q.Free()
		q.Keep(t.Context(), Entry{TTL: time.Second, Remove: s.remove}) // its end frees the slot
		all.Wait()
		if n := q.Stats().Slots; n != maxSlots {
			t.Errorf("%d slots in use", n)
		}
		s.set(func() { s.err = nil })
	})
}

func TestSettleRemovesTheGhostsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := &server{err: errDown}, New(false)
		type mark struct{}
		settling := context.WithValue(t.Context(), mark{}, true)
		var settled atomic.Int64 // calls of Settle; the queue makes its own at the same instant
		remove := func(ctx context.Context) error {
			if ctx.Value(mark{}) != nil {
				settled.Add(1)
			}
			return s.remove(ctx)
		}
		add := func(key string, known bool) {
			q.Add(t.Context(), Entry{Key: key, TTL: time.Minute, Known: known, Remove: remove})
		}
		add("a", false)
		add("a", false)
		add("b", false)
		add("c", true)
		time.Sleep(20 * maxPause)
		if found, err := q.Settle(t.Context(), "a"); !found || !errors.Is(err, errDown) {
			t.Errorf("Settle = %v, %v", found, err)
		}
		s.set(func() { s.err = nil })
		if found, err := q.Settle(settling, "a"); !found || err != nil || settled.Load() != 2 {
			t.Errorf("Settle = %v, %v after %d calls", found, err, settled.Load())
		}
		if found, err := q.Settle(t.Context(), "a"); found || err != nil {
			t.Errorf("Settle = %v, %v", found, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if found, _ := q.Settle(t.Context(), "b"); found || q.Stats() != (Stats{}) {
			t.Errorf("%+v", q.Stats())
		}
	})
}

func TestDrainWaitsForTheFirstAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q, ledger := &server{err: errDown}, New(false), new(Ledger)
		for range 10 {
			q.Add(t.Context(), Entry{TTL: time.Hour, Done: ledger.Count(), Remove: s.remove})
			q.Add(t.Context(), Entry{TTL: time.Hour, Remove: s.remove})
		}
		end, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := ledger.Drain(end); !errors.Is(err, context.DeadlineExceeded) || ledger.Open() != 10 {
			t.Errorf("Drain = %v, %d open", err, ledger.Open())
		}
		s.set(func() { s.err = nil })
		if err := ledger.Drain(t.Context()); err != nil || ledger.Open() != 0 {
			t.Errorf("Drain = %v, %d open", err, ledger.Open())
		}
		q.Add(t.Context(), Entry{TTL: time.Second, Done: ledger.Count(), Remove: func(context.Context) error { return errDial }})
		if err := ledger.Drain(t.Context()); err != nil { // the store has forgotten it
			t.Error(err)
		}
	})
}

func TestDoneOfAnEntryIsCalledOnce(t *testing.T) {
	for name, c := range map[string]struct {
		add func(q *Queue, e Entry)
		err error // of Remove
	}{
		"answered, and confirmed": {add: func(q *Queue, e Entry) { q.Add(t.Context(), e) }},
		"kept":                    {add: func(q *Queue, e Entry) { q.TryReserve(); q.Keep(t.Context(), e) }},
		"ended":                   {add: func(q *Queue, e Entry) { q.Add(t.Context(), e) }, err: errDial},
		"answered before":         {add: func(q *Queue, e Entry) { q.Confirm(t.Context(), e) }},
		"without a slot": {add: func(q *Queue, e Entry) {
			q.slots.used.Store(maxLeftovers)
			q.Add(t.Context(), e)
			q.slots.used.Store(0)
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, done := New(false), 0
			c.add(q, Entry{Key: "k", TTL: 10 * time.Second, Done: func() { done++ }, Remove: func(context.Context) error { return c.err }})
			time.Sleep(time.Minute)
			synctest.Wait()
			if st := q.Stats(); done != 1 || st.Slots != 0 {
				t.Errorf("%s: called %d times; %+v", name, done, st)
			}
		})
	}
}

func TestACallThatEndsItsGoroutineIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, calls := New(false), 0
		q.Add(t.Context(), Entry{TTL: time.Minute, Known: true, Remove: func(context.Context) error {
			if calls++; calls == 1 {
				runtime.Goexit()
			}
			return nil
		}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls != 2 || q.Stats() != (Stats{}) {
			t.Errorf("%d calls, %+v", calls, q.Stats())
		}
	})
}

// A program may hold its locks for long and take no other. After a short silence the server must get
// all their extensions again.
func TestAServerThatAnswersExtensionsAgainGetsAllOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		ask := func(n int) (calls []Call) {
			for range n {
				if c, ok := q.Ask(false, false, 2*fullSpeed); ok {
					calls = append(calls, c)
				}
			}
			return calls
		}
		answer := func(calls []Call, err error) {
			for _, c := range calls {
				q.Answered(c, err)
			}
		}
		answer(ask(1), errDown)
		time.Sleep(maxPause)
		answer(ask(1), nil) // the probe
		if n := len(ask(fullSpeed)); n > fewCalls+1 {
			t.Fatalf("%d calls at once after the first answer", n)
		}
		q.gate.traffic.pending.Store(0)
		for range fullSpeed {
			answer(ask(fewCalls), nil)
		}
		if n := len(ask(fullSpeed)); n != fullSpeed {
			t.Errorf("%d of %d extensions are let through", n, fullSpeed)
		}
	})
}

func TestGrantsThatHangTakeNoRoomFromExtensionsToASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(false)
		c, _ := q.Ask(false, true, 0)
		q.Answered(c, errDown)
		let := func(grant bool) (n int) {
			for range 100 {
				if _, ok := q.Ask(grant, true, 0); ok {
					n++
				}
			}
			return n
		}
		if grants, others := let(true), let(false); grants != fewCalls || others != fewCalls {
			t.Errorf("%d grants and %d other calls at once, want %d of each", grants, others, fewCalls)
		}
	})
}

func BenchmarkReserve(b *testing.B) {
	q := New(false)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := q.Reserve(ctx, "", true); err != nil {
			b.Fatal(err)
		}
		q.Free()
	}
}

func TestEntriesEndByTheirTTLAndDrainEndsAlthoughNoCallReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q, ledger := &server{hangs: make(chan struct{})}, New(false), new(Ledger)
		for i := range 100 {
			q.Add(t.Context(), Entry{Key: fmt.Sprint(i), TTL: time.Minute, Known: i%2 == 0, Done: ledger.Count(), Remove: s.remove})
		}
		began := time.Now()
		if err := ledger.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+2*maxPause || q.Stats().Slots != 0 {
			t.Errorf("Drain took %v; %+v", took, q.Stats())
		}
		if n := s.count(); n != maxHanging {
			t.Errorf("%d calls", n)
		}
		close(s.hangs)
		synctest.Wait()
		if q.Stats() != (Stats{Silent: q.Stats().Silent}) {
			t.Errorf("%+v", q.Stats())
		}
	})
}

func TestErrorsOfAQueueHaveATypeAndSayThatNothingWasSent(t *testing.T) {
	for _, c := range []struct {
		err        error
		want, kind string
	}{
		{&FullError{}, "not sent: too many attempts and cleanups wait for an answer of the server", "cleanup_full"},
		{&FullError{errDown}, "not sent: too many attempts and cleanups wait for an answer of the server: down", "cleanup_full"},
		{&GhostError{errDown}, "not done: the lock may be held by an earlier attempt of this process, and its cleanup failed: down", "ghost"},
	} {
		var typed interface{ ErrorType() string }
		if !errors.As(c.err, &typed) || typed.ErrorType() != c.kind || c.err.Error() != c.want || !outcome.Unsent(c.err) || outcome.Permanent(c.err) {
			t.Errorf("%v, %T\nwant %s, %s", c.err, c.err, c.want, c.kind)
		}
	}
}

// A server that hung and then answered has nothing of later calls in its buffers. So an entry that it
// does not remove later on is dropped at its end.
func TestAServerThatHungOnceIsNotTakenToHangForEver(t *testing.T) {
	const ttl = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s, q := &server{hangs: make(chan struct{}), obeys: true}, New(false)
		q.Add(t.Context(), Entry{TTL: ttl, Remove: s.remove})
		time.Sleep(3 * time.Second)
		s.set(func() { s.hangs = nil })
		time.Sleep(2 * ttl)
		if n := q.Stats().Entries; n != 0 {
			t.Fatalf("%d entries after the answer", n)
		}
		s.set(func() { s.err = errors.New("internal error") })
		q.Add(t.Context(), Entry{TTL: ttl, Remove: s.remove})
		time.Sleep(ttl + 2*time.Second)
		if n := q.Stats().Entries; n != 0 {
			t.Errorf("%d entries after the end of their values", n)
		}
	})
}
