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
	asked      time.Time     // the end of the quarantine that it was asked about
	why        error         // what the server said against it
}

const shortCutLimit = 2 * time.Second

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
		back, err := s.ask(ctx)
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

func (s *shortCut) ask(ctx context.Context) (back driver.Back, err error) {
	err = s.exec.Pinned(ctx, "", func(c driver.Conn) error {
		back.Asked = time.Now()
		questions := [][]any{{"INFO", "server"}}
		for _, setting := range settings {
			questions = append(questions, []any{"CONFIG", "GET", setting.name})
		}
		replies, err := c.Pipeline(ctx, questions...)
		if err != nil {
			return err
		}
		for _, reply := range replies {
			if refused, ok := reply.(*driver.ReplyError); ok {
				return refused
			}
		}
		text, _ := replies[0].(string)
		fields := info.Parse(text)
		back.Run, back.Clock = fields["run_id"], info.Clock(fields)
		for i, setting := range settings {
			if is := configValue(replies[i+1]); is != setting.must {
				back.Wrong = fmt.Sprintf("%s is %q and not %s", setting.name, is, setting.must)
				break
			}
		}
		return nil
	})
	return back, err
}
