package pagelocker_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

func TestAnAcquireOfThisProcessIsAnEventSoon(t *testing.T) {
	play(t, func(s *scene) {
		b := s.open("/", false)
		defer b.leave()
		time.Sleep(time.Second)
		b.events(s.T)
		l := s.lock(s.here, "order/1")
		time.Sleep(500 * time.Millisecond)
		events, _ := b.events(s.T)
		if len(events) == 0 || !events[0].has("order/1") || len(events[0].Order) != 1 {
			s.Fatalf("events %+v; want one with the lock", events)
		}
		if time.Sleep(time.Second); l.Unlock(s.Context()) != nil {
			s.Error("Unlock failed")
		}
		time.Sleep(500 * time.Millisecond)
		if events, _ := b.events(s.T); len(events) == 0 || !events[len(events)-1].has("free for") {
			s.Errorf("events %+v; want one that says that the lock is free", events)
		}
	})
}

func TestALockThatThisProcessResumesIsAnEventSoon(t *testing.T) {
	play(t, func(s *scene) {
		ticket, err := s.lock(s.others, "order/1").Transfer(s.Context(), 20*time.Second)
		if err != nil {
			s.Fatal(err)
		}
		b := s.open("/", false)
		defer b.leave()
		time.Sleep(time.Second)
		b.events(s.T)
		if _, err := s.here.Resume(s.Context(), ticket); err != nil {
			s.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if events, _ := b.events(s.T); len(events) == 0 || !events[0].has("order/1") {
			s.Errorf("events %+v; want one with the lock", events)
		}
	})
}

func TestAnAcquireElsewhereIsAnEventWithinOneInterval(t *testing.T) {
	play(t, func(s *scene) {
		b := s.open("/", false)
		defer b.leave()
		time.Sleep(700 * time.Millisecond)
		b.events(s.T)
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		time.Sleep(100 * time.Millisecond)
		if events, _ := b.events(s.T); len(events) != 0 {
			s.Errorf("events %+v before the store was asked", events)
		}
		time.Sleep(2 * time.Second)
		if events, _ := b.events(s.T); len(events) != 1 || !events[0].has("others/2") {
			s.Errorf("events %+v; want one with the holder", events)
		}
	})
}

func TestChangesAreAtMostFourEventsASecond(t *testing.T) {
	play(t, func(s *scene) {
		b := s.open("/", false)
		defer b.leave()
		time.Sleep(time.Second)
		b.events(s.T)
		for n := range 1000 {
			s.lock(s.here, fmt.Sprint("order/", n%7)).Unlock(s.Context())
			time.Sleep(time.Millisecond)
		}
		if events, _ := b.events(s.T); len(events) < 3 || len(events) > 5 {
			s.Errorf("%d events in a second with 1000 locks; want about 4", len(events))
		}
	})
}

func TestAHundredViewersCostOneListPerInterval(t *testing.T) {
	play(t, func(s *scene) {
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		for range 50 {
			defer s.open("/", false).leave()
		}
		const intervals = 10
		time.Sleep(500 * time.Millisecond)
		before := s.lists.Load()
		for range intervals {
			time.Sleep(time.Second)
			for range 50 { // without script they load the page again
				s.get("/")
			}
			time.Sleep(time.Second)
		}
		if n := s.lists.Load() - before; n != intervals {
			s.Errorf("%d calls of List in %d intervals", n, intervals)
		}
	})
}

func TestTheStoreIsNotAskedWhileNobodyLooks(t *testing.T) {
	play(t, func(s *scene) {
		if time.Sleep(time.Minute); s.lists.Load() != 0 {
			s.Errorf("%d calls of List before somebody looks", s.lists.Load())
		}
		b := s.open("/", false)
		time.Sleep(9 * time.Second) // between two intervals
		b.leave()
		before := s.lists.Load()
		if time.Sleep(time.Minute); s.lists.Load() != before || before < 4 {
			s.Errorf("%d calls of List with a viewer, %d a minute later", before, s.lists.Load())
		}
	}) // and no goroutine is left, or synctest fails
}

func TestAStreamThatHangsIsDroppedAndHoldsUpNobody(t *testing.T) {
	play(t, func(s *scene) {
		hung, b := s.open("/", true), s.open("/", false)
		defer b.leave()
		for n := range 3 {
			time.Sleep(time.Second)
			b.events(s.T)
			defer s.lock(s.here, fmt.Sprint("order/", n)).Unlock(s.Context())
			time.Sleep(500 * time.Millisecond)
			if events, _ := b.events(s.T); len(events) == 0 {
				s.Errorf("%d events beside a stream that hangs", len(events))
			}
		}
		time.Sleep(10 * time.Second)
		select {
		case <-hung.gone:
		default:
			s.Error("the stream that hangs is not dropped")
			hung.leave()
		}
	})
}

func TestMoreStreamsThanAllowedAreRefused(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.open("/", false), s.open("/", false)
		defer b.leave()
		c := s.open("/", false)
		if <-c.gone; c.status != http.StatusServiceUnavailable || c.head.Get("Retry-After") == "" {
			s.Errorf("status %d, header %v", c.status, c.head)
		}
		a.leave()
		d := s.open("/", false)
		defer d.leave()
		if d.status != http.StatusOK {
			s.Errorf("status %d after one has left", d.status)
		}
	}, pagelocker.WithMaxStreams(2))
}

func TestAQuietStreamHasAComment(t *testing.T) {
	play(t, func(s *scene) {
		b := s.open("/", false)
		defer b.leave()
		time.Sleep(46 * time.Second)
		if events, comments := b.events(s.T); comments != 3 || len(events) != 1 {
			s.Errorf("%d comments and %d events in 46 s of quiet; want 3, and the first event", comments, len(events))
		}
	})
}

func TestABrowserThatComesBackGetsOnlyWhatChanged(t *testing.T) {
	play(t, func(s *scene) {
		for n := range 20 {
			defer s.lock(s.others, fmt.Sprint("order/", n)).Unlock(s.Context())
		}
		b := s.open("/", false)
		other := s.open("/", false)
		defer other.leave()
		time.Sleep(time.Second)
		events, _ := b.events(s.T)
		last := events[len(events)-1].id
		b.leave()
		defer s.lock(s.here, "order/new").Unlock(s.Context())
		b = s.open("/", false, "Last-Event-ID", last)
		time.Sleep(time.Second)
		events, _ = b.events(s.T)
		b.leave()
		rows, news := 0, false
		for _, e := range events {
			news = news || e.has("order/new")
			for id := range e.Parts {
				if id != "sum" && id != "pages" {
					rows++
				}
			}
		}
		if rows != 1 || !news {
			s.Errorf("%d rows came; want the new one alone", rows)
		}
		b = s.open("/", false, "Last-Event-ID", "ANOTHER1-99") // the process has been started again
		defer b.leave()
		if events, _ = b.events(s.T); len(events) == 0 || len(events[0].Parts) < 21 {
			s.Errorf("%+v; want all that there is", events)
		}
	})
}

func TestOfTenThousandLocksOnlyTheChangedRowIsSent(t *testing.T) {
	play(t, func(s *scene) {
		for n := range 10_000 {
			s.Set(fmt.Sprintf("order/%05d", n), "other software", time.Hour)
		}
		r := s.report("")
		if r.Found != 10_000 || len(r.Locks) != 50 || r.Pages != 200 || r.Store.Partial {
			s.Fatalf("found %d, %d on page 1 of %d", r.Found, len(r.Locks), r.Pages)
		}
		if last := s.report("page=200&sort=key").Locks; len(last) != 50 || last[49].Key != "order/09999" {
			s.Errorf("the last page has %d locks", len(last))
		}
		if r := s.report("q=/0512"); r.Found != 10 {
			s.Errorf("a search finds %d; want 10", r.Found)
		}
		b := s.open("/", false)
		defer b.leave()
		time.Sleep(5 * time.Second)
		b.events(s.T)
		defer s.lock(s.here, "a").Unlock(s.Context()) // no lock has waiters: the first by its key
		events, _ := b.events(s.T)
		time.Sleep(time.Second)
		more, _ := b.events(s.T)
		parts := map[string]bool{}
		for _, e := range append(events, more...) {
			for id := range e.Parts {
				parts[id] = true
			}
		}
		if len(parts) != 3 && len(parts) != 2 {
			s.Errorf("%d parts were sent: %v; want the row, the sum and perhaps the pages", len(parts), parts)
		}
	})
}

func TestAStoreThatFailsIsTold(t *testing.T) {
	play(t, func(s *scene) {
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		s.report("")
		failure := errors.New("no route to 10.0.0.7:6379")
		s.fails.Store(&failure)
		time.Sleep(3 * time.Second)
		if r := s.report(""); r.Store.Error != failure.Error() || len(r.Locks) != 1 {
			s.Errorf("%+v; want the error, and what was known", r)
		}
		s.fails.Store(nil)
		time.Sleep(3 * time.Second)
		if r := s.report(""); r.Store.Error != "" {
			s.Errorf("error %q after the store answers again", r.Store.Error)
		}
	})
}

func TestCloseEndsStreams(t *testing.T) {
	play(t, func(s *scene) {
		b := s.open("/", false)
		s.page.Close()
		s.page.Close()
		<-b.gone
		synctest.Wait()
		if w := s.get("/"); w.Code != http.StatusOK {
			s.Errorf("status %d after Close", w.Code)
		}
	})
}

// A person asks for thousands of keys that do not exist. The store is asked for a few of them only. Other
// people still see the lock that they have open. If they open another one later, they see its holder.
func TestInventedKeysTakeNothingFromLocks(t *testing.T) {
	play(t, func(s *scene) {
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		defer s.lock(s.others, "order/2").Unlock(s.Context())
		b := s.open("/?key=order/1", false)
		defer b.leave()
		began := time.Now()
		for n := range 20 { // for 20 s
			for i := range 250 {
				s.report(fmt.Sprintf("key=invented/%d/%d", n, i))
			}
			time.Sleep(time.Second)
		}
		// 200 at a time, and a place is free again after 6 s; the stream and the list, every 2 s
		if n := s.inspections.Load(); n > 4*200+11+11 {
			s.Errorf("%d inspections in 20 s; want few for 5,000 invented keys", n)
		}
		for _, key := range []string{"order/1", "order/2"} {
			l := s.report("key=" + key).Locks[0]
			if l.State != "held" || l.Holds[0].Holder != "others/2" {
				s.Errorf("beside invented keys: %+v", l)
				continue
			}
			if since := l.Holds[0].Since; key == "order/1" && !since.Equal(began) {
				s.Errorf("the hold that is looked at since %v began at %v", began, since)
			}
		}
		if r := s.report("key=invented/last"); r.Locks[0].State != "free" || r.Store.Unasked != "" {
			s.Errorf("a key that is not in the list: %+v", r.Store)
		}
	})
}

// A look that began before a release does not stand for the time after it.
func TestALookThatAReleaseOvertakesIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memory.New()}
		l, err := locker.New(fenced.New(store.Store)).Lock(t.Context(), "order/1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Unlock(t.Context()) }()
		state, err := store.Inspect(t.Context(), "order/1")
		if err != nil {
			t.Fatal(err)
		}
		p := pagelocker.New(pagelocker.WithStore(store), pagelocker.WithRelease(store, func(*http.Request) (string, bool) { return "", true }))
		release := func() {
			store.during.Store(nil)
			w := ask(p, http.MethodPost, "/?key=order/1", url.Values{"print": {state.Holds[0].Print}, "now": {"1"}})
			if w.Code != http.StatusSeeOther {
				t.Errorf("release: %d %s", w.Code, w.Body)
			}
		}
		store.during.Store(&release)
		// Its look sees the hold, and then the hold is released.
		if text := ask(p, http.MethodGet, "/?sort=key", nil).Body.String(); strings.Contains(text, ` left</span>`) {
			t.Errorf("the page that the release overtook: %s", mainOf(text))
		}
		if text := ask(p, http.MethodGet, "/?format=json", nil).Body.String(); strings.Contains(text, `"state":"held"`) {
			t.Errorf("after the release: %s", text)
		}
		if n := store.lists.Load(); n != 2 {
			t.Errorf("%d looks; want 2", n)
		}
	})
}

// Nobody looks at what this process released since the store was last asked: neither at keys that it has
// forgotten, nor at one that others may hold too.
func TestWhatThisProcessReleasedIsNotShownAsHeld(t *testing.T) {
	play(t, func(s *scene) {
		shared := locker.New(semaphore.New(s.Store, 5), locker.WithHolder("here/1"), locker.WithMiddleware(s.page.Middleware))
		theirs := locker.New(semaphore.New(s.Store, 5), locker.WithHolder("here/1")) // the same name
		kept := s.lock(theirs, "permits")
		defer kept.Unlock(s.Context())
		var held []*locker.Lock
		for n := range 1500 { // more than the registry remembers
			held = append(held, s.lock(s.here, fmt.Sprint("order/", n)))
		}
		for range 4 {
			held = append(held, s.lock(shared, "permits"))
		}
		if r := s.report(""); r.Held != 1501 {
			s.Fatalf("%d keys are held; want 1501", r.Held)
		}
		for _, l := range held {
			if err := l.Unlock(s.Context()); err != nil {
				s.Fatal(err)
			}
		}
		time.Sleep(250 * time.Millisecond)
		r := s.report("q=permits")
		if r.Held != 1 || r.Found != 1 || r.Locks[0].Holding != 1 || len(r.Locks[0].Holds) != 1 || r.Locks[0].Holds[0].Here {
			s.Errorf("%d keys are held, and %+v; want the one permit of the other process", r.Held, r.Locks)
		}
		if s.lists.Load() != 1 {
			s.Errorf("the store was asked %d times; this test is about one answer", s.lists.Load())
		}
		time.Sleep(2 * time.Second)
		if s.report(""); s.lists.Load() != 2 {
			s.Error("the store was not asked again")
		}
		for _, l := range s.report("q=order").Locks {
			if len(l.History) != 1 || !l.History[0].Here {
				s.Fatalf("the history of %s is %+v; want the hold of this process alone", l.Key, l.History)
			}
		}
	})
}

// What a store said a while ago is not shown as if it were so now.
func TestAnAnswerOfLongAgoIsNotShown(t *testing.T) {
	play(t, func(s *scene) {
		l := s.lock(s.others, "order/1")
		s.report("")
		l.Unlock(s.Context())
		time.Sleep(time.Minute)
		slow := func() { time.Sleep(8 * time.Second) }
		s.during.Store(&slow)
		if text := s.get("/").Body.String(); strings.Contains(text, "others/2") || !strings.Contains(text, "has not answered yet") {
			s.Error("the page shows what the store said a minute ago")
		}
		if text := s.get("/metrics").Body.String(); !strings.Contains(text, "lockstep_store_up 0") {
			s.Error("the metrics say that the store has answered")
		}
		time.Sleep(5 * time.Second)
	})
}

// A look of some seconds is over when the metrics are read next, but nobody has looked since then. So
// the metrics wait for it.
func TestAScrapeWaitsForASlowStore(t *testing.T) {
	play(t, func(s *scene) {
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		slow := func() { time.Sleep(4 * time.Second) }
		s.during.Store(&slow)
		for range 3 {
			if text := s.get("/metrics").Body.String(); !strings.Contains(text, "lockstep_store_up 1\n") || !strings.Contains(text, `lockstep_locks{state="held"} 1`) {
				s.Errorf("metrics %s", text)
			}
			time.Sleep(11 * time.Second)
		}
	})
}

// Prometheus asks less often than people look. It follows a hold all the same.
func TestAScrapeFollowsHolds(t *testing.T) {
	play(t, func(s *scene) {
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		for range 3 {
			s.get("/metrics")
			time.Sleep(15 * time.Second)
		}
		if text := s.get("/metrics").Body.String(); !strings.Contains(text, "\nlockstep_oldest_hold_seconds 45\n") {
			s.Errorf("after 45 s: %s", text)
		}
	})
}

// A store lists 100 holds of a key. One that is no longer among them has been renewed, or has ended.
func TestAHoldThatIsNotListedHasNotEnded(t *testing.T) {
	play(t, func(s *scene) {
		permits := locker.New(semaphore.New(s.Store, 150), locker.WithHolder("others/2"))
		for range 150 {
			defer s.lock(permits, "permits").Unlock(s.Context())
			time.Sleep(10 * time.Millisecond)
		}
		b := s.open("/?key=permits", false)
		defer b.leave()
		time.Sleep(20 * time.Second)
		if l := s.report("key=permits").Locks[0]; l.Holding != 150 || len(l.Holds) != 100 || len(l.History) != 0 {
			s.Errorf("%d holds, %d of them listed; the history is %+v", l.Holding, len(l.Holds), l.History)
		}
	})
}
