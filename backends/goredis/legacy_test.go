package goredis_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/go-redis/v9"
)

func TestLegacyCommandsWhoseRepetitionChangesTheAnswerAreSentOnce(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := goredis.New(dial(t, &client.Options{Addr: proxy.Addr(), MaxRetries: 2}))
	ctx := t.Context()
	for command, c := range map[string]struct {
		once bool
		call func() error
	}{
		"SETNX":   {true, func() error { _, err := s.SetNXForever(ctx, "a", "value"); return err }},
		"GETSET":  {true, func() error { _, _, err := s.GetSet(ctx, "a", "value"); return err }},
		"DEL":     {true, func() error { _, err := s.Delete(ctx, "a"); return err }},
		"SETBIT":  {true, func() error { _, err := s.SetBit(ctx, "b", 7, true); return err }},
		"GET":     {false, func() error { _, _, err := s.Get(ctx, "a"); return err }},
		"PTTL":    {false, func() error { _, _, err := s.Left(ctx, "a"); return err }},
		"PEXPIRE": {false, func() error { _, err := s.Expire(ctx, "a", 20*time.Second); return err }},
		"GETBIT":  {false, func() error { _, err := s.GetBit(ctx, "b", 7); return err }},
	} {
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		before := proxy.Count(command)
		cut := proxy.Add(redistest.Rule{Fault: redistest.CutReply, Commands: []string{command}, Times: -1})
		if err := c.call(); err == nil {
			t.Errorf("%s whose reply was lost: no error", command)
		}
		cut.Remove()
		if n := proxy.Count(command) - before; (n == 1) != c.once {
			t.Errorf("%s was sent %d times", command, n)
		}
	}
}
