package pagelocker_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

// scene is a Page, a Client that feeds it, and one of another process.
type scene struct {
	*testing.T
	*counted
	page         *pagelocker.Page
	here, others *locker.Client
}

// play runs do in fake time. It fails if a goroutine is left at its end.
func play(t *testing.T, do func(s *scene), opts ...pagelocker.Option) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, counted: &counted{Store: memory.New()}}
		s.page = pagelocker.New(append([]pagelocker.Option{pagelocker.WithStore(s)}, opts...)...)
		s.here = locker.New(fenced.New(s.Store), locker.WithHolder("here/1"), locker.WithMiddleware(s.page.Middleware))
		s.others = locker.New(fenced.New(s.Store), locker.WithHolder("others/2"))
		do(s)
		synctest.Wait()
	})
}

func (s *scene) lock(locks *locker.Client, key string) *locker.Lock {
	s.Helper()
	l, err := locks.Lock(s.Context(), key)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

// get is a request for a page.
func (s *scene) get(target string, header ...string) *httptest.ResponseRecorder {
	return ask(s.page, http.MethodGet, target, nil, header...)
}

func ask(h http.Handler, method, target string, form url.Values, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://ops.example"+target, strings.NewReader(form.Encode()))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// report is what the page has as JSON.
func (s *scene) report(query string) (r pagelocker.Report) {
	s.Helper()
	w := s.get("/?format=json&" + query)
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		s.Fatalf("%v in %s", err, w.Body)
	}
	return r
}

// counted counts the calls of a store, and may fail.
type counted struct {
	*memory.Store
	lists, inspections atomic.Int32
	fails              atomic.Pointer[error]
	during             atomic.Pointer[func()] // is called before List returns
}

func (c *counted) List(ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
	if after == "" {
		c.lists.Add(1)
	}
	if err := c.fails.Load(); err != nil {
		return backends.Page{}, *err
	}
	page, err := c.Store.List(ctx, prefix, after, limit)
	if during := c.during.Load(); during != nil {
		(*during)()
	}
	return page, err
}

func (c *counted) Inspect(ctx context.Context, key string) (backends.State, error) {
	c.inspections.Add(1)
	if err := c.fails.Load(); err != nil {
		return backends.State{}, *err
	}
	return c.Store.Inspect(ctx, key)
}

// browser is a ResponseWriter that reads events, or hangs.
type browser struct {
	hangs bool
	leave context.CancelFunc
	gone  chan struct{} // closed when the handler has returned

	mu       sync.Mutex
	head     http.Header
	status   int
	text     strings.Builder
	deadline time.Time
}

// open makes the browser look at target until it leaves, or the test ends.
func (s *scene) open(target string, hangs bool, header ...string) *browser {
	b := &browser{hangs: hangs, head: http.Header{}, gone: make(chan struct{}), status: http.StatusOK}
	ctx, cancel := context.WithCancel(s.Context())
	b.leave = func() { cancel(); <-b.gone }
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://ops.example"+target, nil)
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	go func() {
		defer close(b.gone)
		s.page.ServeHTTP(b, r)
	}()
	synctest.Wait()
	return b
}

func (b *browser) Header() http.Header { return b.head }
func (b *browser) Flush()              {}

func (b *browser) WriteHeader(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status = status
}

func (b *browser) SetWriteDeadline(t time.Time) error {
	b.deadline = t
	return nil
}

func (b *browser) Write(p []byte) (int, error) {
	if b.hangs {
		time.Sleep(time.Until(b.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

type event struct {
	id    string
	Order []string
	Parts map[string]string
}

// events are those since the last call. Comments are counted apart.
func (b *browser) events(t *testing.T) (events []event, comments int) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	text := b.text.String()
	b.text.Reset()
	b.mu.Unlock()
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		id, data, _ := strings.Cut(block, "\ndata: ")
		switch {
		case block == "":
		case strings.HasPrefix(block, ":"):
			comments++
		default:
			e := event{id: strings.TrimPrefix(id, "id: ")}
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatalf("%v in %q", err, block)
			}
			events = append(events, e)
		}
	}
	return events, comments
}

// has tells whether a part of an event has the text.
func (e event) has(text string) bool {
	for _, html := range e.Parts {
		if strings.Contains(html, text) {
			return true
		}
	}
	return false
}

var _ io.Writer = (*browser)(nil)
