package pagelocker_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

// mainOf is what a page shows, without its script.
func mainOf(text string) string {
	_, text, _ = strings.Cut(text, "<main>")
	text, _, _ = strings.Cut(text, "</main>")
	return regexp.MustCompile(`\s+`).ReplaceAllString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text, " "), " ")
}

// A store that does not answer has told nothing. So the page does not say that nothing is held.
func TestWhatTheStoreHasNotToldIsNotKnown(t *testing.T) {
	failure := errors.New("no route to 10.0.0.7:6379")
	play(t, func(s *scene) {
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		s.fails.Store(&failure)
		for target, want := range map[string]string{
			"/":             "held not known waiting not known",
			"/?q=order":     "It is not known what is held.",
			"/?key=order/1": "holders not known waiting not known",
			"/?view=store":  "round trip not known list of locks not known",
		} {
			text := mainOf(s.get(target).Body.String())
			if !strings.Contains(text, want) || !strings.Contains(text, failure.Error()) {
				s.Errorf("%s shows %q; want %q", target, text, want)
			}
			for _, claim := range []string{"Nothing is held", "Nobody waits", "Free", "free", " 0 ", "0.00 ms"} {
				if strings.Contains(text, claim) {
					s.Errorf("%s says %q: %s", target, claim, text)
				}
			}
		}
		if r := s.report(""); !r.Unknown {
			s.Errorf("the JSON of the list is %+v", r)
		}
		if r := s.report("key=order/1"); !r.Unknown || r.Locks[0].State != "unknown" || r.Held != 0 {
			s.Errorf("the JSON of a lock is %+v", r)
		}
		text := s.get("/metrics").Body.String()
		if !strings.Contains(text, "\nlockstep_store_up 0\n") || !strings.Contains(text, "\nlockstep_process_holds 0\n") {
			s.Errorf("metrics %s", text)
		}
		for _, name := range []string{"lockstep_locks", "lockstep_waiters", "lockstep_longest", "lockstep_oldest", "lockstep_rtt", "lockstep_store_list", "lockstep_store_partial", "lockstep_key"} {
			if strings.Contains(text, name) {
				s.Errorf("the metrics have %s while the store does not answer", name)
			}
		}

		defer s.lock(s.here, "order/2").Unlock(s.Context())
		s.lock(s.here, "order/3").Unlock(s.Context())
		time.Sleep(time.Second)
		if text := mainOf(s.get("/").Body.String()); !strings.Contains(text, "≥ 1") || !strings.Contains(text, "order/3 not known") {
			s.Errorf("with a hold of this process the list shows %q", text)
		}
		if text := mainOf(s.get("/?key=order/2").Body.String()); !strings.Contains(text, "≥ 1") || !strings.Contains(text, "Queue Not known.") {
			s.Errorf("a hold of this process is shown as %q", text)
		}

		s.fails.Store(nil)
		time.Sleep(3 * time.Second)
		if r := s.report(""); r.Unknown || r.Held != 2 {
			s.Errorf("once the store answers: %+v", r)
		}
		s.fails.Store(&failure)
		time.Sleep(3 * time.Second)
		if text := mainOf(s.get("/").Body.String()); !strings.Contains(text, "this is what it said 3.0 s ago") || strings.Contains(text, "not known") {
			s.Errorf("with an answer from before: %q", text)
		}
		if text := s.get("/metrics").Body.String(); strings.Contains(text, "lockstep_locks") {
			s.Error("the metrics have what the store said before")
		}
	}, pagelocker.WithKeyMetrics("order/1"))
}

// The list does not have keys outside its prefixes, so it does not know whether one is free.
func TestAKeyOutsideThePrefixesIsNotKnownToBeFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		p := pagelocker.New(pagelocker.WithStore(store, "order/"), pagelocker.WithKeyMetrics("session/1", "session/2", "order/1"))
		here := locker.New(fenced.New(store), locker.WithMiddleware(p.Middleware))
		s := &scene{T: t, page: p}
		theirs := s.lock(locker.New(fenced.New(store)), "session/1")
		go func() { s.lock(here, "session/1").Unlock(t.Context()) }()
		time.Sleep(time.Second)
		if r := s.report(""); len(r.Locks) != 1 || r.Locks[0].State != "unknown" || r.Held != 0 || r.Unknown {
			t.Errorf("the list is %+v, with %+v", r, r.Locks)
		}
		if r := s.report("key=session/1"); r.Locks[0].State != "held" { // it is asked for, since this process waits
			t.Errorf("the lock is %+v", r.Locks[0])
		}
		if text := s.get("/metrics").Body.String(); strings.Contains(text, `key="session/`) || !strings.Contains(text, `lockstep_key_holds{key="order/1"} 0`) {
			t.Errorf("metrics %s", text)
		}
		theirs.Unlock(t.Context())
		time.Sleep(5 * time.Second)
	})
}
