package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/info"
)

// A shortCut ends the quarantine of a server that was declared to forget nothing, if the server says
// nothing against it. It asks once for each quarantine.
type shortCut struct {
	exec       driver.Executor
	quarantine *driver.Quarantine
	tried      chan struct{} // holds one value: the right to ask, and to use what follows
	failed     time.Time     // when the clock could not be read
	asked      time.Time     // the end of the quarantine that it was asked about
	why        error         // what the server said against it
}

const (
	shortCutLimit = 2 * time.Second
	readings      = 8 // of a clock, until one is exact
	readAgain     = time.Minute
)

// read has the clock of the server read before it is restarted: on a busy machine, what the first
// connection has told may be late. It is done once, before the second grant. Other grants do not
// wait for it: without this reading, quarantine is at worst not cut short.
func (s *shortCut) read(ctx context.Context) {
	select {
	case s.tried <- struct{}{}:
		defer func() { <-s.tried }()
	default:
		return
	}
	if !s.quarantine.Unread() || time.Since(s.failed) < readAgain {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shortCutLimit)
	defer cancel()
	back, err := s.ask(ctx, false)
	if err != nil {
		s.failed = time.Now()
		return
	}
	s.quarantine.Read(back)
}

// take returns nil if grants may be sent now, else refused and why.
func (s *shortCut) take(ctx context.Context, refused error) error {
	told, ok := errors.AsType[*driver.QuarantineError](refused)
	if !ok || told.Permanent() {
		return refused
	}
	select {
	case s.tried <- struct{}{}:
		defer func() { <-s.tried }()
	case <-ctx.Done():
		return refused
	}
	refused = s.quarantine.Refused(false) // another call may have asked
	if told, ok = errors.AsType[*driver.QuarantineError](refused); !ok {
		return refused
	}
	if !s.asked.Equal(told.Until) {
		ctx, cancel := context.WithTimeout(ctx, shortCutLimit)
		defer cancel()
		back, err := s.ask(ctx, true)
		if err != nil { // it may answer the next call
			return told.Firm(fmt.Errorf("whether it forgets nothing can't be asked: %w", err))
		}
		s.asked, s.why = told.Until, s.quarantine.Lift(back)
	}
	if s.why != nil {
		return told.Firm(s.why)
	}
	return s.quarantine.Refused(false)
}

// settings are those with which a server keeps all that it has answered.
var settings = []struct{ name, must string }{
	{"appendonly", "yes"},
	{"appendfsync", "always"},
	{"no-appendfsync-on-rewrite", "no"},
}

// ask reads the clock, and the settings if they are wanted.
func (s *shortCut) ask(ctx context.Context, settings bool) (back driver.Back, err error) {
	err = s.exec.Pinned(ctx, "", func(c driver.Conn) error {
		wrong := ""
		if settings {
			if wrong, err = against(ctx, c); err != nil {
				return err
			}
		}
		for n := 0; n < readings && (n == 0 || !back.Exact()); n++ {
			next, failed := clock(ctx, c)
			if failed != nil {
				return failed
			}
			if n == 0 || next.Read.Sub(next.Asked) < back.Read.Sub(back.Asked) {
				back = next
			}
		}
		back.Wrong = wrong
		return nil
	})
	return back, err
}

// against is a setting with which the server may forget.
func against(ctx context.Context, c driver.Conn) (string, error) {
	var questions [][]any
	for _, setting := range settings {
		questions = append(questions, []any{"CONFIG", "GET", setting.name})
	}
	replies, err := ask(ctx, c, questions...)
	if err != nil {
		return "", err
	}
	for i, setting := range settings {
		if is := configValue(replies[i]); is != setting.must {
			return fmt.Sprintf("%s is %q and not %s", setting.name, is, setting.must), nil
		}
	}
	return "", nil
}

func clock(ctx context.Context, c driver.Conn) (driver.Back, error) {
	asked := time.Now()
	replies, err := ask(ctx, c, []any{"INFO", "server"})
	if err != nil {
		return driver.Back{}, err
	}
	text, _ := replies[0].(string)
	fields := info.Parse(text)
	return driver.Back{Run: fields["run_id"], Clock: info.Clock(fields), Asked: asked, Read: time.Now()}, nil
}

func ask(ctx context.Context, c driver.Conn, questions ...[]any) ([]any, error) {
	replies, err := c.Pipeline(ctx, questions...)
	for _, reply := range replies {
		if refused, ok := reply.(*driver.ReplyError); ok && err == nil {
			err = refused
		}
	}
	return replies, err
}
