package pagelocker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	pace       = 250 * time.Millisecond // between two events
	gather     = 20 * time.Millisecond  // for what changes together, such as a wait that ends with a hold
	comment    = 15 * time.Second       // so that proxies keep a quiet stream
	writeLimit = 10 * time.Second       // for one event: a stream that takes none is dropped
	viewLife   = time.Minute            // of a view that nobody has, for a browser that comes back
)

// streams are the browsers that get events, by what they look at.
type streams struct {
	mu    sync.Mutex
	views map[query]*view
	open  int
	seq   uint64             // of the last change of any view
	stop  context.CancelFunc // of the loop; nil: it does not run
}

// now is the number of the last change.
func (s *streams) now() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq
}

// join adds a viewer to the view of q. It starts the loop for the first one. The channel has a
// value when the view has changed.
func (p *Page) join(q query) (*view, chan struct{}, bool) {
	s := &p.streams
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= p.maxStreams {
		return nil, nil, false
	}
	now := time.Now()
	s.forget(now, q, 2*p.maxStreams)
	v := p.view(q, now)
	news := make(chan struct{}, 1)
	v.viewers[news] = true
	if v.parts != nil { // it may have what the browser has not
		news <- struct{}{}
	}
	if s.open++; s.open == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		s.stop = cancel
		p.looking.Store(true)
		go p.loop(ctx)
	}
	p.changed()
	return v, news, true
}

// forget makes room for the view of q: it drops the views that nobody has, those that are old and, if
// there are too many, the one that has been unused for longest.
func (s *streams) forget(now time.Time, q query, most int) {
	var oldest query
	var unused *view
	for other, v := range s.views {
		switch {
		case len(v.viewers) > 0 || other == q:
		case now.Sub(v.used) > viewLife:
			delete(s.views, other)
		case unused == nil || v.used.Before(unused.used):
			oldest, unused = other, v
		}
	}
	if s.views[q] == nil && len(s.views) >= most && unused != nil {
		delete(s.views, oldest)
	}
}

// view returns the view of q, and makes it if there is none. The mutex must be held.
func (p *Page) view(q query, now time.Time) *view {
	v := p.streams.views[q]
	if v == nil {
		v = &view{viewers: map[chan struct{}]bool{}}
		p.streams.views[q] = v
	}
	v.used = now
	return v
}

func (p *Page) leave(v *view, news chan struct{}) {
	s := &p.streams
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(v.viewers, news)
	v.used = time.Now()
	if s.open--; s.open == 0 {
		p.looking.Store(false)
		s.stop()
	}
}

// loop makes the views new after each change, at most 4 times a second, and asks the store once per
// interval.
func (p *Page) loop(ctx context.Context) {
	poll := time.NewTicker(p.interval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			p.refreshAll()
			p.changed() // the history moves on without an event
			continue
		case <-p.dirty:
		}
		if !pause(ctx, gather) {
			return
		}
		select {
		case <-p.dirty:
		default:
		}
		began := time.Now()
		p.renew(began)
		// At most a tenth of one CPU, however many locks and views there are.
		if !pause(ctx, max(pace-gather, 9*time.Since(began))) {
			return
		}
	}
}

// pause is false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (p *Page) refreshAll() {
	p.streams.mu.Lock()
	defer p.streams.mu.Unlock()
	for q, v := range p.streams.views {
		if len(v.viewers) > 0 {
			p.refresh(q)
		}
	}
}

// renew makes all views that somebody has, and wakes those whose view has changed.
func (p *Page) renew(now time.Time) {
	s := &p.streams
	s.mu.Lock()
	views := map[query]*view{}
	for q, v := range s.views {
		if len(v.viewers) > 0 {
			views[q] = v
		}
	}
	s.mu.Unlock()
	k := p.known(now)
	for q, v := range views {
		order, parts, err := p.parts(q, p.report(q, now, k))
		if err != nil {
			continue // a template that fails for these values: the page itself says so
		}
		s.mu.Lock()
		if v.take(order, parts, s.seq+1) {
			s.seq++
			for news := range v.viewers {
				select {
				case news <- struct{}{}:
				default:
				}
			}
		}
		s.mu.Unlock()
	}
}

// event is the data of an event.
type event struct {
	Now   int64             `json:"now"`   // ms since 1970, by the clock of this process
	Base  int64             `json:"base"`  // zero of the timelines
	Order []string          `json:"order"` // nil: as before
	Parts map[string]string `json:"parts,omitempty"`
}

// stream sends what changes until the browser leaves.
func (p *Page) stream(w http.ResponseWriter, r *http.Request, q query) {
	p.refresh(q)
	v, news, ok := p.join(q)
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("there are %d streams already: load the page again instead", p.maxStreams), http.StatusServiceUnavailable)
		return
	}
	defer p.leave(v, news)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx
	to := http.NewResponseController(w)
	if err := to.Flush(); errors.Is(err, http.ErrNotSupported) {
		http.Error(w, "a middleware around this page can't flush: give its ResponseWriter an Unwrap", http.StatusNotImplemented)
		return
	}
	seq := p.seen(r)
	quiet := time.NewTicker(comment)
	defer quiet.Stop()
	for {
		text := ": nothing new\n\n"
		select {
		case <-r.Context().Done():
			return
		case <-p.closed:
			return
		case <-quiet.C:
		case <-news:
			text = p.news(v, &seq)
		}
		if err := to.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return
		}
		if to.Flush() != nil {
			return
		}
	}
}

// news is the event that brings a browser from seq to now.
func (p *Page) news(v *view, seq *uint64) string {
	now := time.Now()
	p.streams.mu.Lock()
	parts, order := v.since(*seq)
	*seq = p.streams.seq
	p.streams.mu.Unlock()
	data, _ := json.Marshal(event{now.UnixMilli(), base(now).UnixMilli(), order, parts}) // strings and numbers
	return fmt.Sprintf("id: %s-%d\ndata: %s\n\n", p.boot, *seq, data)
}

// seen is the last event that a browser has, of this Page; 0: none. It has come back, or it has
// loaded the page.
func (p *Page) seen(r *http.Request) uint64 {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("last")
	}
	number, ours := strings.CutPrefix(id, p.boot+"-")
	seq, err := strconv.ParseUint(number, 10, 64)
	if !ours || err != nil {
		return 0
	}
	return seq
}
