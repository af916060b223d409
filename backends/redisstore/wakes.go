package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/cleanup"
)

var errPolling = fmt.Errorf("wake-ups are switched off: %w", errors.ErrUnsupported)

const (
	pingInterval   = 5 * time.Second // a connection that is silent for two of these is given up
	firstReconnect = 10 * time.Millisecond
	maxReconnect   = time.Second
)

// wakes hears for all waiters of a Store on one connection, which exists while someone waits. Two goroutines serve it:
// one asks for channels and gives them back, one receives.
type wakes struct {
	exec driver.Executor

	mu      sync.Mutex
	topics  map[string]*topic
	running bool
	changed chan struct{} // holds one note that topics came or went
}

// topic is a channel that someone waits on.
type topic struct {
	channel  string
	watchers map[*watcher]bool
	told     func(message string) // takes the messages in place of the watchers; nil: they are hints for all
	asked    bool                 // on the present connection
	active   bool                 // confirmed there
	before   bool                 // confirmed on an earlier one: what was published in between is lost
}

type watcher struct {
	wake  func()
	ready chan error // answers once; nil: the channel was active when he came
}

// request waits for its answer; answers come in order.
type request struct {
	topic *topic // nil for a ping and for a channel given back
}

func (r request) isFor(channel string) bool { return r.topic != nil && r.topic.channel == channel }

// watch wakes until ctx is done. It returns when the channel is active, refused, or ctx is done.
func (w *wakes) watch(ctx context.Context, channel string, wake func()) error {
	leave, err := w.join(ctx, channel, wake, nil)
	if err == nil {
		context.AfterFunc(ctx, leave)
	}
	return err
}

// join is watch until leave is called. A server that can't be reached is tried again. All who join a channel give the same told,
// or nil.
func (w *wakes) join(ctx context.Context, channel string, wake func(), told func(string)) (leave func(), err error) {
	me := &watcher{wake: wake}
	w.mu.Lock()
	t := w.topics[channel]
	if t == nil {
		t = &topic{channel: channel, watchers: map[*watcher]bool{}, told: told}
		if w.topics == nil {
			w.topics, w.changed = map[string]*topic{}, make(chan struct{}, 1)
		}
		w.topics[channel] = t
	}
	t.watchers[me] = true
	active := t.active
	if !active {
		me.ready = make(chan error, 1)
	}
	if !w.running {
		w.running = true
		go w.run()
	}
	w.note()
	w.mu.Unlock()

	leave = func() { w.leave(t, me) }
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

func (w *wakes) leave(t *topic, me *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(t.watchers, me)
	if len(t.watchers) == 0 && w.topics[t.channel] == t {
		delete(w.topics, t.channel)
		w.note()
	}
}

func (w *wakes) note() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run keeps a connection for as long as someone waits.
func (w *wakes) run() {
	for pause := firstReconnect; ; pause = min(2*pause, maxReconnect) {
		s := &session{wakes: w, sub: w.exec.Subscribe(context.Background()), asked: map[string]*topic{}}
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
func (w *wakes) sleep(d time.Duration) bool {
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

// idle tells whether nobody waits any more; then the next waiter starts anew. All who wait for an answer get err if it
// is a refusal: the next connection would be refused as well.
func (w *wakes) idle(err error) bool {
	refused := cleanup.Permanent(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.topics {
		t.before = t.before || t.active
		t.asked, t.active = false, false
		if refused {
			w.refuse(t, err)
		}
	}
	if len(w.topics) == 0 {
		w.running = false
		return true
	}
	return false
}

// refuse answers those who wait for t to become active. Who has been told that it is must poll.
func (w *wakes) refuse(t *topic, err error) {
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

// wakes of a topic that nobody waits on are none.
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
