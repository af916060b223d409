package main

import (
	"fmt"
	"html"
	"log/slog"
	"net/http"

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
	index := "<!doctype html><title>lockstep</title><h1>The nodes of the quorum</h1>"
	for i, s := range p.Stores {
		h, err := pageOf(p, s)
		if err != nil {
			return nil, err
		}
		mux.Handle(fmt.Sprintf("/%d/", i+1), http.StripPrefix(fmt.Sprintf("/%d", i+1), h))
		index += fmt.Sprintf(`<p><a href="%d/">%s</a>`, i+1, html.EscapeString(s.Name))
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		_, _ = fmt.Fprint(w, index)
	})
	return mux, nil
}

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
	if p.AllowRelease {
		evictor, ok := s.Backend.(backends.Evictor)
		if !ok {
			return nil, fmt.Errorf("%s can't end a hold by force", s.Name)
		}
		// Serve lets nobody but this machine see such a page.
		opts = append(opts, pagelocker.WithRelease(evictor, func(*http.Request) bool { return true }))
	}
	return pagelocker.New(opts...), nil
}
