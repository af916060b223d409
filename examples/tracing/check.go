package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// check compares what was collected with what was to happen: every span in its place, no two holds at once, and metrics that
// count the same.
func check(requests []*request, seen telemetry) error {
	c := &checker{seen: seen}
	w := arrange(seen.Spans)
	if n := w.overlaps(); n > 0 {
		c.wrong("%d holds overlap", n)
	}
	if n := len(seen.Spans) - len(w.rows); n != 0 {
		c.wrong("%d spans are below one that is missing", n)
	}
	outcomes := map[string]int{}
	for _, r := range requests {
		c.trace(r)
		outcomes[r.outcome()]++
	}
	held := outcomes["acquired"] + outcomes["lost"]
	c.count(acquireDuration, "lock.outcome=acquired", held)
	c.count(acquireDuration, "lock.outcome=busy", outcomes["busy"])
	c.count(acquireDuration, "lock.outcome=timeout", outcomes["timeout"])
	c.count("lock.hold.duration", "", held)
	c.count("lock.losses", "", outcomes["lost"])
	c.count("lock.held", "", 0)
	c.count("lock.waiting", "", 0)
	if e, ok := slowest(seen.Points); !ok || w.root(e.Trace) == "" {
		c.wrong("the exemplar of %s leads to no trace", acquireDuration)
	}
	return errors.Join(c.all...)
}

// outcome is what becomes of the lock that r asks for.
func (r *request) outcome() string {
	return map[int]string{
		http.StatusOK: "acquired", http.StatusConflict: "busy", http.StatusServiceUnavailable: "timeout",
		http.StatusInternalServerError: "lost",
	}[r.answer]
}

type checker struct {
	seen telemetry
	all  []error
}

func (c *checker) wrong(format string, args ...any) {
	c.all = append(c.all, fmt.Errorf(format, args...))
}

// trace follows a request from the driver down to the lock, and tells the first thing that is wrong.
func (c *checker) trace(r *request) {
	before := len(c.all)
	defer func() { c.all = c.all[:min(len(c.all), before+1)] }()
	root := c.only(r, span{}, r.name)
	handler := c.only(r, root, "POST /")
	if handler.Service != r.to.Service || handler.Attributes["http.response.status_code"] != strconv.Itoa(r.answer) {
		c.wrong("%s was answered by %q with %v", r.name, handler.Service, handler.Attributes)
	}
	acquire := c.only(r, handler, "lock acquire")
	if n := len(c.below(acquire, "lock acquire")); strconv.Itoa(n) != acquire.Attributes["lock.attempts"] {
		c.wrong("%s has %d spans of attempts, and says %q", r.name, n, acquire.Attributes["lock.attempts"])
	}
	outcome, holds := acquire.Attributes["lock.outcome"], c.below(handler, "lock hold")
	if r.outcome() == "lost" && outcome == "acquired" && len(holds) == 1 {
		outcome = "lost"
		c.loss(r, acquire, holds[0])
	}
	if outcome != r.outcome() {
		c.wrong("%s: the outcome is %q, want %s", r.name, outcome, r.outcome())
	}
	if outcome == "busy" || outcome == "timeout" {
		if len(holds) != 0 {
			c.wrong("%s has %d holds", r.name, len(holds))
		}
		return
	}
	c.only(r, c.only(r, handler, "lock hold"), "work")
	if outcome == "acquired" {
		c.only(r, handler, "lock release")
	}
}

func (c *checker) loss(r *request, acquire, hold span) {
	if reason := hold.Attributes["lock.lost.reason"]; reason != "stolen" || !hold.Failed {
		c.wrong("%s: the lock is lost because it was %q, want stolen. Was this machine too slow? Try a longer -ttl", r.name, reason)
	}
	for _, s := range c.seen.Spans {
		if s.Name == "lock renew" && s.linked() && s.Link == acquire.ID {
			return
		}
	}
	c.wrong("%s: no lock renew is linked to its lock acquire", r.name)
}

// below are the children of that name; those of no span are roots.
func (c *checker) below(parent span, name string) (found []span) {
	for _, s := range c.seen.Spans {
		if s.Name == name && s.Parent == parent.ID && (s.Trace == parent.Trace || parent.ID == "") {
			found = append(found, s)
		}
	}
	return found
}

func (c *checker) only(r *request, parent span, name string) span {
	found := c.below(parent, name)
	if len(found) != 1 {
		c.wrong("%s has %d spans %q below %q, want 1", r.name, len(found), name, parent.Name)
		return span{ID: "missing"}
	}
	return found[0]
}

func (c *checker) count(name, attribute string, want int) {
	n, known := 0, false
	for _, p := range c.seen.Points {
		if p.Name == name && strings.Contains(p.Attributes, attribute) {
			n, known = n+int(p.Value)+int(p.Count), true //nolint:gosec // there are few
		}
	}
	if n != want || !known {
		c.wrong("%s{%s} is %d, want %d", name, attribute, n, want)
	}
}
