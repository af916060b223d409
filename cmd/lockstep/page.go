package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"strings"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
)

// page shows the locks of a store, or of each node of a quorum at a path of its own.
func page(p command.Page) (http.Handler, error) {
	if len(p.Stores) == 1 {
		return pageOf(p, p.Stores[0])
	}
	mux := http.NewServeMux()
	var list strings.Builder
	for i, s := range p.Stores {
		h, err := pageOf(p, s)
		if err != nil {
			return nil, err
		}
		mux.Handle(fmt.Sprintf("/%d/", i+1), http.StripPrefix(fmt.Sprintf("/%d", i+1), h))
		_, _ = fmt.Fprintf(&list, `<li><a href="%d/">%s</a> <a href="%[1]d/?view=store">the server</a>`, i+1, html.EscapeString(s.Name))
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		nonce := rand.Text()
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+"'; img-src data:; base-uri 'none'; frame-ancestors 'none'")
		_, _ = fmt.Fprintf(w, index, nonce, &list)
	})
	return mux, nil
}

const index = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Locks</title>
<style nonce="%s">
body { margin: 0 auto; max-width: 60rem; padding: 1.25rem 1.5rem; font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; }
ol { padding: 0; list-style-position: inside; }
li { border: 1px solid #8886; border-radius: .8rem; padding: .7rem 1rem; margin-bottom: .6rem; overflow-wrap: anywhere; }
a + a { margin-left: .75rem; font-size: .8rem; }
</style>
<h1>The nodes of the quorum</h1>
<p>The holder of a lock has it on a majority of the nodes. Each node has a page of its own.
<ol>%s</ol>
`

func pageOf(p command.Page, s command.Store) (http.Handler, error) {
	store, ok := s.Backend.(pagelocker.Store)
	if !ok {
		return nil, fmt.Errorf("%s does not list its locks", s.Name)
	}
	var prefixes []string
	if p.Prefix != "" {
		prefixes = []string{p.Prefix}
	}
	opts := []pagelocker.Option{pagelocker.WithStore(store, prefixes...), pagelocker.WithLogger(slog.Default())}
	if s.Check != nil {
		opts = append(opts, pagelocker.WithCheck(func(ctx context.Context) (pagelocker.Check, error) {
			r, err := s.Check(ctx)
			return pagelocker.Check{Server: r.Server, Findings: r.Findings, ClockSkew: r.ClockSkew, Remedy: s.Remedy}, err
		}))
	}
	if p.AllowRelease {
		evictor, ok := s.Backend.(backends.Evictor)
		if !ok {
			return nil, fmt.Errorf("%s can't end a hold by force", s.Name)
		}
		// Serve lets nobody see such a page but this machine, and those whom a proxy lets in.
		opts = append(opts, pagelocker.WithTrustedOrigins(p.Origins...),
			pagelocker.WithRelease(evictor, func(*http.Request) (string, bool) { return p.By, true }))
	}
	return pagelocker.New(opts...), nil
}
