package pagelocker_test

import (
	"net/http"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func Example() {
	store := memory.New() // or any store that can list its locks
	page := pagelocker.New(
		pagelocker.WithStore(store, "billing/"),
		pagelocker.WithRelease(store, func(r *http.Request) (by string, ok bool) {
			by = r.Header.Get("X-Forwarded-User") // of a proxy that knows people
			return by, by == "ann"
		}),
	)
	locks := locker.New(single.New(store), locker.WithHolder("api-7f9c/4711"), locker.WithMiddleware(page.Middleware))
	_ = locks // for the service

	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", page)
	server := &http.Server{Addr: "localhost:6060", Handler: mux}
	server.RegisterOnShutdown(page.Close) // otherwise Shutdown waits for the browsers
	// server.ListenAndServe()
}
