package pagelocker_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
)

// checks is a check that counts its calls, and may fail.
type checks struct {
	calls atomic.Int32
	fails atomic.Pointer[error]
	takes time.Duration
}

func (c *checks) check(context.Context) (pagelocker.Check, error) {
	c.calls.Add(1)
	time.Sleep(c.takes)
	if err := c.fails.Load(); err != nil {
		return pagelocker.Check{}, *err
	}
	return pagelocker.Check{
		Server: "Redis 7.0.15", ClockSkew: 3 * time.Millisecond,
		Findings: backends.Findings{
			{Problem: "replicas", Detail: "2 replicas", Consequence: "a failover may forget a lock"},
			{Problem: "eviction", Detail: "maxmemory-policy is <allkeys-lru>", Consequence: "a held lock may be evicted", Unsafe: true},
			{Problem: "replicas", Detail: "no quorum", Consequence: "one server decides"},
		},
		Remedy: func(f backends.Finding) string {
			if f.Problem == "eviction" {
				return "redis-cli CONFIG SET maxmemory-policy noeviction"
			}
			return ""
		},
	}, nil
}

func TestFindingsAreShownWithWhatTheyMeanAndWhatToDo(t *testing.T) {
	c := new(checks)
	play(t, func(s *scene) {
		text := s.get("/?view=store").Body.String()
		at := 0
		for _, part := range []string{
			"unsafe</dd>", "3.00 ms</dd>", "Redis 7.0.15</dd>", "3 findings", // the unsafe one is first
			"maxmemory-policy is &lt;allkeys-lru&gt;", "a held lock may be evicted", "redis-cli CONFIG SET maxmemory-policy noeviction", "2 replicas", "no quorum",
		} {
			i := strings.Index(text[at:], part)
			if i < 0 {
				s.Fatalf("%q is not on the page, or not in its place: %s", part, text[strings.Index(text, "<main"):strings.Index(text, "<footer")])
			}
			at += i
		}
		if text := s.get("/").Body.String(); !strings.Contains(text, "a held lock may be evicted") || !strings.Contains(text, `href="?view=store"`) {
			s.Error("the list does not say that the store is unsafe, and where to read on")
		}
		var r pagelocker.Report
		if err := json.Unmarshal(s.get("/?view=store&format=json").Body.Bytes(), &r); err != nil || r.Store.Health.Findings[0] != (pagelocker.Finding{
			Problem: "eviction", Unsafe: true, Found: "maxmemory-policy is <allkeys-lru>", Meaning: "a held lock may be evicted",
			Remedy: "redis-cli CONFIG SET maxmemory-policy noeviction",
		}) {
			s.Errorf("JSON %+v, %v", r.Store, err)
		}
		if text := s.get("/metrics").Body.String(); !strings.Contains(text, "\nlockstep_finding{problem=\"eviction\",unsafe=\"true\"} 1\nlockstep_finding{problem=\"replicas\",unsafe=\"false\"} 2\n") {
			s.Errorf("metrics %s", text)
		}
	}, pagelocker.WithCheck(c.check))
}

func TestTheStoreIsCheckedOnceAMinuteWhileSomebodyLooks(t *testing.T) {
	c := new(checks)
	play(t, func(s *scene) {
		if time.Sleep(time.Hour); c.calls.Load() != 0 {
			s.Errorf("%d checks before somebody looks", c.calls.Load())
		}
		a, b := s.open("/", false), s.open("/?view=store", false)
		for range 5 * 60 {
			time.Sleep(time.Second)
			s.get("/metrics")
		}
		if n := c.calls.Load(); n < 5 || n > 6 {
			s.Errorf("%d checks in five minutes; want one in a minute", n)
		}
		s.get("/?key=order/1") // needs none
		a.leave()
		b.leave()
		before := c.calls.Load()
		if time.Sleep(time.Hour); c.calls.Load() != before {
			s.Error("the store is checked though nobody looks")
		}
	}, pagelocker.WithCheck(c.check))
}

func TestACheckThatFailsIsTold(t *testing.T) {
	c := new(checks)
	play(t, func(s *scene) {
		b := s.open("/?view=store", false)
		defer b.leave()
		time.Sleep(time.Second)
		if events, _ := b.events(s.T); len(events) == 0 || !events[len(events)-1].has("3 findings") {
			s.Errorf("events %+v; want the findings", events)
		}
		failure := errors.New("NOPERM: no permission for INFO")
		c.fails.Store(&failure)
		time.Sleep(time.Minute)
		events, _ := b.events(s.T)
		if len(events) == 0 || !events[len(events)-1].has("The check failed: NOPERM") || !events[len(events)-1].has("3 findings") {
			s.Errorf("%+v; want the error, and what was found before", events)
		}
		if text := s.get("/metrics").Body.String(); strings.Contains(text, "lockstep_finding") {
			s.Error("the metrics have findings that a check has not confirmed")
		}
		if text := s.get("/").Body.String(); !strings.Contains(text, ">answers</a>") {
			s.Error("the page has a verdict on the store though the check failed")
		}
		c.fails.Store(nil)
		time.Sleep(time.Minute)
		events, _ = b.events(s.T)
		if len(events) == 0 || events[len(events)-1].has("The check failed") {
			s.Errorf("%+v; want no error", events)
		}
	}, pagelocker.WithCheck(c.check))
}

// A check that hangs keeps nobody from the locks.
func TestACheckThatHangsHoldsUpNobody(t *testing.T) {
	c := &checks{takes: 20 * time.Second}
	play(t, func(s *scene) {
		defer s.lock(s.others, "order/1").Unlock(s.Context())
		began := time.Now()
		text := s.get("/").Body.String()
		if took := time.Since(began); took > 2*time.Second || !strings.Contains(text, "others/2") || !strings.Contains(text, ">answers</a>") {
			s.Errorf("the page came after %v, or without the lock", took)
		}
		if text := s.get("/?view=store").Body.String(); !strings.Contains(text, "has not answered yet") {
			s.Error("the page does not say that the check is under way")
		}
		if text := s.get("/metrics").Body.String(); strings.Contains(text, "lockstep_finding") {
			s.Error("there are findings before the check has answered")
		}
		time.Sleep(time.Minute)
	}, pagelocker.WithCheck(c.check))
}

func TestAPageWithoutACheckOrAStoreSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if text := ask(pagelocker.New(), http.MethodGet, "/?view=store", nil).Body.String(); !strings.Contains(text, "has no store") {
			t.Error("a page without a store does not say so")
		}
		if text := ask(pagelocker.New(), http.MethodGet, "/", nil).Body.String(); strings.Contains(text, "view=store") {
			t.Error("a page without a store has a link to it")
		}
		p := pagelocker.New(pagelocker.WithStore(memory.New()))
		if text := ask(p, http.MethodGet, "/?view=store", nil).Body.String(); !strings.Contains(text, "has no check") || !strings.Contains(text, "answers</dd>") {
			t.Error("a page without a check does not say so")
		}
		p = pagelocker.New(pagelocker.WithStore(memory.New()), pagelocker.WithCheck(func(context.Context) (pagelocker.Check, error) {
			return pagelocker.Check{Server: "a server that does not tell its time"}, nil
		}))
		if text := mainOf(ask(p, http.MethodGet, "/?view=store", nil).Body.String()); !strings.Contains(text, "a server that") || strings.Contains(text, "clock") {
			t.Errorf("a page whose check does not know the clock shows %q", text)
		}
	})
}
