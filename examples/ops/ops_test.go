package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/middleware/pagelocker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(redistest.Main(m))
}

// TestThePageShowsBothServices looks at the page until each of them has held a lock, and the store was
// checked.
func TestThePageShowsBothServices(t *testing.T) {
	for name, addr := range map[string]func(t *testing.T) string{
		"embedded": func(*testing.T) string { return "" },
		"redis":    func(t *testing.T) string { return redistest.Start(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			out, to := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				ended <- run(ctx, to, "127.0.0.1:0", addr(t))
				to.Close()
			}()
			lines := bufio.NewScanner(out)
			lines.Scan()
			page := regexp.MustCompile(`http://\S+`).FindString(lines.Text())
			go func() { _, _ = io.Copy(io.Discard, out) }()
			holders, checked := map[string]bool{}, false
			for !checked || !holders["checkout/1"] || !holders["billing/1"] {
				if ctx.Err() != nil {
					t.Fatalf("only %v had a lock; the store was checked: %v", holders, checked)
				}
				report := look(t, page)
				checked = report.Store != nil && report.Store.Health != nil && !report.Store.Health.Checked.IsZero()
				for _, l := range report.Locks {
					for _, h := range l.Holds {
						holders[h.Holder] = true
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func look(t *testing.T, page string) (r pagelocker.Report) {
	t.Helper()
	resp, err := http.Get(page + "?format=json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAServerThatCannotListenIsAnError(t *testing.T) {
	if err := run(t.Context(), io.Discard, "nowhere.invalid:-1", "127.0.0.1:1"); err == nil {
		t.Error("run = nil")
	}
}
