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
	page            int  // from 1
	store           bool // how the store is
}

func queryOf(r *http.Request) query {
	form := r.URL.Query()
	cut := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), 600)], "") }
	q := query{text: cut(form.Get("q")), sort: form.Get("sort"), key: cut(form.Get("key"))}
	if form.Get("view") == "store" {
		return query{store: true, sort: sorts[0], page: 1}
	}
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
	Store   *Source   `json:"store,omitempty"`   // missing: only this process is shown
	Unknown bool      `json:"unknown,omitempty"` // the store has told nothing: all that follows is of this process alone
	Held    int       `json:"held"`              // keys
	Waiting int       `json:"waiting"`
	Others  bool      `json:"others,omitempty"` // others may wait too: the store can't tell how many
	Found   int       `json:"found"`            // locks that ?q= finds
	Page    int       `json:"page"`
	Pages   int       `json:"pages"`
	Locks   []*Lock   `json:"locks"`
}

// Source says how the store answered.
type Source struct {
	Read    time.Time `json:"read,omitzero"` // when it was asked for what is shown
	Error   string    `json:"error,omitempty"`
	Unasked string    `json:"unasked,omitempty"` // why it was not asked for a key
	Partial bool      `json:"partial,omitempty"` // there are more keys than one look finds

	RoundTrip time.Duration `json:"round_trip_ns,omitempty"` // the last one that was measured
	Listed    time.Duration `json:"list_ns,omitempty"`       // how long it took to list the locks
	Health    *Health       `json:"health,omitempty"`        // missing: the page has no check
}

// known is all that is known at one instant.
type known struct {
	at, asked time.Time // when it was put together, and when the store was last asked
	seq       uint64    // of the last change of any view before it
	all       []*Lock
	source    *Source // how the store answered; nil: there is none
	whole     bool    // the store has listed all its locks under the prefixes
}

// merged is what was last known.
type merged struct {
	mu   sync.Mutex
	last known
	took time.Duration
}

// recent is for those who load the page. They may come as often as they like: no more than 4 times a
// second, and in a tenth of the time, what they get is put together anew. An answer of the store is not
// kept from them. For one key it has nothing but seq: see one.
func (p *Page) recent(q query) known {
	if q.key != "" {
		return known{seq: p.streams.now()}
	}
	m := &p.merged
	m.mu.Lock()
	defer m.mu.Unlock()
	p.polls.mu.Lock()
	asked := p.polls.list.began
	p.polls.mu.Unlock()
	if now := time.Now(); m.last.at.IsZero() || !asked.Equal(m.last.asked) || now.Sub(m.last.at) >= max(pace, 10*m.took) {
		m.last = p.known(now)
		m.took = time.Since(now)
	}
	return m.last
}

// known puts together what is known now.
func (p *Page) known(now time.Time) known {
	k := known{at: now, seq: p.streams.now()} // before the locks are read, so that no change is missed
	p.polls.mu.Lock()
	listed, read := p.polls.locks, p.polls.read
	k.asked, k.whole = p.polls.list.began, p.polls.whole()
	if p.store != nil {
		k.source = source(read, p.polls.list.err)
		k.source.Partial, k.source.RoundTrip, k.source.Listed = p.polls.partial, p.polls.trip, p.polls.list.took
		if p.check != nil {
			health := p.polls.health
			k.source.Health = &health
		}
	}
	p.polls.mu.Unlock()
	r := &p.registry
	r.mu.Lock()
	keys := make([]string, 0, len(r.byKey)+len(listed))
	keys = slices.AppendSeq(keys, maps.Keys(r.byKey))
	r.mu.Unlock()
	keys = slices.AppendSeq(keys, maps.Keys(listed))
	slices.Sort(keys)
	k.all = make([]*Lock, 0, len(keys))
	over := map[[8]byte]bool{}
	for some := range slices.Chunk(slices.Compact(keys), 256) { // so that no Lock or Unlock of this process waits for long
		r.mu.Lock()
		r.over(over, read)
		read = time.Now()
		for _, key := range some {
			k.all = append(k.all, r.merge(key, listed[key], over, p.tells(key, k.whole)))
		}
		r.mu.Unlock()
	}
	return k
}

func source(read time.Time, err error) *Source {
	s := &Source{Read: read}
	if err != nil {
		s.Error = err.Error()
	}
	return s
}

// tells reports whether a key is free if the list does not have it. whole is that of the list.
func (p *Page) tells(key string, whole bool) bool {
	return p.store == nil || whole && p.covers(key)
}

// one is what is known of a key. told is false if the store has told nothing.
func (p *Page) one(key string) (l *Lock, from *Source, told bool) {
	mayAsk := p.store != nil && p.mayAsk(key)
	p.polls.mu.Lock()
	switch i := p.polls.inspections[key]; {
	case p.store == nil:
		told = true
	case !mayAsk:
		from = &Source{Unasked: "the key has none of the prefixes that this page is for"}
	case i != nil:
		l, from = i.lock, source(time.Time{}, i.err)
		told = l != nil
	default:
		l, from = p.polls.locks[key], source(p.polls.read, p.polls.list.err)
		if told = l != nil || p.tells(key, p.polls.whole()); !told {
			from.Unasked = "too many other keys are looked at: load the page again in a moment"
		}
	}
	p.polls.mu.Unlock()
	var read time.Time
	if l != nil {
		from.Read, read = l.read, l.read
	}
	r := &p.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	over := map[[8]byte]bool{}
	if l != nil { // all prints since ever would hold up each Lock and Unlock
		r.over(over, read)
	}
	return r.merge(key, l, over, told), from, told
}

// report is what q shows. It needs what is known of all locks, unless q is for one.
func (p *Page) report(q query, now time.Time, k known) Report {
	if q.key != "" {
		l, source, told := p.one(q.key)
		r := Report{Now: now, Store: source, Unknown: !told, Waiting: l.Waiting, Others: l.Others, Found: 1, Page: 1, Pages: 1, Locks: []*Lock{l}}
		if l.taken() {
			r.Held = 1
		}
		return r
	}
	all := k.all
	r := Report{Now: now, Store: k.source, Unknown: k.source != nil && k.source.Read.IsZero()}
	text := strings.ToLower(q.text)
	found := all[:0:0]
	for _, l := range all {
		if l.taken() {
			r.Held++
		}
		r.Waiting += l.Waiting
		r.Others = r.Others || l.Others
		recent := len(l.History) > 0 && now.Sub(l.History[len(l.History)-1].Until) < window
		if (l.taken() || l.Waiting > 0 || recent) && l.matches(text) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, order(q.sort))
	r.Found = len(found)
	r.Pages = max((len(found)+perPage-1)/perPage, 1)
	if q.store {
		return r
	}
	r.Page = min(q.page, r.Pages)
	r.Locks = found[(r.Page-1)*perPage : min(r.Page*perPage, len(found))]
	return r
}

// order compares two locks. Those that are not taken are last, and the key decides between equals.
func order(by string) func(a, b *Lock) int {
	free := func(l *Lock) int {
		if !l.taken() && l.Waiting == 0 {
			return 1
		}
		return 0
	}
	first := func(a, b *Lock) int { return 0 }
	switch by {
	case "waiters":
		first = func(a, b *Lock) int { return cmp.Compare(b.Waiting, a.Waiting) }
	case "age":
		first = func(a, b *Lock) int { return a.begin().Compare(b.begin()) }
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
