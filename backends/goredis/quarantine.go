package goredis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/go-redis/v9"
)

// Quarantine adds to o what a store needs to see the connections of a client, and returns the option
// that gives it to the store. Call it before the client is made, once for each client:
//
//	options := &client.Options{Addr: addr}
//	quarantine := goredis.Quarantine(options)
//	store := goredis.New(client.NewClient(options), quarantine)
//
// [New] can't do this by itself: the connections that a client has made already would not be seen,
// and options must not change while their client is in use. Several stores on one client share
// the option.
//
// On each new connection, INFO server and INFO replication are sent behind OnConnect of o; without the
// permission for INFO nothing is noticed, and Check of the store has a finding. Connections to replicas are
// refused, so leave ReadOnly and the like off. In a cluster each node has a quarantine of its own. See
// driver.Quarantine for what is noticed, and what is not.
func Quarantine[O client.Options | client.FailoverOptions | client.ClusterOptions](o *O) redisstore.Option {
	if o == nil {
		return redisstore.Invalid(noOptions)
	}
	q := driver.NewQuarantine()
	switch o := any(o).(type) {
	case *client.Options:
		watch(q, o.Addr, &o.Dialer, &o.OnConnect, o.DialTimeout, o.TLSConfig)
	case *client.FailoverOptions:
		watch(q, o.MasterName, &o.Dialer, &o.OnConnect, o.DialTimeout, o.TLSConfig)
	case *client.ClusterOptions:
		q.PerNode()
		newClient := o.NewClient
		if newClient == nil {
			newClient = client.NewClient
		}
		o.NewClient = func(o *client.Options) *client.Client {
			watch(q, o.Addr, &o.Dialer, &o.OnConnect, o.DialTimeout, o.TLSConfig)
			c := newClient(o)
			c.AddHook(node{q, o.Addr}) // nobody uses c yet
			return c
		}
	}
	return redisstore.Observed("", q)
}

type (
	dialer    = func(ctx context.Context, network, addr string) (net.Conn, error)
	onConnect = func(ctx context.Context, cn *client.Conn) error
)

const defaultDialTimeout = 5 * time.Second // of go-redis

// watch wraps the fields of some options.
func watch(q *driver.Quarantine, endpoint string, dial *dialer, connect *onConnect, timeout time.Duration, config *tls.Config) {
	ownDial, ownConnect := *dial, *connect
	if ownDial == nil {
		setDefault(&timeout, defaultDialTimeout)
		ownDial = client.NewDialer(&client.Options{DialTimeout: timeout, TLSConfig: config})
	}
	*dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := ownDial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return q.Track(endpoint, c), nil
	}
	*connect = func(ctx context.Context, cn *client.Conn) error {
		if ownConnect != nil { // it may authenticate
			if err := ownConnect(ctx, cn); err != nil {
				return err
			}
		}
		info, err := ask(ctx, cn)
		err = q.Saw(endpoint, info, err)
		if errors.Unwrap(err) != nil {
			return errors.Join(err) // go-redis unwraps an error once, and leaves a joined one alone
		}
		return err
	}
}

// ask returns what Saw is to be told.
func ask(ctx context.Context, cn *client.Conn) (info string, err error) {
	p := cn.Pipeline()
	server, replication := p.Info(ctx, "server"), p.Info(ctx, "replication")
	_, _ = p.Exec(ctx) // each has its error
	for _, cmd := range []*client.StringCmd{server, replication} {
		if err := newExecutor(nil).translate(ctx, nil, cmd.Err(), true); err != nil {
			return "", err
		}
		info += cmd.Val()
	}
	return info, nil
}

// node refuses grants on a node of a cluster, however the command has come there: the slot may have moved.
type node struct {
	q        *driver.Quarantine
	endpoint string
}

func (n node) DialHook(next client.DialHook) client.DialHook { return next }

func (n node) ProcessHook(next client.ProcessHook) client.ProcessHook {
	return func(ctx context.Context, cmd client.Cmder) error {
		if n.refuses(cmd, false) {
			return cmd.Err()
		}
		if err := next(ctx, cmd); err != nil || !n.refuses(cmd, true) {
			return err
		}
		return cmd.Err()
	}
}

func (n node) ProcessPipelineHook(next client.ProcessPipelineHook) client.ProcessPipelineHook {
	return func(ctx context.Context, cmds []client.Cmder) (err error) {
		send := make([]client.Cmder, 0, len(cmds))
		for _, cmd := range cmds {
			if n.refuses(cmd, false) {
				err = cmd.Err()
			} else {
				send = append(send, cmd)
			}
		}
		if len(send) == 0 {
			return err
		}
		if failed := next(ctx, send); failed != nil {
			err = failed
		}
		for _, cmd := range send {
			if cmd.Err() == nil && n.refuses(cmd, true) {
				err = cmd.Err()
			}
		}
		return err
	}
}

// refuses sets the error of a grant of ours that does not count.
func (n node) refuses(cmd client.Cmder, sent bool) bool {
	grant, ours := cmd.(once)
	if !ours || !driver.Grants(grant.Cmd.Args()) { // not Args of once, which are for the wire
		return false
	}
	err := n.q.Refuses(n.endpoint, sent)
	if err != nil {
		cmd.SetErr(err)
	}
	return err != nil
}
