package pagelocker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

func TestAKeyOrHolderWithMarkupIsText(t *testing.T) {
	const evil = `<script>alert("x")</script>`
	play(t, func(s *scene) {
		named := locker.New(fenced.New(s.Store), locker.WithHolder(`<img src=x onerror=alert(1)>`))
		defer s.lock(named, evil).Unlock(s.Context())
		b := s.open("/", false)
		defer b.leave()
		time.Sleep(time.Second)
		events, _ := b.events(s.T)
		texts := map[string]string{
			"list": s.get("/?q=" + url.QueryEscape(`<script`)).Body.String(),
			"lock": s.get("/?key=" + url.QueryEscape(evil)).Body.String(),
		}
		for _, e := range events {
			for id, html := range e.Parts {
				texts["event "+id] += html
			}
		}
		seen := false
		for name, text := range texts {
			seen = seen || strings.Contains(text, "&lt;script&gt;alert(")
			for _, markup := range []string{"<script>", "<img"} {
				if strings.Contains(text, markup) {
					s.Errorf("%s has %s", name, markup)
				}
			}
		}
		if !seen || len(events) == 0 {
			s.Error("the key is not on the page; is the test looking at the right thing?")
		}
	})
}

func TestThePolicyAllowsOnlyThePagesOwnScript(t *testing.T) {
	play(t, func(s *scene) {
		nonces := map[string]bool{}
		for range 2 {
			w := s.get("/")
			policy := w.Header().Get("Content-Security-Policy")
			nonce := regexp.MustCompile(`script-src 'nonce-([A-Z0-9]{26})'`).FindStringSubmatch(policy)
			if nonce == nil || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				s.Fatalf("policy %q", policy)
			}
			nonces[nonce[1]] = true
			tags := regexp.MustCompile(`<(?:script|style)[^>]*>`).FindAllString(w.Body.String(), -1)
			for _, tag := range tags {
				if !strings.Contains(tag, `nonce="`+nonce[1]+`"`) {
					s.Errorf("%s without the nonce", tag)
				}
			}
			if len(tags) != 2 || regexp.MustCompile(`\s(style|on\w+)=`).MatchString(w.Body.String()) {
				s.Errorf("%d scripts and styles, or one in an attribute", len(tags))
			}
		}
		if len(nonces) != 2 {
			s.Error("a nonce was used twice")
		}
	})
}

func TestThePageWorksUnderAnyPrefix(t *testing.T) {
	play(t, func(s *scene) {
		defer s.lock(s.here, "a/b?c&d").Unlock(s.Context())
		mux := http.NewServeMux()
		mux.Handle("/debug/locks/", s.page)
		mux.Handle("/stripped/", http.StripPrefix("/stripped", s.page))
		mux.Handle("/bare/", http.StripPrefix("/bare/", s.page))
		links := regexp.MustCompile(`(?:href|action|src)="([^"]*)"`)
		for _, prefix := range []string{"/debug/locks/", "/stripped/", "/bare/"} {
			w := ask(mux, http.MethodGet, prefix, nil)
			found := links.FindAllStringSubmatch(w.Body.String(), -1)
			for _, link := range found {
				if to := link[1]; to != "metrics" && to != "data:," && !strings.HasPrefix(to, "?") {
					s.Errorf("%s: a link to %q", prefix, to)
				}
			}
			if w.Code != http.StatusOK || len(found) < 4 {
				s.Errorf("%s: status %d and %d links", prefix, w.Code, len(found))
			}
			for target, want := range map[string]string{"?key=a%2Fb%3Fc%26d": "<h2>Holder</h2>", "metrics": "lockstep_process_holds 1"} {
				if w := ask(mux, http.MethodGet, prefix+target, nil); !strings.Contains(w.Body.String(), want) {
					s.Errorf("%s%s: %d without %q", prefix, target, w.Code, want)
				}
			}
		}
		if w := ask(s.page, http.MethodGet, "/debug/locks", nil); w.Code != http.StatusNotFound {
			s.Errorf("status %d without the slash", w.Code)
		}
		if w := ask(s.page, http.MethodPut, "/", nil); w.Code != http.StatusMethodNotAllowed {
			s.Errorf("status %d for PUT", w.Code)
		}
	})
}

func TestALockIsShownWithItsQueueAndHistory(t *testing.T) {
	play(t, func(s *scene) {
		s.lock(s.here, "order/1").Unlock(s.Context())
		l := s.lock(s.others, "order/1")
		for range 2 {
			go func() { s.lock(s.here, "order/1").Unlock(s.Context()) }()
			time.Sleep(time.Second)
		}
		r := s.report("key=order/1").Locks[0]
		if len(r.Holds) != 1 || r.Holds[0].Holder != "others/2" || r.Holds[0].Here || r.Holding != 1 {
			s.Errorf("holds %+v", r.Holds)
		}
		if len(r.Queue) != 1 || r.Queue[0].Label != "here/1" || r.Queue[0].Calls != 2 || r.Waiting != 2 {
			s.Errorf("queue %+v, %d waiting", r.Queue, r.Waiting)
		}
		if len(r.History) != 1 || r.History[0].Cause != "released" || !r.History[0].Here {
			s.Errorf("history %+v", r.History)
		}
		l.Unlock(s.Context())
		time.Sleep(5 * time.Second)
		r = s.report("key=order/1").Locks[0]
		if len(r.Holds) != 0 || r.State != "free" || r.Waiting != 0 {
			s.Errorf("%+v is not free", r)
		}
		causes := map[string]int{}
		for _, p := range r.History {
			causes[p.Cause+" "+p.Holder] += p.Times
		}
		if causes["released here/1"] != 3 || causes["gone others/2"] != 1 {
			s.Errorf("history %v", causes)
		}
	})
}

func TestAHoldOfThisProcessIsShownOnce(t *testing.T) {
	play(t, func(s *scene) {
		l := s.lock(s.here, "order/1")
		for range 3 {
			r := s.report("").Locks
			if len(r) != 1 || len(r[0].Holds) != 1 || !r[0].Holds[0].Here || r[0].Holding != 1 || r[0].Fence != l.Fence() {
				s.Errorf("%+v; want one hold, of this process", r[0])
			}
			time.Sleep(3500 * time.Millisecond) // there is a renewal
		}
		r := s.report("").Locks[0].Holds[0]
		if r.Extensions != 3 || r.Print == "" || !r.Expires.After(time.Now()) {
			s.Errorf("%+v; want three extensions, and a print from the store", r)
		}
		l.Unlock(s.Context())
		time.Sleep(250 * time.Millisecond)
		if r := s.report("").Locks[0]; r.State != "free" || len(r.Holds) != 0 { // the store is not asked again
			s.Errorf("%+v; want a free lock", r)
		}
	})
}

// Two processes have one name, or none. The hold of each is in the history.
func TestTheHistoryHasHoldsOfOthersWithTheSameName(t *testing.T) {
	play(t, func(s *scene) {
		ours := locker.New(semaphore.New(s.Store, 2), locker.WithMiddleware(s.page.Middleware))
		theirs := locker.New(semaphore.New(s.Store, 2))
		b := s.open("/", false)
		defer b.leave()
		one, other := s.lock(ours, "permits"), s.lock(theirs, "permits")
		time.Sleep(3 * time.Second)
		one.Unlock(s.Context())
		time.Sleep(4 * time.Second)
		other.Unlock(s.Context())
		time.Sleep(3 * time.Second)
		h := s.report("key=permits").Locks[0].History
		if len(h) != 2 || !h[0].Here || h[1].Here || h[1].Cause != "gone" {
			s.Errorf("%+v; want the hold of this process, and then that of the other one", h)
		}
	})
}

// A look is late to see the end of a hold of others, but it had ended when this process got the key.
func TestAHoldOfOthersEndsBeforeTheNextOneBegins(t *testing.T) {
	play(t, func(s *scene) {
		theirs := s.lock(s.others, "order/1")
		b := s.open("/", false)
		defer b.leave()
		time.Sleep(4100 * time.Millisecond)
		theirs.Unlock(s.Context())
		got := time.Now()
		defer s.lock(s.here, "order/1").Unlock(s.Context())
		time.Sleep(3 * time.Second)
		if h := s.report("key=order/1").Locks[0].History; len(h) != 1 || h[0].Holder != "others/2" || !h[0].Until.Equal(got) {
			s.Errorf("history %+v; want a hold that ended at %v", h, got)
		}
	})
}

func TestALossIsInTheHistory(t *testing.T) {
	play(t, func(s *scene) {
		l := s.lock(s.here, "order/1")
		s.Delete("order/1")
		<-l.Context().Done()
		synctest.Wait()
		if h := s.report("key=order/1").Locks[0].History; len(h) != 1 || h[0].Cause != "stolen" {
			s.Errorf("history %+v", h)
		}
		if text := s.get("/?key=order/1").Body.String(); !strings.Contains(text, "lost: stolen") {
			s.Error("the page does not say that the lock was lost")
		}
	})
}

func TestKeysAreSortedAndFound(t *testing.T) {
	play(t, func(s *scene) {
		ctx, cancel := context.WithCancel(s.Context())
		defer cancel()
		for _, key := range []string{"c", "a", "b"} {
			defer s.lock(s.here, key).Unlock(s.Context())
			time.Sleep(time.Second)
		}
		go func() { _, _ = s.others.Lock(ctx, "b") }()
		time.Sleep(time.Second)
		for query, want := range map[string]string{
			"sort=waiters": "b a c", "sort=key": "a b c", "sort=age": "c a b", "sort=left": "a b c", "q=HERE&sort=key": "a b c", "q=B": "b", "q=nothing": "",
		} {
			var keys []string
			for _, l := range s.report(query).Locks {
				keys = append(keys, l.Key)
			}
			if got := strings.Join(keys, " "); got != want {
				s.Errorf("%s: %s; want %s", query, got, want)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// Two keys whose 64 bits of FNV-1a are equal have rows of their own.
func TestTwoKeysNeverShareARow(t *testing.T) {
	play(t, func(s *scene) {
		for _, key := range []string{"8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"} {
			defer s.lock(s.here, key).Unlock(s.Context())
		}
		ids := map[string]bool{}
		for _, id := range regexp.MustCompile(`<li id="([^"]+)"`).FindAllStringSubmatch(s.get("/").Body.String(), -1) {
			ids[id[1]] = true
		}
		if len(ids) != 2 {
			s.Errorf("the rows of two locks are %v", ids)
		}
	})
}

func TestKeysOutsideThePrefixesAreNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memory.New()}
		p := pagelocker.New(pagelocker.WithStore(store, "orders/"), pagelocker.WithRelease(store, func(*http.Request) (string, bool) { return "", true }))
		store.Set("session/1", "other software", time.Hour)
		ask(p, http.MethodGet, "/?key=session/1", nil)
		if n := store.inspections.Load(); n != 0 {
			t.Errorf("Inspect was called %d times", n)
		}
		if w := ask(p, http.MethodGet, "/?key=session/1", nil); !strings.Contains(w.Body.String(), "none of the prefixes") {
			t.Error("the page does not say that it has not looked")
		}
		if w := ask(p, http.MethodPost, "/?key=session/1", url.Values{"print": {"x"}}); w.Code != http.StatusForbidden {
			t.Errorf("a release of it has status %d", w.Code)
		}
		ask(p, http.MethodGet, "/?key=orders/1", nil)
		ask(p, http.MethodGet, "/?key=orders/1", nil)
		if n := store.inspections.Load(); n != 1 {
			t.Errorf("Inspect was called %d times for two looks at once; want 1", n)
		}
	})
}

func TestOnlyAuthorisedPeopleOfTheSameOriginReleaseByForce(t *testing.T) {
	asked := 0
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memory.New()}
		locks := locker.New(fenced.New(store.Store), locker.WithHolder("stuck/1"))
		l, err := locks.Lock(t.Context(), "order/1")
		if err != nil {
			t.Fatal(err)
		}
		authorize := func(r *http.Request) (string, bool) { asked++; return "", r.Header.Get("X-User") == "ann" }
		p := pagelocker.New(pagelocker.WithStore(store), pagelocker.WithRelease(store, authorize))
		state, err := store.Inspect(t.Context(), "order/1")
		if err != nil {
			t.Fatal(err)
		}
		seen := url.Values{"print": {state.Holds[0].Print}}
		for _, c := range []struct {
			name   string
			page   http.Handler
			form   url.Values
			header []string
			status int
			evicts bool
		}{
			{"a page that is read-only", pagelocker.New(pagelocker.WithStore(store)), seen, []string{"X-User", "ann"}, http.StatusForbidden, false},
			{"nobody", p, seen, nil, http.StatusForbidden, false},
			{"another origin", p, seen, []string{"X-User", "ann", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden, false},
			{"another Origin", p, seen, []string{"X-User", "ann", "Origin", "http://evil.example"}, http.StatusForbidden, false},
			{"no print", p, url.Values{}, []string{"X-User", "ann"}, http.StatusBadRequest, false},
			{"another print", p, url.Values{"print": {"0123456789abcdef"}}, []string{"X-User", "ann"}, http.StatusConflict, false},
			{"ann", p, seen, []string{"X-User", "ann", "Sec-Fetch-Site", "same-origin"}, http.StatusSeeOther, true},
		} {
			before := asked
			w := ask(c.page, http.MethodPost, "/?key=order/1", c.form, c.header...)
			state, err := store.Inspect(t.Context(), "order/1")
			if err != nil || w.Code != c.status || len(state.Holds) != 1 || state.Holds[0].Evicted != c.evicts {
				t.Errorf("%s: status %d, and then %+v, %v", c.name, w.Code, state, err)
			}
			if strings.HasPrefix(c.name, "another ") && c.name[8] != 'p' && asked != before {
				t.Errorf("%s: authorize was called", c.name)
			}
		}
		text := mainOf(ask(p, http.MethodGet, "/?key=order/1", nil).Body.String())
		if !strings.Contains(text, "Closed nobody closed after a forced release by the page of locks closed ≥") || strings.Contains(text, "Release by") {
			t.Errorf("the page does not say that nobody holds the key, and why it is closed: %q", text)
		}
		<-l.Context().Done() // it finds out
		if !errors.Is(context.Cause(l.Context()), locker.ErrLost) {
			t.Errorf("the holder ended with %v", context.Cause(l.Context()))
		}
	})
}

// What stands in the audit line of a release by force: who, what and how it went, and no token.
func TestAReleaseByForceIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, tokens := &counted{Store: memory.New()}, &secrets{}
		locks := locker.New(fenced.New(store.Store), locker.WithMiddleware(tokens.watch))
		l, err := locks.Lock(t.Context(), "order/1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Unlock(t.Context())
		state, err := store.Inspect(t.Context(), "order/1")
		if err != nil {
			t.Fatal(err)
		}
		seen := state.Holds[0].Print
		var log bytes.Buffer
		p := pagelocker.New(pagelocker.WithStore(store),
			pagelocker.WithRelease(store, func(r *http.Request) (string, bool) { return "", r.Header.Get("X-User") == "ann" }),
			pagelocker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		for _, c := range []struct{ seen, user, want string }{
			{seen, "bob", "^$"}, // bob may not release
			{"0123456789abcdef", "ann", `level=WARN .*msg="no lock released by force on the page" key=order/1 print=0123456789abcdef now=false remote=192.0.2.1:1234 reason="that hold has ended, `},
			{"", "ann", "^$"}, // there is nothing to do
			{seen, "ann", `level=WARN msg="lock released by force on the page" key=order/1 print=` + seen + ` now=false remote=192.0.2.1:1234\n`},
		} {
			log.Reset()
			ask(p, http.MethodPost, "/?key=order/1", url.Values{"print": {c.seen}}, "X-User", c.user)
			line := log.String()
			if !regexp.MustCompile(c.want).MatchString(line) || strings.Count(line, "\n") > 1 {
				t.Errorf("%s releases %q: %q; want %s", c.user, c.seen, line, c.want)
			}
			for _, token := range tokens.tokens {
				if strings.Contains(line, token) {
					t.Error("a token is in the log")
				}
			}
		}
	})
}

// Without script the page is whole: its times are filled in, it loads itself again, and links and forms
// do the rest.
func TestThePageNeedsNoScript(t *testing.T) {
	play(t, func(s *scene) {
		for n := range 60 {
			defer s.lock(s.here, fmt.Sprintf("order/%02d", n)).Unlock(s.Context())
		}
		s.lock(s.here, "released").Unlock(s.Context())
		time.Sleep(3 * time.Second)
		script := regexp.MustCompile(`(?s)<script.*?</script>`)
		list := script.ReplaceAllString(s.get("/?sort=key").Body.String(), "")
		for _, want := range []string{
			`<noscript><meta http-equiv="refresh" content="2"></noscript>`, // it keeps the query
			`<input type="search" name="q"`, `<select name="sort"`, `<noscript><button>Show</button></noscript>`,
			`<a class="key" href="?key=order%2F07">order/07</a>`, `<a href="?page=2&amp;q=&amp;sort=key" rel="next">`,
			">3.0 s</time>", ">6.9 s</time> left", `width="69.7%"`, // since, left, and the bar
		} {
			if !strings.Contains(list, want) {
				s.Errorf("the list has no %s", want)
			}
		}
		if second := s.get("/?page=2&q=&sort=key").Body.String(); !strings.Contains(second, ">order/59<") || !strings.Contains(second, "free for <time") {
			s.Error("the second page has not the rest of the locks")
		}
		lock := script.ReplaceAllString(s.get("/?key=order/07").Body.String(), "")
		for _, want := range []string{`<a href="?">Locks</a>`, `<form method="post" action="?key=order%2F07">`, `<input type="hidden" name="print" value="`, "<details>"} {
			if !strings.Contains(lock, want) {
				s.Errorf("the page of a lock has no %s", want)
			}
		}
		if regexp.MustCompile(`<time[^>]*></time>`).MatchString(list + lock) {
			s.Error("a time waits for a script")
		}
	}, pagelocker.WithRelease(memory.New(), func(*http.Request) (string, bool) { return "", true }))
}

func TestMetrics(t *testing.T) {
	docs, err := os.ReadFile("../../docs/page.md")
	if err != nil {
		t.Fatal(err)
	}
	play(t, func(s *scene) {
		defer s.lock(s.here, `quo"te`).Unlock(s.Context())
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		l := s.lock(s.here, "lost")
		s.Delete("lost")
		<-l.Context().Done()
		go func() { s.lock(s.here, "order/1").Unlock(s.Context()) }()
		s.report("")
		time.Sleep(time.Second)
		text := s.get("/metrics").Body.String()
		var lines []string
		types := map[string]bool{}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
				types[strings.Fields(name)[0]] = true
			} else if !strings.HasPrefix(line, "#") {
				name := regexp.MustCompile(`^\w+`).FindString(line)
				if !types[name] || !strings.Contains(string(docs), "`"+name) {
					s.Errorf("%s has no type, or is not in docs/page.md", name)
				}
				lines = append(lines, line)
			}
		}
		want := `lockstep_store_up 1
lockstep_store_list_seconds 0
lockstep_rtt_seconds 0
lockstep_store_partial 0
lockstep_finding{problem="eviction",unsafe="true"} 1
lockstep_finding{problem="replicas",unsafe="false"} 2
lockstep_locks{state="held"} 2
lockstep_locks{state="reserved"} 0
lockstep_locks{state="foreign"} 0
lockstep_waiters 1
lockstep_longest_queue 1
lockstep_oldest_hold_seconds 4.2
lockstep_oldest_hold_at_most_seconds 4.2
lockstep_process_holds 1
lockstep_process_waits 1
lockstep_process_acquired_total 2
lockstep_process_lost_total{reason="stolen"} 1
lockstep_key_holds{key="quo\"te"} 1
lockstep_key_holds{key="free"} 0
lockstep_key_waiters{key="quo\"te"} 0
lockstep_key_waiters{key="free"} 0
lockstep_key_oldest_hold_seconds{key="quo\"te"} 4.2
lockstep_key_oldest_hold_seconds{key="free"} 0`
		if got := strings.Join(lines, "\n"); got != want {
			s.Errorf("metrics\n%s\nwant\n%s", got, want)
		}
	}, pagelocker.WithKeyMetrics(`quo"te`, "free"), pagelocker.WithCheck(new(checks).check))
}

// TestContractOfEveryStrategyUnderTheMiddleware also looks for tokens on the page.
func TestContractOfEveryStrategyUnderTheMiddleware(t *testing.T) {
	beneath.Around(t, func(t *testing.T, l locker.Locker) locker.Locker {
		p, s := pagelocker.New(), &secrets{}
		t.Cleanup(func() {
			for _, target := range []string{"/", "/?format=json", "/metrics"} {
				text := ask(p, http.MethodGet, target, nil).Body.String()
				for _, token := range s.tokens {
					if strings.Contains(text, token) {
						t.Errorf("a token is on %s", target)
					}
				}
			}
		})
		return contract.Wrap(l, p.Middleware, s.watch)
	})
}

var _ backends.Evictor = (*counted)(nil)
