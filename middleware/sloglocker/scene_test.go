package sloglocker_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/sloglocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const key = "invoice/42"

// scene is a Client with a log over stores in memory with faults, in fake time.
type scene struct {
	*testing.T
	ctx     context.Context // has the id of a trace
	journal *journal
	secrets *secrets

	stores []*memory.Store
	faults []*backendtest.Faults
	watch  contract.Middleware // the log
	locks  *locker.Client
	others *locker.Client // stands for another process, without a log

	mu   sync.Mutex
	kept []*locker.Lock // every Lock: one that became garbage would be logged as abandoned
}

// play runs one scene over n stores. The strategy is made of the stores with their faults.
func play(t *testing.T, n int, strategy func(s *scene) locker.Locker, do func(s *scene), opts ...sloglocker.Option) *scene {
	s := &scene{journal: newJournal(), secrets: &secrets{}}
	synctest.Test(t, func(t *testing.T) {
		s.T, s.ctx = t, context.WithValue(t.Context(), traceKey{}, "7")
		for range n {
			store := memory.New(memory.WithMaxTTL(time.Minute))
			s.stores = append(s.stores, store)
			s.faults = append(s.faults, new(backendtest.Faults))
		}
		if strategy == nil {
			strategy = func(s *scene) locker.Locker { return single.New(s.faults[0].Store(s.stores[0])) }
		}
		l := contract.Wrap(strategy(s), s.secrets.watch)
		opts := append([]sloglocker.Option{sloglocker.WithLogger(slog.New(s.journal))}, opts...)
		s.watch = sloglocker.New(opts...)
		s.locks = locker.New(l, locker.WithMiddleware(s.watch), locker.WithTTL(9*time.Second), locker.WithBackoff(steady))
		s.others = locker.New(l, locker.WithTTL(9*time.Second))
		do(s)
		time.Sleep(time.Minute) // until each lock that is not unlocked is lost, and each end is logged
		synctest.Wait()
	})
	return s
}

func steady(int, float64) time.Duration { return 400 * time.Millisecond }

func (s *scene) lock(opts ...locker.Option) *locker.Lock {
	s.Helper()
	return s.lockUnder(s.ctx, opts...)
}

func (s *scene) lockUnder(ctx context.Context, opts ...locker.Option) *locker.Lock {
	s.Helper()
	l, err := s.locks.Lock(ctx, key, opts...)
	if err != nil {
		s.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, l)
	return l
}

// fail expects that Lock fails.
func (s *scene) fail(ctx context.Context, opts ...locker.Option) {
	s.Helper()
	if _, err := s.locks.Lock(ctx, key, opts...); err == nil {
		s.Fatal("Lock: no error")
	}
}

// taken makes another Client hold the lock for d.
func (s *scene) taken(d time.Duration) {
	s.Helper()
	l, err := s.others.Lock(s.ctx, key)
	if err != nil {
		s.Fatal(err)
	}
	time.AfterFunc(d, func() { l.Unlock(s.ctx) })
}

// journal is a handler that keeps records as text and as JSON, with the id of the trace that is in the ctx.
type journal struct {
	slog.Handler              // text, without values that vary
	both         slog.Handler // JSON and text, unchanged
	mu           sync.Mutex
	text, whole  bytes.Buffer
}

type traceKey struct{}

func newJournal() *journal {
	j := &journal{}
	all := &slog.HandlerOptions{Level: slog.LevelDebug}
	fixed := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.Attr{}
		case "error":
			return slog.String("error", "…")
		}
		return a
	}}
	j.Handler = slog.NewTextHandler(&j.text, fixed)
	j.both = fanout{slog.NewJSONHandler(&j.whole, all), slog.NewTextHandler(&j.whole, all)}
	return j
}

func (j *journal) Handle(ctx context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if trace, ok := ctx.Value(traceKey{}).(string); ok {
		r.AddAttrs(slog.String("trace", trace))
	}
	_ = j.both.Handle(ctx, r)
	return j.Handler.Handle(ctx, r)
}

// all is every record as text and as JSON.
func (j *journal) all() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.whole.String()
}

// lines are the records. Of warnings in a row with one message, which are about repetitions, only the
// first is listed.
func (j *journal) lines() (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	last := ""
	for line := range strings.Lines(j.text.String()) {
		message, _, _ := strings.Cut(line, " key=")
		again := message == last && strings.HasPrefix(message, "level=WARN")
		if last = message; !again {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

type fanout []slog.Handler

func (f fanout) Enabled(context.Context, slog.Level) bool { return true }
func (f fanout) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f fanout) WithGroup(string) slog.Handler            { return f }

func (f fanout) Handle(ctx context.Context, r slog.Record) error {
	for _, h := range f {
		if err := h.Handle(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// secrets are the tokens of the scene.
type secrets struct {
	mu     sync.Mutex
	tokens []string
}

func (s *secrets) watch(next locker.Locker) locker.Locker { return spy{next, s} }

type spy struct {
	locker.Locker
	secrets *secrets
}

// Prompt tells that its calls end by themselves, as those of a store in memory do. So a call with a
// ctx that can't end runs on the goroutine of its caller, and a panic reaches the caller.
func (s spy) Prompt() bool { return true }

func (s spy) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if req.Token != "" {
		s.secrets.mu.Lock()
		s.secrets.tokens = append(s.secrets.tokens, req.Token)
		s.secrets.mu.Unlock()
	}
	return s.Locker.Acquire(ctx, req)
}

// in tells whether text has one of them.
func (s *secrets) in(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.tokens, func(token string) bool { return strings.Contains(text, token) })
}
