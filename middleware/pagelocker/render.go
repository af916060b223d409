package pagelocker

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed page.html
var pageText string

func parsed(color func(label string, here bool) string) *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"color": color, "ms": time.Time.UnixMilli, "number": thousands, "cause": causeText, "trip": trip,
	}).Parse(pageText))
}

// sheet is what page.html shows.
type sheet struct {
	Report
	Nonce, Notice, Last string
	Query               query
	Rows                []row
	Refresh             int // seconds, without script
	Release             bool
	color               func(label string, here bool) string
	at                  time.Time // zero: the script fills the clocks in
}

// row is a Lock on the page. Clocks are instants in the HTML of an event, so that it changes only
// if the lock does.
type row struct {
	*Lock
	sheet *sheet
}

// ID names the row in the HTML, whatever the key is.
func (r row) ID() string {
	sum := sha256.Sum256([]byte(r.Key)) // nobody finds two keys with one name
	return "r-" + hex.EncodeToString(sum[:12])
}

// Link leads to the page of the lock, from any page.
func (r row) Link() string { return "?key=" + url.QueryEscape(r.Key) }

// First is the hold that a row has room for.
func (r row) First() *Hold {
	if len(r.Holds) == 0 {
		return nil
	}
	return &r.Holds[0]
}

// Pair is what the bar of a lease needs.
func (r row) Pair(h any) map[string]any {
	if p, ok := h.(*Hold); ok {
		h = *p
	}
	return map[string]any{"Row": r, "Hold": h}
}

// Ended is since when the key is free; nil: nobody knows. An eviction may have kept it closed.
func (r row) Ended() *time.Time {
	last := len(r.History) - 1
	if last < 0 || r.History[last].Cause == forced {
		return nil
	}
	return &r.History[last].Until
}

// Unknown reports whether the store has told nothing.
func (r row) Unknown() bool { return r.sheet.Unknown }

// More is how many holds a row has no room for.
func (r row) More() int { return max(r.Holding-1, 0) }

// Release reports whether the page has a button.
func (r row) Release() bool { return r.sheet.Release }

// A bar is a hold on the timeline, in units of 100 ms from its base.
type bar struct {
	X, Width             float64
	Y, Height            float64 // of a strip that is 10 high
	Holder, Color, Title string
	Lost, Now            bool
}

// Foot is where the mark of a loss begins.
func (b bar) Foot() float64 { return b.Y + b.Height - 1.5 }

const forever = 1e6 // a bar that has no end yet; the timeline ends at the present

// base is zero of the timelines. It is never far away, since browsers draw with 24 bits.
func base(now time.Time) time.Time { return now.Truncate(12 * time.Hour) }

func units(d time.Duration) float64 { return float64(d.Milliseconds()) / 100 }

// Bars are the history and the holds, as far as a timeline shows them. Those that were there together
// are below each other.
func (r row) Bars() (bars []bar) {
	zero := base(r.sheet.Now)
	for _, p := range r.History {
		if r.sheet.Now.Sub(p.Until) > window+time.Minute {
			continue
		}
		title := fmt.Sprintf("%s, %s, %s", named(p.Holder, p.Here), p.Length(), causeText(p.Cause))
		if p.Times > 1 {
			title += fmt.Sprintf(", %d holds", p.Times)
		}
		bars = append(bars, bar{
			X: units(p.Since.Sub(zero)), Width: max(units(p.Until.Sub(p.Since)), 6), Color: r.sheet.color(p.Holder, p.Here), Title: title,
			Lost: p.Lost(),
		})
	}
	for _, h := range r.Holds {
		b := bar{X: units(h.Since.Sub(zero)), Width: forever, Color: r.sheet.color(h.Holder, h.Here), Title: named(h.Holder, h.Here), Now: true}
		if h.Evicted {
			b.Color, b.Title = "cx", "closed after a forced release"
		}
		bars = append(bars, b)
	}
	return lanes(bars)
}

const (
	maxLanes = 4
	slack    = 30 // in units of a timeline: the begin and the end of a hold of others are as exact as the interval
)

// lanes puts bars beside each other, as far as there is room.
func lanes(bars []bar) []bar {
	slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(a.X, b.X) })
	var ends []float64 // by lane
	lane := make([]int, len(bars))
	for i, b := range bars {
		n := slices.IndexFunc(ends, func(end float64) bool { return end-slack <= b.X })
		switch {
		case n >= 0:
		case len(ends) < maxLanes:
			n, ends = len(ends), append(ends, 0)
		default:
			n = slices.Index(ends, slices.Min(ends))
		}
		ends[n], lane[i] = max(ends[n], b.X+b.Width), n
	}
	each := 8 / float64(max(len(ends), 1))
	for i := range bars {
		bars[i].Y, bars[i].Height = 1+each*float64(lane[i]), each
	}
	return bars
}

// Box is the part of the timeline that the page shows when it is loaded.
func (r row) Box() string {
	if r.sheet.at.IsZero() {
		return "0 0 0 0" // the script knows better
	}
	return fmt.Sprintf("%g 0 %g 10", units(r.sheet.Now.Sub(base(r.sheet.Now))-window), units(window))
}

// Since is how long ago t was. In an event it is empty, and the script fills it in.
func (r row) Since(t time.Time) string {
	if r.sheet.at.IsZero() {
		return ""
	}
	return short(r.sheet.at.Sub(t))
}

// Left is the time until t, as Since.
func (r row) Left(t time.Time) string {
	if r.sheet.at.IsZero() {
		return ""
	}
	return short(t.Sub(r.sheet.at))
}

// Percent is how much of a lease is left.
func (r row) Percent(h Hold) string {
	if r.sheet.at.IsZero() || h.Lease <= 0 {
		return "100%"
	}
	return fmt.Sprintf("%.1f%%", 100*min(max(h.Expires.Sub(r.sheet.at).Seconds()/h.Lease.Seconds(), 0), 1))
}

// Latest is the history, the last one to end first.
func (r row) Latest() []Past {
	latest := make([]Past, 0, len(r.History))
	for i := len(r.History) - 1; i >= 0; i-- {
		latest = append(latest, r.History[i])
	}
	return latest
}

// Lost reports whether a holder may have lost the key in the midst of its work.
func (p Past) Lost() bool { return p.Cause != "released" && p.Cause != "gone" && p.Cause != closed }

// Length is how long it lasted.
func (p Past) Length() string {
	text := short(p.Until.Sub(p.Since))
	if p.Seen {
		text = "≥ " + text
	}
	if !p.Earliest.IsZero() {
		text += ", ≤ " + short(p.Until.Sub(p.Earliest))
	}
	return text
}

// short is a duration as the script writes it.
func short(d time.Duration) string {
	s := max(d.Seconds(), 0)
	switch {
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 60:
		return fmt.Sprintf("%.0f s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", int(s)/60, int(s)%60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", int(s)/3600, int(s)/60%60)
	}
	return fmt.Sprintf("%d days", int(s)/86400)
}

// trip is a duration that is not rounded to tenths of a second.
func trip(d time.Duration) string {
	switch d = d.Abs(); {
	case d >= 10*time.Second:
		return short(d)
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
}

// named is a holder for people.
func named(label string, here bool) string {
	switch {
	case label != "":
		return label
	case here:
		return "this process"
	}
	return "no name"
}

// colors gives each holder a color. The first ones get different ones.
type colors struct {
	mu    sync.Mutex
	known map[string]int
}

const (
	hues      = 10   // c1 to c10; c0 is this process, if it has no name
	maxColors = 1000 // holders that are remembered
)

// of is the class of a holder: the same on every page.
func (c *colors) of(label string, here bool) string {
	switch {
	case label == "" && here:
		return "c0"
	case label == "":
		return "cx"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.known[label]
	if !ok && len(c.known) < maxColors {
		n = len(c.known)
		c.known[label] = n
	}
	return "c" + strconv.Itoa(1+n%hues)
}

func causeText(cause string) string {
	switch cause {
	case "released":
		return "released"
	case "gone":
		return "ended"
	case forced:
		return "ended by force"
	case closed:
		return "kept closed after a forced release"
	case "max_hold":
		return "lost: held as long as allowed"
	}
	return "lost: " + cause
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

// sheet prepares a report for the template.
func (p *Page) sheet(q query, r Report) *sheet {
	s := &sheet{Report: r, Query: q, color: p.colors.of, Release: p.evictor != nil && p.authorize != nil, Refresh: max(int(p.interval.Seconds()), 2)}
	for _, l := range r.Locks {
		s.Rows = append(s.Rows, row{l, s})
	}
	return s
}

func (p *Page) page(to io.Writer, nonce string, q query, r Report, seq uint64, notice string) error {
	s := p.sheet(q, r)
	s.Nonce, s.Notice, s.Last, s.at = nonce, notice, fmt.Sprintf("%s-%d", p.boot, seq), r.Now
	return p.template.Execute(to, s)
}

// parts are the pieces of the page that an event replaces, by their ids.
func (p *Page) parts(q query, r Report) (order []string, parts map[string]string, err error) {
	s := p.sheet(q, r)
	parts = map[string]string{}
	part := func(id, name string, data any) {
		var b strings.Builder
		if e := p.template.ExecuteTemplate(&b, name, data); e != nil {
			err = e
		}
		parts[id] = b.String()
	}
	part("sum", "sum", s)
	if q.store {
		part("health", "health", s)
		return nil, parts, err
	}
	if q.key != "" {
		for _, name := range []string{"strip", "holds", "force", "queue", "history"} {
			part(name, name, s.Rows[0])
		}
		return nil, parts, err
	}
	part("pages", "pages", s)
	order = []string{}
	for _, row := range s.Rows {
		id := row.ID()
		order = append(order, id)
		part(id, "row", row)
	}
	return order, parts, err
}

// Base is zero of the timelines, for the script.
func (s *sheet) Base() int64 { return base(s.Now).UnixMilli() }

// Sorts are the orders that a person can choose.
func (s *sheet) Sorts() []string { return sorts }

// Ago is how long ago t was. In an event it is empty, and the script fills it in.
func (s *sheet) Ago(t time.Time) string { return row{sheet: s}.Since(t) }

// Count is a number of holds. This process alone does not know them all.
func (s *sheet) Count(n int) string { return atLeast(n, s.Unknown) }

// Waits is a number of waiters. A store without a queue does not know them.
func (s *sheet) Waits() string { return atLeast(s.Waiting, s.Unknown || s.Others) }

// atLeast is a number that may be greater, if there are others.
func atLeast(n int, others bool) string {
	switch {
	case !others:
		return thousands(n)
	case n == 0:
		return "not known"
	}
	return "≥ " + thousands(n)
}

// Verdict is a word for the store.
func (s *sheet) Verdict() string {
	switch h := s.Store.Health; {
	case s.Store.Error != "" || s.Store.Read.IsZero():
		return "no answer"
	case h == nil || h.Checked.IsZero() || h.Error != "":
		return "answers"
	case len(h.Unsafe()) > 0:
		return "unsafe"
	case len(h.Findings) > 0:
		return "warnings"
	}
	return "fit"
}

// Text, Sort, Key and Store are what is looked at.
func (q query) Store() bool  { return q.store }
func (q query) Text() string { return q.text }
func (q query) Sort() string { return q.sort }
func (q query) Key() string  { return q.key }

// To is the query of another page of the list.
func (s *sheet) To(page int) string {
	return "?" + url.Values{"q": {s.Query.text}, "sort": {s.Query.sort}, "page": {strconv.Itoa(page)}}.Encode()
}

// Before and After are the numbers of the pages beside this one; 0: there is none.
func (s *sheet) Before() int { return s.Page - 1 }
func (s *sheet) After() int  { return (s.Page + 1) % (s.Pages + 1) } // 0 after the last
