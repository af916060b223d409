package pagelocker

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	perPage = 50
	window  = 5 * time.Minute // of the timeline
)

// query is what a person looks at.
type query struct {
	text, sort, key string
	page            int // from 1
}

func queryOf(r *http.Request) query {
	form := r.URL.Query()
	cut := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), 600)], "") }
	q := query{text: cut(form.Get("q")), sort: form.Get("sort"), key: cut(form.Get("key"))}
	q.page, _ = strconv.Atoi(form.Get("page"))
	q.page = min(max(q.page, 1), maxKeys)
	if !slices.Contains(sorts, q.sort) {
		q.sort = sorts[0]
	}
	if q.key != "" {
		return query{key: q.key, sort: sorts[0], page: 1}
	}
	return q
}

var sorts = []string{"waiters", "key", "age", "left"}

// Report is what one page shows, as JSON.
type Report struct {
	Now     time.Time `json:"now"`
	Store   *Source   `json:"store,omitempty"` // missing: only this process is shown
	Held    int       `json:"held"`            // keys
	Waiting int       `json:"waiting"`
	Found   int       `json:"found"` // locks that ?q= finds
	Page    int       `json:"page"`
	Pages   int       `json:"pages"`
	Locks   []*Lock   `json:"locks"`
}

// Source says how the store answered.
type Source struct {
	Read    time.Time `json:"read,omitzero"` // when it was asked for what is shown
	Error   string    `json:"error,omitempty"`
	Partial bool      `json:"partial,omitempty"` // there are more keys than one look finds
}

// locks is all that is known now, and how the store answered.
func (p *Page) locks() (all []*Lock, source *Source) {
	p.polls.mu.Lock()
	listed, last := p.polls.locks, p.polls.list
	if p.store != nil {
		source = &Source{Read: last.began, Partial: p.polls.partial}
		if last.err != nil {
			source.Error = last.err.Error()
		}
	}
	p.polls.mu.Unlock()
	all = make([]*Lock, 0, len(listed))
	r := &p.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.byKey {
		all = append(all, k.merge(listed[k.key]))
	}
	for key, l := range listed {
		if r.byKey[key] == nil {
			all = append(all, l)
		}
	}
	return all, source
}

// merged is the last answer of locks.
type merged struct {
	mu     sync.Mutex
	at     time.Time
	took   time.Duration
	all    []*Lock
	source *Source
}

// recent is locks for those who load the page. They may come as often as they like, so it takes at most
// a tenth of the time, and its answer may be nine times as old as it took to make it.
func (p *Page) recent() (all []*Lock, source *Source) {
	m := &p.merged
	m.mu.Lock()
	defer m.mu.Unlock()
	if began := time.Now(); m.at.IsZero() || began.Sub(m.at) >= 9*m.took {
		m.all, m.source = p.locks()
		m.at = time.Now()
		m.took = m.at.Sub(began)
	}
	return m.all, m.source
}

// one is what is known of a key.
func (p *Page) one(key string) (l *Lock, source *Source) {
	p.polls.mu.Lock()
	if p.store != nil {
		source = new(Source)
	}
	if i := p.polls.inspections[key]; i != nil {
		l = i.lock
		if source.Read = i.began; i.err != nil {
			source.Error = i.err.Error()
		}
	}
	p.polls.mu.Unlock()
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	if k := p.registry.byKey[key]; k != nil {
		return k.merge(l), source
	}
	if l == nil {
		l = &Lock{Key: key, State: "free"}
	}
	return l, source
}

// report is what q shows of all locks.
func (p *Page) report(q query, now time.Time, all []*Lock, source *Source) Report {
	if q.key != "" {
		l, source := p.one(q.key)
		r := Report{Now: now, Store: source, Waiting: l.Waiting, Found: 1, Page: 1, Pages: 1, Locks: []*Lock{l}}
		if l.State != "free" {
			r.Held = 1
		}
		return r
	}
	r := Report{Now: now, Store: source}
	text := strings.ToLower(q.text)
	found := all[:0:0]
	for _, l := range all {
		if l.State != "free" {
			r.Held++
		}
		r.Waiting += l.Waiting
		recent := len(l.History) > 0 && now.Sub(l.History[len(l.History)-1].Until) < window
		if (l.State != "free" || l.Waiting > 0 || recent) && l.matches(text) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, order(q.sort))
	r.Found = len(found)
	r.Pages = max((len(found)+perPage-1)/perPage, 1)
	r.Page = min(q.page, r.Pages)
	r.Locks = found[(r.Page-1)*perPage : min(r.Page*perPage, len(found))]
	return r
}

// order compares two locks. Free ones are last, and the key decides between equals.
func order(by string) func(a, b *Lock) int {
	free := func(l *Lock) int {
		if l.State == "free" && l.Waiting == 0 {
			return 1
		}
		return 0
	}
	first := func(a, b *Lock) int { return 0 }
	switch by {
	case "waiters":
		first = func(a, b *Lock) int { return cmp.Compare(b.Waiting, a.Waiting) }
	case "age":
		first = func(a, b *Lock) int { return a.age().Compare(b.age()) }
	case "left":
		left := func(l *Lock) (t time.Time) {
			if len(l.Holds) > 0 {
				t = l.Holds[0].Expires
			}
			return t
		}
		first = func(a, b *Lock) int { return left(a).Compare(left(b)) }
	}
	return func(a, b *Lock) int {
		return cmp.Or(cmp.Compare(free(a), free(b)), first(a, b), cmp.Compare(a.Key, b.Key))
	}
}

// view is what all browsers with one query are shown.
type view struct {
	viewers map[chan struct{}]bool
	used    time.Time // when the last viewer came or left
	parts   map[string]part
	order   []string
	ordered uint64 // when order changed
}

// part is a piece of HTML with an id, and when it changed.
type part struct {
	html string
	seq  uint64
}

// take replaces the parts of a view, and reports whether something has changed.
func (v *view) take(order []string, parts map[string]string, seq uint64) (changed bool) {
	next := make(map[string]part, len(parts))
	for id, html := range parts {
		old, there := v.parts[id]
		if !there || old.html != html {
			old, changed = part{html, seq}, true
		}
		next[id] = old
	}
	if !slices.Equal(order, v.order) {
		v.order, v.ordered, changed = order, seq, true
	}
	v.parts = next
	return changed
}

// since is what has changed after seq.
func (v *view) since(seq uint64) (parts map[string]string, order []string) {
	parts = map[string]string{}
	for id, part := range maps.All(v.parts) {
		if part.seq > seq {
			parts[id] = part.html
		}
	}
	if v.ordered > seq {
		order = v.order
	}
	return parts, order
}
