package pagelocker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

const (
	patience       = time.Second     // how long a page waits for the store before it shows what is known
	scrapePatience = 5 * time.Second // the same for the metrics, which are read less often than an answer lasts
)

// ServeHTTP shows the page, one lock, their JSON, their events, or the metrics.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	at := r.URL.Path
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(at, "/"):
		p.release(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "use GET, or POST to release a lock", http.StatusMethodNotAllowed)
	case path.Base(at) == "metrics" && !strings.HasSuffix(at, "/"):
		p.wait(r, query{}, scrapePatience)
		h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(p.metrics(time.Now())) // fails if the reader is gone
	case at != "" && !strings.HasSuffix(at, "/"):
		http.Error(w, "the page is at a path that ends with a slash", http.StatusNotFound)
	default:
		p.show(w, r)
	}
}

func (p *Page) show(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	w.Header().Set("Vary", "Accept")
	switch format, accept := r.URL.Query().Get("format"), r.Header.Get("Accept"); {
	case r.Method == http.MethodGet && format == "" && strings.Contains(accept, "text/event-stream"):
		p.stream(w, r, q)
	case format == "json", format == "" && strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html"):
		p.wait(r, q, patience)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.report(q, time.Now(), p.recent(q))) // fails if the reader is gone
	default:
		p.wait(r, q, patience)
		p.html(w, r, q, "", http.StatusOK)
	}
}

// wait is until the store has answered, if it does so within limit.
func (p *Page) wait(r *http.Request, q query, limit time.Duration) {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	for range 2 { // the second time asks only if a release has overtaken a look that was under way
		for _, done := range p.refresh(q) {
			select {
			case <-done:
			case <-ctx.Done():
			}
		}
	}
}

func (p *Page) html(w http.ResponseWriter, r *http.Request, q query, notice string, status int) {
	nonce, k := rand.Text(), p.recent(q)
	var page bytes.Buffer
	if err := p.page(&page, nonce, q, p.report(q, time.Now(), k), k.seq, notice); err != nil {
		http.Error(w, "the page can't be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+"'; script-src 'nonce-"+nonce+
		"'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // fails if the browser is gone
}

// release ends a hold by force.
func (p *Page) release(w http.ResponseWriter, r *http.Request) {
	if err := p.crossing.Check(r); err != nil {
		http.Error(w, p.crossed(r, err), http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10) // before authorize, which may read the form
	by, permitted := "", false
	if p.evictor != nil && p.authorize != nil {
		by, permitted = p.authorize(r)
	}
	if !permitted {
		http.Error(w, "this page is read-only for you", http.StatusForbidden)
		return
	}
	q, seen := queryOf(r), r.PostFormValue("print")
	if q.key == "" || seen == "" {
		http.Error(w, "send key in the query, and print in the form", http.StatusBadRequest)
		return
	}
	if !p.mayAsk(q.key) {
		http.Error(w, "this page is not for that key", http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeLimit)
	defer cancel()
	now := r.PostFormValue("now") != ""
	p.wait(r, q, patience) // for the history, which would not know the hold otherwise
	h := p.held(q.key, seen)
	label := strings.ReplaceAll(by, "@", " at ") // an address of a person, where a label has no @
	if !backends.ValidHolder(label) {
		label = "the page of locks"
	}
	ok, err := p.evictor.Evict(ctx, q.key, seen, backends.Eviction{By: label, Now: now})
	outcome, reason := "lock released by force on the page", ""
	switch {
	case err != nil && !undone(err):
		outcome, reason = "unknown whether a lock was released by force on the page", err.Error()
	case err != nil:
		outcome, reason = "no lock released by force on the page", err.Error()
	case !ok:
		outcome, reason = "no lock released by force on the page", "that hold has ended, or another holder has the key"
	}
	if p.logger != nil {
		attrs := []any{"key", q.key, "print", seen, "now", now, "remote", r.RemoteAddr}
		if by != "" {
			attrs = append(attrs, "by", by)
		}
		if h.Holder != "" {
			attrs = append(attrs, "holder", h.Holder)
		}
		if reason != "" {
			attrs = append(attrs, "reason", reason)
		}
		p.logger.WarnContext(r.Context(), outcome, attrs...)
	}
	if ok {
		p.registry.saw(q.key, h, time.Now(), forced, nil)
	}
	p.polls.mu.Lock()
	if i := p.polls.inspections[q.key]; i != nil {
		i.outdate()
	}
	p.polls.list.outdate()
	p.polls.mu.Unlock()
	p.changed()
	if err == nil && ok {
		w.Header().Set("Location", "?key="+url.QueryEscape(q.key)) // relative, so that any prefix works
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	p.wait(r, q, patience) // perhaps nobody has looked at the key before
	switch {
	case err == nil:
		p.html(w, r, q, "Nothing was released: "+reason+".", http.StatusConflict)
	case undone(err):
		p.html(w, r, q, "Nothing was released: "+reason, http.StatusBadGateway)
	default:
		p.html(w, r, q, "It is not known whether that hold was released: "+reason, http.StatusBadGateway)
	}
}

// crossed says why a release was refused that seems to come from another page, and what helps behind a
// proxy.
func (p *Page) crossed(r *http.Request, err error) string {
	text := err.Error()
	if origin := r.Header.Get("Origin"); origin != "" && origin != "null" {
		text += fmt.Sprintf("\nThe browser shows %s, and the request is for %s. If both are this page, behind a proxy, let the proxy pass "+
			"the name of the host on (nginx: proxy_set_header Host $host), or name the origin: pagelocker.WithTrustedOrigins, or "+
			"lockstep serve -origin.", origin, r.Host)
	}
	if p.wrong != nil {
		text += "\n" + p.wrong.Error()
	}
	return text
}

// held is the hold that has the print, as far as it is known.
func (p *Page) held(key, seen string) Hold {
	l, _, _ := p.one(key)
	for _, h := range l.Holds {
		if h.Print == seen {
			return h
		}
	}
	return Hold{Print: seen, Since: time.Now(), Seen: true}
}

// undone reports whether err says that the store has changed nothing. Any other error leaves that open.
func undone(err error) bool { return backends.Permanent(err) || backends.Unsent(err) }
