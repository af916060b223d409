// Command tracing shows what waits for a lock, what holds it and what becomes of both, as OpenTelemetry sees them. Two
// processes answer HTTP requests, each under one lock; a request is one trace, through the driver, a process and the lock.
//
//	go run ./examples/tracing
//	REDIS_ADDR=localhost:6379 go run ./examples/tracing -requests 6 -svg waterfall.svg
//
// It needs nothing installed: without REDIS_ADDR it starts a small server of its own. It exits with 1 if what it has
// collected is not what was to happen: see check.go. To copy from, see process.go, and telemetry.go for the SDK.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/redis/go-redis/v9/logging"
)

const runLimit = time.Minute // with a server that is far away

// plan is what the flags say.
type plan struct {
	requests  int
	work, ttl time.Duration
	width     int
	svg       string
}

func main() {
	logging.Disable() // of go-redis: its errors come back from the calls as well
	if isChild() {
		exitIf(serve())
		return
	}
	var p plan
	flag.IntVar(&p.requests, "requests", 3, "how many requests wait until they get the lock")
	flag.DurationVar(&p.work, "work", 100*time.Millisecond, "how long each of them works under it")
	flag.DurationVar(&p.ttl, "ttl", 900*time.Millisecond, "life of a lease; the first extension, a third of it later, finds out a loss")
	flag.IntVar(&p.width, "width", 100, "columns of the terminal")
	flag.StringVar(&p.svg, "svg", "", "a `file` for the waterfalls as a picture")
	flag.Parse()
	if p.requests < 1 || p.work < time.Millisecond || p.width < minWidth {
		exitIf(fmt.Errorf("at least 1 request, 1ms of work and %d columns are needed", minWidth))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not done after %v", runLimit))
	defer cancel()
	exitIf(run(ctx, newScreen(os.Stdout), os.Getenv("REDIS_ADDR"), p))
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "tracing:", err)
		os.Exit(1)
	}
}

// run is the whole story.
func run(ctx context.Context, out *screen, addr string, p plan) error {
	if addr == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
		out.printf("Embedded server at %s. To use your own: REDIS_ADDR=host:port\n", addr)
	} else {
		out.printf("Redis server at %s\n", addr)
	}
	requests, seen, err := play(ctx, addr, p)
	if err != nil {
		if ctx.Err() != nil { // then all that failed, failed because of that
			err = context.Cause(ctx)
		}
		return err
	}

	w := arrange(seen.Spans)
	out.headline("%d requests to two processes, one lock: a trace each, a row for each span", len(requests))
	out.waterfall(w, p.width)
	out.headline("The metrics of both processes")
	out.table(seen.Points)
	if at, ok := slowest(seen.Points); ok {
		out.printf("\n  The exemplar of the longest %s, %s, leads to trace %s: %s\n",
			acquireDuration, milliseconds(seconds(at.Value)), at.Trace, w.root(at.Trace))
	}
	if p.svg != "" {
		if err := writeSVG(p.svg, w); err != nil {
			return err
		}
	}
	return check(requests, seen)
}

func writeSVG(name string, w waterfall) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(w.svg(file), file.Close())
}

// screen writes for a person at a terminal, or for a pipe or file, which get no control characters.
type screen struct {
	io.Writer
	colour bool
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &screen{out, terminal && os.Getenv("NO_COLOR") == ""} // https://no-color.org
}

// printf drops the error: a screen that is gone is no reason to fail.
func (s *screen) printf(format string, args ...any) { _, _ = fmt.Fprintf(s, format, args...) }

func (s *screen) headline(format string, args ...any) {
	s.printf("\n%s\n\n", s.paint(bold, fmt.Sprintf(format, args...)))
}

const (
	bold = "1"
	red  = "31"
)

func (s *screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
