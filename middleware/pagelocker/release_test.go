package pagelocker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

// evictor answers instead of a store, or lets it answer.
type evictor struct {
	backends.Evictor
	err error
}

func (e *evictor) Evict(ctx context.Context, key, seen string, how backends.Eviction) (bool, error) {
	if e.err != nil {
		return false, e.err
	}
	return e.Evictor.Evict(ctx, key, seen, how)
}

// refusal is the error of a store that has done nothing.
type refusal struct{}

func (refusal) Error() string   { return "permission denied for function evict" }
func (refusal) Permanent() bool { return true }

func everybody(*http.Request) (string, bool) { return "", true }

// force is a release by force of order/1.
func (s *scene) force(seen string) *httptest.ResponseRecorder {
	return ask(s.page, http.MethodPost, "/?key=order/1", url.Values{"print": {seen}})
}

// The page was started again, so nobody has looked at the key when a release comes.
func TestTheAnswerToAReleaseShowsTheLockThoughNobodyHasLookedBefore(t *testing.T) {
	for name, c := range map[string]struct {
		fails        error
		status       int
		notice, says string // what the page shows, and what the log has
	}{
		"another print": {
			nil, http.StatusConflict, "Nothing was released: that hold has ended, or another holder has the key.",
			`"no lock released by force on the page" key=order/1 print=1111 now=false remote=192.0.2.1:1234 reason="that hold has ended, or another holder has the key"`,
		},
		"a user that may not": {
			refusal{}, http.StatusBadGateway, "Nothing was released: permission denied for function evict",
			`"no lock released by force on the page" key=order/1 print=1111 now=false remote=192.0.2.1:1234 reason="permission denied for function evict"`,
		},
		"a connection that breaks": {
			errors.New("unexpected EOF"), http.StatusBadGateway, "It is not known whether that hold was released: unexpected EOF",
			`"unknown whether a lock was released by force on the page" key=order/1 print=1111 now=false remote=192.0.2.1:1234 reason="unexpected EOF"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, log := new(evictor), new(bytes.Buffer)
			play(t, func(s *scene) {
				defer s.lock(s.others, "order/1").Unlock(s.Context())
				e.Evictor, e.err = s.Store, c.fails
				w := s.force("1111")
				text := mainOf(w.Body.String())
				if w.Code != c.status || !strings.Contains(text, "holder 1 ") || !strings.Contains(text, "others/2") {
					s.Errorf("status %d and %q; want %d, and the holder", w.Code, text, c.status)
				}
				if strings.Contains(text, "not asked") || strings.Contains(text, "Free") {
					s.Errorf("the answer is wrong: %q", text)
				}
				if !strings.Contains(text, c.notice) || !strings.Contains(log.String(), c.says) {
					s.Errorf("the page shows %q, and the log has %q", text, log)
				}
			}, pagelocker.WithRelease(e, everybody), pagelocker.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		})
	}
}

func TestTheAnswerToAReleaseSaysWhatIsNotKnown(t *testing.T) {
	e := new(evictor)
	play(t, func(s *scene) {
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		e.Evictor = s.Store
		failure := errors.New("no route to 10.0.0.7:6379")
		s.fails.Store(&failure)
		if text := mainOf(s.force("1111").Body.String()); !strings.Contains(text, "holders not known") || strings.Contains(text, "Free") {
			s.Errorf("the answer is %q", text)
		}
	}, pagelocker.WithRelease(e, everybody))
}

// evict is a release by force by another program, such as lockstep release.
func (s *scene) evict(key, holder string, how backends.Eviction) {
	s.Helper()
	state, err := s.Store.Inspect(s.Context(), key)
	if err != nil {
		s.Fatal(err)
	}
	for _, h := range state.Holds {
		if h.Holder != holder {
			continue
		}
		if ok, err := s.Evict(s.Context(), key, h.Print, how); !ok || err != nil {
			s.Fatal(ok, err)
		}
		return
	}
	s.Fatalf("%s does not hold %s: %+v", holder, key, state)
}

// past is the history of a key, by holders and causes.
func (s *scene) past(key string) string {
	s.Helper()
	var all []string
	for _, p := range s.report("key=" + key).Locks[0].History {
		all = append(all, fmt.Sprintf("%s %s x%d", p.Holder, p.Cause, p.Times))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// Nobody has looked before the release. All the same it is in the history, once, and what kept the key
// closed after it is told apart from a hold.
func TestAReleaseOnThePageIsInTheHistory(t *testing.T) {
	for _, now := range []string{"", "1"} {
		e := new(evictor)
		play(t, func(s *scene) {
			e.Evictor = s.Store
			s.lock(s.others, "order/1")
			began := time.Now()
			state, err := s.Store.Inspect(s.Context(), "order/1")
			if err != nil {
				s.Fatal(err)
			}
			time.Sleep(time.Second)
			w := ask(s.page, http.MethodPost, "/?key=order/1", url.Values{"print": {state.Holds[0].Print}, "now": {now}})
			if w.Code != http.StatusSeeOther {
				s.Fatalf("status %d: %s", w.Code, mainOf(w.Body.String()))
			}
			want := "others/2 evicted x1"
			if got := s.past("order/1"); got != want {
				s.Errorf("the history is %s; want %s", got, want)
			}
			if h := s.report("key=order/1").Locks[0].History; len(h) == 1 && (!h[0].Earliest.Equal(began) || !h[0].Until.Equal(time.Now())) {
				s.Errorf("%+v; want a hold from %v to %v", h[0], began, time.Now())
			}
			if text := s.get("/").Body.String(); strings.Contains(text, "free for") || (now == "") != strings.Contains(text, `class="lease cx"`) {
				s.Errorf("the list shows %q", mainOf(text))
			}
			b := s.open("/?key=order/1", false) // it follows what is there now
			defer b.leave()
			time.Sleep(20 * time.Second)
			if now == "" {
				want += ", the page of locks closed x1"
			}
			if got := s.past("order/1"); got != want {
				s.Errorf("then the history is %s; want %s", got, want)
			}
			text := mainOf(s.get("/?key=order/1").Body.String())
			if !strings.Contains(text, "ended by force") || (now == "") != strings.Contains(text, "kept closed after a forced release") {
				s.Errorf("the page shows %q", text)
			}
		}, pagelocker.WithRelease(e, everybody))
	}
}

// The store shows what closes a key after a release by force, whichever program did it.
func TestAReleaseByAnotherProgramIsInTheHistory(t *testing.T) {
	play(t, func(s *scene) {
		for _, target := range []string{"/", "/?key=permits", "/?key=others", "/?key=here"} {
			b := s.open(target, false)
			defer b.leave()
		}
		here := locker.New(semaphore.New(s.Store, 3, semaphore.WithSlots()), locker.WithHolder("here/1"), locker.WithMiddleware(s.page.Middleware))
		one := locker.New(semaphore.New(s.Store, 3, semaphore.WithSlots()), locker.WithHolder("one/2"))
		two := locker.New(semaphore.New(s.Store, 3, semaphore.WithSlots()), locker.WithHolder("two/3"))
		s.lock(s.others, "others")
		ours := s.lock(s.here, "here")
		s.lock(here, "permits")
		s.lock(one, "permits")
		released := s.lock(two, "permits")
		time.Sleep(5 * time.Second)
		s.evict("others", "others/2", backends.Eviction{By: "ann"})
		s.evict("here", "here/1", backends.Eviction{By: "ann"})
		s.evict("permits", "one/2", backends.Eviction{By: "ann"})
		released.Unlock(s.Context())
		<-ours.Context().Done() // it finds out
		time.Sleep(20 * time.Second)
		for key, want := range map[string]string{
			"others":  "ann closed x1, others/2 evicted x1",
			"here":    "ann closed x1, here/1 evicted x1",
			"permits": "ann closed x1, one/2 evicted x1, two/3 gone x1",
		} {
			if got := s.past(key); got != want {
				s.Errorf("the history of %s is %s; want %s", key, got, want)
			}
		}
		if text := s.get("/metrics").Body.String(); !strings.Contains(text, `lockstep_process_lost_total{reason="evicted"} 1`) {
			s.Errorf("metrics %s", text)
		}
	})
}

// A person is told by the label under which the key stays closed, and in the log. What is no label is in
// the log alone.
func TestAReleaseIsSignedByThePerson(t *testing.T) {
	for by, want := range map[string]string{"ann": "ann", "ann@example.com": "ann at example.com", "": "the page of locks", "x\ny": "the page of locks"} {
		e, log := new(evictor), new(bytes.Buffer)
		authorize := func(*http.Request) (string, bool) { return by, true }
		play(t, func(s *scene) {
			e.Evictor = s.Store
			s.lock(s.others, "order/1")
			if w := s.force(s.print("order/1")); w.Code != http.StatusSeeOther {
				s.Fatalf("status %d: %s", w.Code, mainOf(w.Body.String()))
			}
			state, err := s.Store.Inspect(s.Context(), "order/1")
			if err != nil || len(state.Holds) != 1 || state.Holds[0].Holder != want {
				s.Errorf("by %q: %+v, %v; want %q", by, state.Holds, err, want)
			}
			if (by != "") != strings.Contains(log.String(), fmt.Sprintf("by=%s", quoted(by))) {
				s.Errorf("by %q: the log has %s", by, log)
			}
		}, pagelocker.WithRelease(e, authorize), pagelocker.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	}
}

func quoted(text string) string {
	if strings.ContainsAny(text, "\n ") {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// print is the print of the only hold of a key.
func (s *scene) print(key string) string {
	s.Helper()
	state, err := s.Store.Inspect(s.Context(), key)
	if err != nil || len(state.Holds) != 1 {
		s.Fatal(state, err)
	}
	return state.Holds[0].Print
}

// A proxy that passes its own name on makes the page another one for the browser. The refusal says what helps.
func TestAReleaseBehindAProxyNeedsItsOrigin(t *testing.T) {
	for _, row := range []struct {
		name    string
		origins []string
		origin  string
		status  int
		says    string
	}{
		{"nginx by default", nil, "http://locks.example.com", http.StatusForbidden, "proxy_set_header Host $host"},
		{"another origin than that of the proxy", []string{"http://locks.example.com"}, "http://evil.example", http.StatusForbidden, "WithTrustedOrigins"},
		{"another port", []string{"http://locks.example.com"}, "http://locks.example.com:81", http.StatusForbidden, "WithTrustedOrigins"},
		{"no origin at all", []string{"locks.example.com"}, "http://locks.example.com", http.StatusForbidden, `"locks.example.com"`},
		{"the origin of the proxy", []string{"http://other.example", "http://locks.example.com"}, "http://locks.example.com", http.StatusSeeOther, ""},
	} {
		e := new(evictor)
		play(t, func(s *scene) {
			e.Evictor = s.Store
			s.lock(s.others, "order/1")
			r := httptest.NewRequest(http.MethodPost, "/?key=order/1", strings.NewReader(url.Values{"print": {s.print("order/1")}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Origin", row.origin)
			r.Host = "127.0.0.1:7007"
			w := httptest.NewRecorder()
			s.page.ServeHTTP(w, r)
			if w.Code != row.status || !strings.Contains(w.Body.String(), row.says) {
				s.Errorf("%s: status %d: %s; want %d and %q", row.name, w.Code, w.Body, row.status, row.says)
			}
		}, pagelocker.WithRelease(e, everybody), pagelocker.WithTrustedOrigins(row.origins...))
	}
}
