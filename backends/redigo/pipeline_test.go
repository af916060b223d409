package redigo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// What a Pipeliner promises and no Store shows.

func increments(n int) (commands []*driver.Command) {
	for i := range n {
		commands = append(commands, &driver.Command{Args: []any{"INCR", fmt.Sprint("n", i)}})
	}
	return commands
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
				if !errors.Is(c.Err, io.ErrClosedPipe) || backends.Unsent(c.Err) || backends.Permanent(c.Err) || c.Reply != nil {
					t.Errorf("%s, %s: %v, %v", by, name, c.Reply, c.Err)
				}
			}
			if dials != way.dials {
				t.Errorf("%s, %s: %d connections were made; want %d", by, name, dials, way.dials)
			}
		}
	}
}
