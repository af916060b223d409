package goredis

import (
	"context"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/go-redis/v9"
)

func (e executor) Subscribe(ctx context.Context) driver.Subscription {
	return subscription{ctx, e, e.client.Subscribe(ctx)}
}

type subscription struct {
	ctx context.Context
	executor
	*client.PubSub
}

func (s subscription) Subscribe(channel string) error {
	return s.noted(s.fault(s.PubSub.Subscribe(s.ctx, channel)))
}

func (s subscription) Unsubscribe(channel string) error {
	return s.fault(s.PubSub.Unsubscribe(s.ctx, channel))
}

func (s subscription) Ping() error { return s.fault(s.PubSub.Ping(s.ctx)) }

// fault names no server of a cluster: it may be any.
func (s subscription) fault(err error) error { return s.translate(s.ctx, nil, err, false) }

func (s subscription) Receive() (driver.Event, error) {
	msg, err := s.PubSub.Receive(s.ctx)
	if err != nil {
		return driver.Event{}, s.fault(err)
	}
	switch msg := msg.(type) {
	case *client.Message:
		return driver.Event{Kind: driver.EventMessage, Channel: msg.Channel, Payload: msg.Payload}, nil
	case *client.Subscription:
		if msg.Kind == "subscribe" {
			return driver.Event{Kind: driver.EventSubscribed, Channel: msg.Channel}, nil
		}
		return driver.Event{Kind: driver.EventUnsubscribed, Channel: msg.Channel}, nil
	}
	return driver.Event{Kind: driver.EventPong}, nil
}
