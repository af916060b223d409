package sloglocker_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/middleware/sloglocker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// lead has two terms: the first one resigns, the second one fails.
func lead(s *scene, l locker.Locker, opts ...sloglocker.Option) {
	opts = append([]sloglocker.Option{sloglocker.WithLogger(slog.New(s.journal))}, opts...)
	e := election.New(locker.New(l), key).OnTerm(sloglocker.Terms(opts...))
	resigned := false
	_ = e.Run(s.ctx, func(context.Context, election.Term) error {
		time.Sleep(2 * time.Second)
		if !resigned {
			resigned = true
			return nil
		}
		return errors.New("no such invoice")
	})
}

func TestTheBeginAndTheEndOfATermAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		locker locker.Locker
		opts   []sloglocker.Option
		want   []string
	}{
		"with a level": {single.New(memory.New()), []sloglocker.Option{sloglocker.WithLevel(sloglocker.TermEnded, slog.LevelWarn)}, []string{
			`level=INFO msg="term began" key=invoice/42 trace=7`,
			`level=WARN msg="term ended" key=invoice/42 held=2s reason=resigned trace=7`,
			`level=INFO msg="term began" key=invoice/42 trace=7`,
			`level=WARN msg="term ended" key=invoice/42 held=2s reason=failed error=… error_type=error trace=7`,
		}},
		"a redacted key": {single.New(memory.New()), []sloglocker.Option{sloglocker.WithKeyAttribute(func(string) string { return "hidden" })}, []string{
			`level=INFO msg="term began" key=hidden trace=7`,
			`level=INFO msg="term ended" key=hidden held=2s reason=resigned trace=7`,
			`level=INFO msg="term began" key=hidden trace=7`,
			`level=INFO msg="term ended" key=hidden held=2s reason=failed error_type=error trace=7`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, 1, nil, func(s *scene) { lead(s, c.locker, c.opts...) })
			compare(t, s.journal.lines(), c.want)
		})
	}
}

func TestATermHasItsNumber(t *testing.T) {
	s := play(t, 1, nil, func(s *scene) { lead(s, fenced.New(s.stores[0])) })
	if first := s.journal.lines()[0]; first != `level=INFO msg="term began" key=invoice/42 fence=946684800000000 trace=7` {
		t.Errorf("logged %s", first)
	}
}

func TestATermThatHadEndedBeforeItBeganWasNotHeld(t *testing.T) {
	journal := newJournal()
	end := sloglocker.Terms(sloglocker.WithLogger(slog.New(journal)))(t.Context(), election.Term{Key: key})
	end(election.End{At: time.Now().Add(-time.Minute), Reason: "expired"})
	if ended := journal.lines()[1]; ended != `level=INFO msg="term ended" key=invoice/42 held=0s reason=expired` {
		t.Errorf("logged %s", ended)
	}
}

func TestTermsWithoutALoggerAreNotFollowed(t *testing.T) {
	if sloglocker.Terms() != nil {
		t.Error("there is a hook")
	}
}
