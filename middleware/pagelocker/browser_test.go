package pagelocker_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const patience = 3 * time.Minute // for a busy machine

// browse opens a page in Chromium until the test ends. Without Chromium the test is left out, and with
// LOCKSTEP_REQUIRE_CHROMIUM=1 it fails then.
func browse(ctx context.Context, t *testing.T, page string, flags ...string) {
	t.Helper()
	_ = os.Getenv(redistest.VersionsEnv)
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("LOCKSTEP_REQUIRE_CHROMIUM") == "1" {
			t.Fatal("chromium is not installed, and LOCKSTEP_REQUIRE_CHROMIUM=1 forbids to leave the test out")
		}
		t.Skip("LEFT OUT: chromium is not installed")
	}
	profile, err := os.MkdirTemp("", "chromium") // not of the test: Chromium may still write at its end
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, chromium, append(flags, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
		"--user-data-dir="+profile, page)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its children too
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Cancel() // fails if it has ended
		_ = cmd.Wait()
		_ = os.RemoveAll(profile)
	})
}

// TestABrowserShowsALockThatIsTakenLater loads the page in Chromium. The lock is taken when the
// browser listens, so only an event can have brought its row. The key is a script, which must not
// run.
func TestABrowserShowsALockThatIsTakenLater(t *testing.T) {
	p := pagelocker.New()
	locks := locker.New(single.New(memory.New()), locker.WithHolder("later/1"), locker.WithMiddleware(p.Middleware))
	const key = `<script>document.title="it ran"</script>`
	listening, seen := make(chan struct{}, 1), make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/seen":
			select {
			case seen <- r.FormValue("title") + ": " + r.FormValue("text"):
			default:
			}
			return
		case r.Header.Get("Accept") == "text/event-stream":
			select {
			case listening <- struct{}{}:
			default:
			}
		case r.URL.Path == "/":
			w = &spying{w, `if (text.includes('later/1')) fetch('/seen?' + new URLSearchParams({title: document.title, text}));`}
		}
		p.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	browse(ctx, t, server.URL+"/?sort=key")
	select {
	case <-listening:
	case <-ctx.Done():
		t.Fatal("the browser does not listen")
	}
	l, err := locks.Lock(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock(ctx)
	select {
	case text := <-seen:
		if !strings.HasPrefix(text, "Locks: ") || !strings.Contains(text, key) {
			t.Errorf("the browser shows %q", text)
		}
	case <-ctx.Done():
		t.Error("the browser does not show the lock")
	}
}

// TestTenThousandLocksInABrowser loads a page of 10,000 locks, while other locks come and go. The
// browser counts all of them once the store has answered, which a busy machine may delay. It has the
// rows of one page and no more, and shows what changes. The test logs for how long the browser did
// nothing else at most, and judges no time.
func TestTenThousandLocksInABrowser(t *testing.T) {
	store := memory.New()
	for n := range 10_000 {
		store.Set(fmt.Sprintf("order/%05d", n), "other software", time.Hour)
	}
	p := pagelocker.New(pagelocker.WithStore(store))
	locks := locker.New(single.New(store), locker.WithHolder("here/1"), locker.WithMiddleware(p.Middleware))
	seen := make(chan url.Values, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/seen" {
			_ = r.ParseForm()
			select {
			case seen <- r.Form:
			default:
			}
			return
		}
		if r.URL.Path == "/" && r.Header.Get("Accept") != "text/event-stream" {
			w = &spying{w, `changes.add(text.match(/a lock (\d+)/)?.[1]);
	const found = document.getElementById('sum').textContent;
	if (changes.size > 8 && found.includes('10 0')) fetch('/seen?' + new URLSearchParams({rows: document.getElementById('rows').children.length, found, gap}));`}
		}
		p.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	browse(ctx, t, server.URL+"/?sort=key")
	for n := 0; ; n++ {
		l, err := locks.Lock(ctx, fmt.Sprint("a lock ", n))
		if err != nil {
			t.Fatal("the browser has not shown the changes and the 10,000 locks: ", err)
		}
		select {
		case form := <-seen:
			t.Logf("the browser was busy for %s ms at most", form.Get("gap"))
			if form.Get("rows") != "50" {
				t.Errorf("the browser has %v", form)
			}
			_ = l.Unlock(ctx)
			return
		case <-time.After(300 * time.Millisecond):
			_ = l.Unlock(ctx) // the key is still shown, as free
		case <-ctx.Done():
		}
	}
}

// TestABrowserWithoutScriptLoadsThePageAgain is about the element that asks for it.
func TestABrowserWithoutScriptLoadsThePageAgain(t *testing.T) {
	p := pagelocker.New()
	loads := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case loads <- r.Header.Get("Accept") + " " + r.URL.String():
		default:
		}
		p.ServeHTTP(w, r)
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	browse(ctx, t, server.URL+"/?q=text&sort=age", "--blink-settings=scriptEnabled=false")
	for range 3 {
		select {
		case load := <-loads:
			if !strings.HasSuffix(load, " /?q=text&sort=age") || !strings.Contains(load, "text/html") {
				t.Errorf("the browser asks for %s", load)
			}
		case <-ctx.Done():
			t.Fatal("the browser has not loaded the page three times")
		}
	}
}

// spying adds a script to the page that is called when a row has changed. It knows the text of the
// rows, and for how long the browser has done nothing else at most.
type spying struct {
	http.ResponseWriter
	script string
}

func (s *spying) Write(p []byte) (int, error) {
	_, nonce, _ := strings.Cut(s.Header().Get("Content-Security-Policy"), "'nonce-")
	nonce, _, _ = strings.Cut(nonce, "'")
	script := `<script nonce="` + nonce + `">
let gap = 0, last = performance.now();
const changes = new Set();
setInterval(() => { gap = Math.max(gap, Math.round(performance.now() - last - 10)); last = performance.now(); }, 10);
new MutationObserver(() => {
	const text = document.getElementById('rows').textContent;
	` + s.script + `
}).observe(document.getElementById('rows'), {childList: true, subtree: true})</script></body>`
	_, err := s.ResponseWriter.Write([]byte(strings.Replace(string(p), "</body>", script, 1)))
	return len(p), err
}
