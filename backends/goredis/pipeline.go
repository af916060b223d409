package goredis

import (
	"context"
	"errors"
	"slices"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/go-redis/v9"
)

// pipelined is a Client that knows pipelines.
type pipelined interface{ Pipeline() client.Pipeliner }

// pipeliner is the executor of one.
type pipeliner struct {
	executor
	pipelined
}

func (e pipeliner) DoAll(ctx context.Context, commands []*driver.Command) {
	e.all(ctx, commands, false)
}

func (e pipeliner) OnceAll(ctx context.Context, commands []*driver.Command) {
	e.all(ctx, commands, true)
}

type answered interface {
	client.Cmder
	Val() any
	isUnwritten() bool
}

func (e pipeliner) all(ctx context.Context, commands []*driver.Command, isOnce bool) {
	if commands = e.round(ctx, commands, isOnce); len(commands) == 0 {
		return
	}
	_, _ = e.elsewhere(ctx, commands[0].Err, func() (any, error) { // each command has its error
		if commands = e.round(ctx, commands, isOnce); len(commands) == 0 {
			return nil, nil
		}
		return nil, commands[0].Err
	})
}

// round returns the commands that were not sent, since their connection had ended.
func (e pipeliner) round(ctx context.Context, commands []*driver.Command, isOnce bool) (unused []*driver.Command) {
	cmds := make([]client.Cmder, len(commands))
	for i, c := range commands {
		cmd := newCommand(ctx, c.Args)
		if cmds[i] = cmd; isOnce {
			cmds[i] = once{cmd}
		}
	}
	to, node := e.pipelined, e.node(ctx, commands[0].Args)
	if node != nil {
		// Pipelines of a ClusterClient fail where a slot moves while they are under way, and one node that hangs
		// holds up what is for the others.
		to = node
	}
	p := to.Pipeline()
	_ = p.BatchProcess(ctx, cmds...)
	_, whole := p.Exec(ctx)
	if reply := (client.Error)(nil); errors.As(whole, &reply) && slices.ContainsFunc(cmds, isAnswered) {
		whole = nil // it is the error of one command
	}
	var unknown error
	for i, c := range commands {
		c.Reply, c.Err = e.answer(ctx, c.Args, cmds[i].(answered), whole)
		c.Alone = false
		switch {
		case driver.IsUnused(c.Err):
			unused = append(unused, c)
		case driver.IsDemoted(c.Err):
			c.Alone = true // finds the way to another server
		case driver.IsMoving(c.Err):
			c.Alone = node != nil
		case c.Err != nil && !errors.As(c.Err, new(*driver.ReplyError)):
			c.Alone = node != nil && !isOnce // the client of a node sends nothing twice
			unknown = c.Err
		}
	}
	_ = e.noted(unknown)
	return unused
}

// isAnswered reports whether the server has answered a command. Even nil is answered with an error,
// so what has none and is nil was not answered: the connection was refused, or a hook has kept it
// from being sent.
func isAnswered(cmd client.Cmder) bool { return cmd.Err() != nil || cmd.(answered).Val() != nil }

// answer is that to a command of a pipeline. whole is the error of all commands without an answer.
func (e executor) answer(ctx context.Context, args []any, cmd answered, whole error) (any, error) {
	err := cmd.Err()
	if !isAnswered(cmd) {
		if err = errUnanswered; whole != nil {
			err = whole
		}
	}
	if err != nil {
		err = e.translate(ctx, args, err, cmd.isUnwritten())
		if _, isOnce := cmd.(once); !isOnce && !cmd.isUnwritten() {
			err = driver.Repeated(err)
		}
	}
	e.heard.Note(err)
	if err != nil {
		return nil, err
	}
	return reply(cmd.Val()), nil
}

var errUnanswered = errors.New("go-redis has left a command of a pipeline unanswered")

// Lane is the address of a node of a cluster. Its client would stay in memory when the node has left.
func (e pipeliner) Lane(ctx context.Context, args []any) any {
	if node := e.node(ctx, args); node != nil {
		return node.Options().Addr
	}
	return nil
}

// node is the client of a node of a cluster, or nil. If it can't be told, the cluster client will say why.
func (e pipeliner) node(ctx context.Context, args []any) *client.Client {
	cluster, ok := e.client.(cluster)
	if !ok {
		return nil
	}
	key := keyOf(args)
	if key == "" {
		return nil
	}
	master, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil
	}
	return master
}

// keyOf is the first key of a command, as far as there is one.
func keyOf(args []any) string {
	at := 1
	if len(args) > 0 && (args[0] == "EVALSHA" || args[0] == "EVAL") {
		at = 3
	}
	if at >= len(args) {
		return ""
	}
	key, _ := args[at].(string)
	return key
}
