package natsstore

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// Watch implements [backends.Store]. It is a subscription of core NATS, which brings each message
// at most once. When the connection was made again, a message may have been missed, so every
// watcher is woken. The subject is not that of the lock: a message there would come before the
// stream has stored it. While the connection is silent, there is a subscription on the second one, too.
func (s *Store) Watch(ctx context.Context, key string, wake func()) error {
	if err := s.ready(ctx, key); err != nil {
		return err
	}
	if status := s.conn.Status(); status == nats.CLOSED {
		return s.own().notConnected(status)
	}
	connected := s.conn.StatusChanged(nats.CONNECTED)
	released := make(chan *nats.Msg, pendingWakes)
	subject := s.wakes(key)
	before := s.conn.LastError()
	sub, err := s.conn.ChanSubscribe(subject, released)
	if err == nil {
		err = s.flush(ctx, subject, before)
	}
	if err != nil {
		s.conn.RemoveStatusListener(connected)
		if sub != nil {
			_ = sub.Unsubscribe() // it fails only if there is no subscription
		}
		return err
	}
	go func() {
		defer s.conn.RemoveStatusListener(connected)
		defer func() { _ = sub.Unsubscribe() }()
		var last *spare
		var also *nats.Subscription
		defer func() { _ = also.Unsubscribe() }() // without one it fails
		for {
			d, changed := s.first.doubted()
			now := d.usable()
			if now == nil || now == last {
				select {
				case <-released:
				case <-connected:
				case <-changed:
					continue
				case <-ctx.Done():
					return
				}
			} else {
				last = now
				also, _ = now.conn.ChanSubscribe(subject, released) // it fails only if the connection is closed
			}
			if ctx.Err() == nil {
				wake()
			}
		}
	}()
	return nil
}

// pendingWakes is how many wake-ups of a key are kept while one is dealt with. wake does not block.
const pendingWakes = 64

// flush returns when the server has the subscription. Without a connection, the client library
// subscribes when there is one again, and that wakes the watcher. While the connection is silent, the
// second one has the subscription.
func (s *Store) flush(ctx context.Context, subject string, before error) error {
	d, changed := s.first.doubted()
	if d != nil || s.conn.Status() != nats.CONNECTED {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-limited.Done():
		}
	}()
	defer time.AfterFunc(silence, s.late).Stop()
	err := s.conn.FlushWithContext(limited)
	if denied := s.own().denied(subject, before); denied != nil {
		return denied
	}
	if err != nil && ctx.Err() != nil {
		return s.over(ctx)
	}
	return nil
}
