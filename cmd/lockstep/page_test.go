package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/cmd/lockstep/command"
	"github.com/lockstep-go/lockstep/cmd/lockstep/stores"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// The page shows what doctor finds on the store, and what to type against it.
func TestThePageShowsTheFindingsOfAServer(t *testing.T) {
	server := redistest.Start(t, redistest.WithArgs("--maxmemory-policy", "allkeys-lru"))
	store, err := stores.Redis().Open(t.Context(), "redis://"+server.Addr(), command.Options{MaxTTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	h, err := page(command.Page{Stores: []command.Store{*store}, Prefix: "job/"})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"/":            "Unsafe: ",
		"/?view=store": "redis-cli CONFIG SET maxmemory-policy noeviction",
		"/metrics":     `lockstep_finding{problem="eviction",unsafe="true"} 1`,
	} {
		var text string
		for limit := time.Now().Add(3 * time.Minute); !strings.Contains(text, want); time.Sleep(10 * time.Millisecond) { // a page waits a second for the check
			if text = get(h, target).Body.String(); time.Now().After(limit) {
				t.Fatalf("%s has no %q: %s", target, want, text)
			}
		}
	}
}

func TestThePageOfAQuorumLeadsToEachNode(t *testing.T) {
	node := func(name string) command.Store { return command.Store{Name: name, Backend: memory.New()} }
	h, err := page(command.Page{Stores: []command.Store{node("redis://a"), node("redis://<b>")}})
	if err != nil {
		t.Fatal(err)
	}
	if text := get(h, "/").Body.String(); !strings.Contains(text, `<a href="2/">redis://&lt;b&gt;</a>`) {
		t.Errorf("the index is %s", text)
	}
	for _, target := range []string{"/1/", "/2/?view=store", "/2/metrics"} {
		if w := get(h, target); w.Code != http.StatusOK {
			t.Errorf("%s: status %d", target, w.Code)
		}
	}
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}
