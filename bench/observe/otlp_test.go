package observe

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	// What the page imports is a requirement of this module.
	_ "go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	_ "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
)

// program calls what the page shows, in a package of its own beside it.
const program = `package main

import (
	"context"
	"log"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"

	telemetry "PACKAGE"
)

func main() {
	ctx := context.Background()
	stop, err := telemetry.Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	locks := locker.New(single.New(memory.New()), locker.WithMiddleware(otellocker.New()))
	if err := locks.Do(ctx, "key", func(context.Context, *locker.Lock) error { return nil }); err != nil {
		log.Fatal(err)
	}
	if err := stop(ctx); err != nil {
		log.Fatal(err)
	}
}
`

// TestWhatIsSentReachesACollector builds the block of the page and runs it beside a server that takes OTLP over HTTP.
func TestWhatIsSentReachesACollector(t *testing.T) {
	var mu sync.Mutex
	received := make(map[string]string) // by path
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		received[r.URL.Path] += string(content)
	}))
	defer collector.Close()

	var source string
	for _, block := range blocks(t, "go") {
		if strings.Contains(block, "/exporters/otlp/") {
			source = block
		}
	}
	// In this module, for its requirements, and not to stay.
	dir, err := os.MkdirTemp(".", "_otlp-") // which ./... passes over
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("telemetry/telemetry.go", source)
	write("main.go", strings.Replace(program, "PACKAGE", "github.com/lockstep-go/lockstep/bench/observe/"+filepath.Base(dir)+"/telemetry", 1))
	run := exec.CommandContext(t.Context(), "go", "run", "./"+filepath.Base(dir))
	run.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, bytes.TrimSpace(out))
	}
	mu.Lock()
	defer mu.Unlock()
	for path, names := range map[string][]string{
		"/v1/traces":  {"lock acquire", "lock hold", "lock release"},
		"/v1/metrics": {"lock.acquire.duration", "lock.held"},
	} {
		for _, name := range names {
			if !strings.Contains(received[path], name) {
				t.Errorf("%q was not sent to %s", name, path)
			}
		}
	}
}
