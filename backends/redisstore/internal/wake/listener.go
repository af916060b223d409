// Package wake keeps the one connection of a Store for wake-ups, and calls the waiters of a
// channel. It replaces that connection itself: PubSub of go-redis hides error replies in its channel
// interface, and redigo does not reconnect.
package wake

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/outcome"
)

const (
	pingInterval   = 5 * time.Second // a connection that is silent for two of these is closed
	firstReconnect = 10 * time.Millisecond
	maxReconnect   = time.Second
)

// Listener listens for all waiters of a Store on one connection, which exists while someone waits.
// Two goroutines serve it: one subscribes and unsubscribes channels, the other receives.
type Listener struct {
	connect func(context.Context) driver.Subscription

	mu      sync.Mutex
	topics  map[string]*topic
	begun   int // topics so far
	running bool
	changed chan struct{} // holds one note that topics came or went
}

// New returns a Listener whose connections come from connect.
func New(connect func(context.Context) driver.Subscription) *Listener {
	return &Listener{connect: connect, topics: map[string]*topic{}, changed: make(chan struct{}, 1)}
}

// topic is a channel that someone waits on.
type topic struct {
	channel  string
	number   int // topics are asked for in this order
	watchers map[*watcher]bool
	told     func(message string) // gets the messages; nil: each message wakes all watchers
	asked    bool                 // on the present connection
	active   bool                 // confirmed there
	before   bool                 // confirmed on an earlier one: messages in between are lost
}

type watcher struct {
	wake  func()
	ready chan error // answers once; nil: nobody waits for the answer
}

// request waits for its answer; answers come in order.
type request struct {
	topic *topic // nil for a ping and for UNSUBSCRIBE
}

func (r request) isFor(channel string) bool { return r.topic != nil && r.topic.channel == channel }

// Watch calls wake for each message of channel until ctx is done, and when the connection was
// replaced. It returns when the channel is active, or refused, or ctx is done.
func (w *Listener) Watch(ctx context.Context, channel string, wake func()) error {
	leave, err := w.Join(ctx, channel, wake, nil)
	if err == nil {
		context.AfterFunc(ctx, leave)
	}
	return err
}

// Join is Watch until leave is called. A server that can't be reached is tried again. If told is
// not nil, it gets the messages in place of wake. All who join a channel give the same told, or
// nil.
func (w *Listener) Join(ctx context.Context, channel string, wake func(), told func(string)) (leave func(), err error) {
	me := &watcher{wake: wake, ready: make(chan error, 1)}
	leave, active := w.join(channel, me, told)
	if active {
		return leave, nil
	}
	select {
	case err = <-me.ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		leave()
	}
	return leave, err
}

// Listen is Join that returns at once. The channel is active, or refused, before any that is joined
// later.
func (w *Listener) Listen(channel string, told func(string)) (leave func()) {
	leave, _ = w.join(channel, &watcher{wake: func() {}}, told)
	return leave
}

func (w *Listener) join(channel string, me *watcher, told func(string)) (leave func(), active bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[channel]
	if t == nil {
		w.begun++
		t = &topic{channel: channel, number: w.begun, watchers: map[*watcher]bool{}, told: told}
		w.topics[channel] = t
	}
	t.watchers[me] = true
	if !w.running {
		w.running = true
		go w.run()
	}
	w.note()
	return func() { w.leave(t, me) }, t.active
}

func (w *Listener) leave(t *topic, me *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(t.watchers, me)
	if len(t.watchers) == 0 && w.topics[t.channel] == t {
		delete(w.topics, t.channel)
		w.note()
	}
}

func (w *Listener) note() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run keeps a connection for as long as someone waits.
func (w *Listener) run() {
	for pause := firstReconnect; ; pause = min(2*pause, maxReconnect) {
		s := &session{Listener: w, sub: w.connect(context.Background()), asked: map[string]*topic{}}
		err := s.serve()
		_ = s.sub.Close() // it is done with either way
		if w.idle(err) {
			return
		}
		// else it works for some channels, and will not for others
		if s.confirmed && !errors.As(err, new(*driver.ReplyError)) {
			pause = firstReconnect
		}
		if !w.sleep(pause) {
			return
		}
	}
}

// sleep returns false as soon as nobody waits any more.
func (w *Listener) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-w.changed:
			if w.idle(nil) {
				return false
			}
		}
	}
}

// idle tells whether nobody waits any more; then the next waiter starts anew. If err is permanent,
// all watchers that wait for an answer get it: the next connection would be refused too.
func (w *Listener) idle(err error) bool {
	permanent := outcome.Permanent(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.topics {
		t.before = t.before || t.active
		t.asked, t.active = false, false
		if permanent {
			w.refuse(t, err)
		}
	}
	if len(w.topics) == 0 {
		w.running = false
		return true
	}
	return false
}

// refuse answers the watchers that wait for t to become active. The others poll from now on.
func (w *Listener) refuse(t *topic, err error) {
	for me := range t.watchers {
		select {
		case me.ready <- err:
		default:
		}
	}
	if w.topics[t.channel] == t {
		delete(w.topics, t.channel)
	}
}

// wakes are the functions to call for a message of t, which may be nil: nobody waits on it.
func (t *topic) wakes() []func() {
	if t == nil {
		return nil
	}
	all := make([]func(), 0, len(t.watchers))
	for me := range t.watchers {
		all = append(all, me.wake)
	}
	return all
}
