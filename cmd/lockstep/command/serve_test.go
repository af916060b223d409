package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// TestServeShowsThePageOfTheProgram: also a stream ends when the command does.
func TestServeShowsThePageOfTheProgram(t *testing.T) {
	var told lockedBuffer
	c := &cli{program: Program{Page: func(Page) (http.Handler, error) { return nil, nil }}, err: &told, out: io.Discard}
	if c.find("serve") == nil || (&cli{}).find("serve") != nil {
		t.Error("serve is there without a page, or missing with one")
	}
	streaming := make(chan struct{})
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "the page")
		w.(http.Flusher).Flush()
		if r.URL.Path == "/stream" {
			close(streaming)
			<-r.Context().Done()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.serve(ctx, "127.0.0.1:0", true, page) }()
	var address string
	for limit := time.Now().Add(time.Minute); address == "" && time.Now().Before(limit); time.Sleep(time.Millisecond) {
		address = regexp.MustCompile(`http://\S+`).FindString(told.String())
	}
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "the page" {
		t.Errorf("%q, %v", text, err)
	}
	rebound, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	rebound.Host = "evil.example:7007"
	if answer, err := http.DefaultClient.Do(rebound); err != nil || answer.StatusCode != http.StatusForbidden {
		t.Errorf("a page that may release locks, under a name of somebody else: %v, %v", answer, err)
	} else {
		answer.Body.Close()
	}
	go func() {
		if stream, err := http.Get(address + "/stream"); err == nil {
			_, _ = io.Copy(io.Discard, stream.Body)
			stream.Body.Close()
		}
	}()
	<-streaming
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if strings.Contains(told.String(), "no login") {
		t.Errorf("it warns on loopback: %s", told.String())
	}
	if err := c.serve(t.Context(), "0.0.0.0:0", true, page); exitCode(err) != exitUsage {
		t.Errorf("a page for everybody that releases locks: %v", err)
	}
}
