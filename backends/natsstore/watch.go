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
	w := &watcher{subject: s.wakes(key), released: make(chan *nats.Msg, pendingWakes), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = s.subscribe(ctx, w)
	}()
	if err := s.await(ctx, w); err != nil {
		go w.end(s.conn)
		return err
	}
	go s.watch(ctx, w, wake)
	return nil
}

// A watcher has a subscription on the first connection.
type watcher struct {
	subject  string
	released chan *nats.Msg
	done     chan struct{} // closed when the following is known

	connected chan nats.Status
	sub       *nats.Subscription
	err       error
}

func (s *Store) subscribe(ctx context.Context, w *watcher) (err error) {
	if status := s.conn.Status(); status == nats.CLOSED {
		return s.own().notConnected(status)
	}
	w.connected = s.conn.StatusChanged(nats.CONNECTED)
	before := s.conn.LastError()
	if w.sub, err = s.conn.ChanSubscribe(w.subject, w.released); err != nil {
		return err
	}
	return s.flush(ctx, w.subject, before)
}

func (w *watcher) end(conn *nats.Conn) {
	<-w.done
	if w.connected != nil {
		conn.RemoveStatusListener(w.connected)
	}
	_ = w.sub.Unsubscribe() // it fails if there is no subscription
}

// await waits for a subscription, but not for a connection that takes no more bytes: then the second one
// has a subscription.
func (s *Store) await(ctx context.Context, w *watcher) error {
	defer time.AfterFunc(silence, s.late).Stop()
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if d, changed := s.first.doubted(); d.usable() == nil {
		select {
		case <-w.done:
			return w.err
		case <-changed:
		case <-limited.Done():
		}
	}
	select {
	case <-w.done:
		return w.err
	case <-time.After(grace):
		return s.over(ctx)
	}
}

func (s *Store) watch(ctx context.Context, w *watcher, wake func()) {
	defer w.end(s.conn)
	done := w.done // nil: the subscription is there, and wakes
	var connected <-chan nats.Status
	select {
	case <-done:
		done, connected = nil, w.connected
	default:
	}
	var last *spare
	var also *nats.Subscription
	defer func() { _ = also.Unsubscribe() }() // without one it fails
	for {
		d, changed := s.first.doubted()
		now := d.usable()
		if now == nil || now == last {
			select {
			case <-w.released:
			case <-connected:
			case <-done:
				done, connected = nil, w.connected
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		} else {
			last = now
			also, _ = now.conn.ChanSubscribe(w.subject, w.released) // it fails only if the connection is closed
		}
		if ctx.Err() == nil {
			wake()
		}
	}
}

// wake tells the watchers that a key was released.
func (s *Store) wake(ctx context.Context, key string) {
	soon(ctx, func() { _ = s.best().Publish(s.wakes(key), nil) }) // waiters poll as well
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
	err := s.conn.FlushWithContext(limited)
	if denied := s.own().denied(subject, before); denied != nil {
		return denied
	}
	if err != nil && ctx.Err() != nil {
		return s.over(ctx)
	}
	return nil
}
