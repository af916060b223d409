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
	for _, mayRelease := range []bool{false, true} {
		serves(t, mayRelease)
	}
}

func serves(t *testing.T, mayRelease bool) {
	var told lockedBuffer
	c := &cli{err: &told, out: io.Discard}
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
	go func() { ended <- c.serve(ctx, "127.0.0.1:0", mayRelease, []string{"locks.example.com"}, page) }()
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
	for host, want := range map[string]int{
		"evil.example:7007": http.StatusForbidden, "evil.example": http.StatusForbidden, "127.0.0.1.evil.example": http.StatusForbidden,
		"localhost:7007": http.StatusOK, "LOCALHOST": http.StatusOK, "[::1]:7007": http.StatusOK, "[::1]": http.StatusOK, "127.0.0.2": http.StatusOK,
		"locks.example.com": http.StatusOK, "Locks.Example.com:8443": http.StatusOK, "x.locks.example.com": http.StatusForbidden,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("a page on the loopback (may release: %t) for the host %s: status %d, want %d", mayRelease, host, answer.StatusCode, want)
		}
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
	if err := c.serve(t.Context(), "0.0.0.0:0", true, nil, page); exitCode(err) != exitUsage {
		t.Errorf("a page for everybody that releases locks: %v", err)
	}
}
