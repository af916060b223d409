package redigo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

// What a Pipeliner promises and no Store shows.

func increments(n int) (commands []*driver.Command) {
	for i := range n {
		commands = append(commands, &driver.Command{Args: []any{"INCR", fmt.Sprint("n", i)}})
	}
	return commands
}

func TestCommandsTogetherAreAnsweredInOrderWithErrorsInTheirPlace(t *testing.T) {
	e := open(t, redistest.Start(t).Addr())
	for name, all := range map[string]func(context.Context, []*driver.Command){"DoAll": e.DoAll, "OnceAll": e.OnceAll} {
		var commands []*driver.Command
		for _, args := range [][]any{
			{"SET", name, "1"}, {"LPUSH", name, "x"}, {"GET", "nothing"}, {"EVAL", "return {1, 'a', false, {}}", 0}, {"GET", name},
		} {
			commands = append(commands, &driver.Command{Args: args})
		}
		all(t.Context(), commands)
		wrong := &redisstore.ReplyError{Text: "WRONGTYPE Operation against a key holding the wrong kind of value"}
		for i, want := range []driver.Command{
			{Reply: "OK"}, {Err: wrong}, {}, {Reply: []any{int64(1), "a", nil, []any{}}}, {Reply: "1"},
		} {
			if got := commands[i]; !reflect.DeepEqual(got.Reply, want.Reply) || !reflect.DeepEqual(got.Err, want.Err) {
				t.Errorf("%s: %v = %#v, %v", name, got.Args, got.Reply, got.Err)
			}
		}
	}
}

func TestOfCommandsTogetherOnlyWhatMayBeSentTwiceIs(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := open(t, proxy.Addr())
	for name, c := range map[string]struct {
		all      func(context.Context, []*driver.Command)
		repeated bool
	}{"DoAll": {e.DoAll, true}, "OnceAll": {e.OnceAll, false}} {
		if _, err := server.Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		proxy.Add(redistest.Rule{Fault: redistest.CutReply, Commands: []string{"INCR"}, Nth: 3})
		commands := increments(5)
		c.all(t.Context(), commands)
		for i, command := range commands {
			n, err := server.Do("GET", command.Args[1].(string))
			if err != nil {
				t.Fatal(err)
			}
			known := cleanup.Unsent(command.Err) || errors.As(command.Err, new(*redisstore.ReplyError))
			switch answered := command.Err == nil; {
			case c.repeated && (!answered || i == 2 && n != "2"):
				t.Errorf("%s: %d = %v, %v, and is %v", name, i, command.Reply, command.Err, n)
			case !c.repeated && (n == "2" || answered && n != "1" || known || i >= 2 && answered):
				t.Errorf("%s: %d = %v, %v, and is %v", name, i, command.Reply, command.Err, n)
			}
		}
	}
}

func TestCommandsTogetherEndWithTheirCtx(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := open(t, proxy.Addr())
	lost := proxy.Add(redistest.Rule{Fault: redistest.LoseReply, Commands: []string{"INCR"}, Nth: 2})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-lost.Fired()
		cancel()
	}()
	commands := increments(3)
	e.DoAll(ctx, commands)
	for i, c := range commands[1:] {
		if !errors.Is(c.Err, context.Canceled) {
			t.Errorf("%d = %v, %v", i, c.Reply, c.Err)
		}
	}
	if _, err := e.Do(t.Context(), "PING"); err != nil { // a connection is ready
		t.Fatal(err)
	}
	late, cancelLate := context.WithDeadline(t.Context(), time.Now())
	defer cancelLate()
	for ctx, want := range map[context.Context]error{ctx: context.Canceled, late: context.DeadlineExceeded} {
		unsent := []*driver.Command{{Args: []any{"SET", "unsent", "1"}}, {Args: []any{"SET", "unsent", "2"}}}
		e.OnceAll(ctx, unsent)
		for _, c := range unsent {
			if !errors.Is(c.Err, want) {
				t.Errorf("%v, %v; want %v", c.Reply, c.Err, want)
			}
		}
	}
	if n, err := server.Do("EXISTS", "unsent"); n != int64(0) || err != nil {
		t.Errorf("a ctx that had ended: %v, %v", n, err)
	}
}

func TestOfCommandsTogetherWhatAReplicaHasNotDoneIsToBeSentElsewhere(t *testing.T) {
	e := open(t, redistest.Start(t).Addr())
	const readonly = `return redis.error_reply("READONLY You can't write against a read only replica.")`
	for name, all := range map[string]func(context.Context, []*driver.Command){"DoAll": e.DoAll, "OnceAll": e.OnceAll} {
		commands := []*driver.Command{{Args: []any{"GET", "nothing"}}, {Args: []any{"EVAL", readonly, 0}}}
		all(t.Context(), commands)
		if c := commands[0]; c.Alone || c.Err != nil {
			t.Errorf("%s: what was answered: %v, alone %v", name, c.Err, c.Alone)
		}
		if c := commands[1]; !c.Alone || !driver.IsDemoted(c.Err) {
			t.Errorf("%s: what the replica has not done: %v, alone %v", name, c.Err, c.Alone)
		}
		if n := e.pool.IdleCount(); n != 0 {
			t.Errorf("%s: the connection to the replica is kept", name)
		}
	}
}

// dull is a connection that can't be written to.
type dull struct {
	client.Conn
	send, flush, broke error
}

func (d *dull) Send(string, ...any) error      { return d.fails(d.send) }
func (d *dull) Flush() error                   { return d.fails(d.flush) }
func (d *dull) Do(string, ...any) (any, error) { return nil, d.broke }
func (d *dull) Err() error                     { return d.broke }
func (d *dull) Close() error                   { return nil }
func (d *dull) fails(err error) error {
	if err != nil {
		d.broke = err
	}
	return err
}

func TestTheOutcomeOfCommandsThatCouldNotBeWrittenIsUnknown(t *testing.T) {
	for name, broken := range map[string]dull{
		"to the buffer": {send: io.ErrClosedPipe}, "to the connection": {flush: io.ErrClosedPipe},
	} {
		dials := 0
		pool := &client.Pool{MaxIdle: 1, DialContext: func(context.Context) (client.Conn, error) {
			dials++
			c := broken
			return &c, nil
		}}
		e := newExecutor(pool, "10.0.0.7:6379")
		for by, way := range map[string]struct {
			all   func(context.Context, []*driver.Command)
			dials int
		}{"OnceAll": {e.OnceAll, 1}, "DoAll": {e.DoAll, 2}} {
			dials = 0
			commands := increments(2)
			way.all(t.Context(), commands)
			for _, c := range commands {
				if !errors.Is(c.Err, io.ErrClosedPipe) || cleanup.Unsent(c.Err) || cleanup.Permanent(c.Err) || c.Reply != nil {
					t.Errorf("%s, %s: %v, %v", by, name, c.Reply, c.Err)
				}
			}
			if dials != way.dials {
				t.Errorf("%s, %s: %d connections were made; want %d", by, name, dials, way.dials)
			}
		}
	}
}
