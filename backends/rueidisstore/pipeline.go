package rueidisstore

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/rueidis"
)

// pipeliner is the executor of a client for one server. A cluster's does not tell which node a
// command goes to, and strews what it is given at once over all of them; there rueidis shares what
// it does.
type pipeliner struct{ executor }

func (e pipeliner) DoAll(ctx context.Context, commands []*driver.Command) {
	e.OnceAll(ctx, commands)
}

func (e pipeliner) OnceAll(ctx context.Context, commands []*driver.Command) {
	if e.isClosed(ctx) {
		for _, c := range commands {
			c.Err = e.closing(ctx)
		}
		return
	}
	if err := e.reachOver(ctx, ""); err != nil {
		for _, c := range commands {
			c.Err, c.Alone = err, isAlone(err)
		}
		return
	}
	all := make([]client.Completed, len(commands))
	for i, c := range commands {
		all[i] = command(e.client, c.Args)
	}
	var results []client.RedisResult
	ended := e.over(ctx, func(over client.CommandClient) error {
		results = over.DoMulti(pipelined(ctx), all...)
		_, err := decode(results[len(results)-1]) // if any has no answer, the last one has none
		return err
	})
	if results == nil {
		for _, c := range commands {
			c.Err = ended
		}
		return
	}
	if results[0].NonRedisError() == nil && ctx.Err() == nil {
		ended = results[len(results)-1].NonRedisError() // the connection was in use when it ended
	}
	for i, result := range results {
		c := commands[i]
		if c.Reply, c.Err = decode(result); result.NonRedisError() != nil {
			c.Err = ended
		}
		e.Note(c.Err)
		if c.Err != nil {
			c.Err = e.translate(ctx, c.Err)
			c.Alone = isAlone(c.Err)
		}
	}
}

// isAlone tells that Once may find the way.
func isAlone(err error) bool { return driver.IsDemoted(err) || errors.Is(err, errAbandoned) }

func (pipeliner) Lane(context.Context, []any) any { return nil }
