package sqlstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A Listener hears the messages of a channel on a connection of its own. It is for packages that adapt a
// driver; see [PostgreSQLOver].
type Listener interface {
	// Listen calls active when the channel is open, and then heard with each message, until ctx is done or
	// the connection is lost.
	Listen(ctx context.Context, channel string, active func(), heard func(message string)) error

	// Serves tells that the connection serves calls of the store too. So it is kept while a lock is held.
	Serves() bool
}

// wakes hears for the waiters of a store, while there are any. When the channel is open, it sends messages
// to itself by the way that releases take. Behind a pooler that gives each transaction another connection,
// none of these comes, nor would any other: then waiters poll.
type wakes struct {
	store  *PostgreSQL
	listen Listener

	mu       sync.Mutex
	waiters  int // that want to hear
	stop     context.CancelFunc
	look     *time.Timer   // nil: somebody waits, or there is no connection
	idle     bool          // at the last look nobody waited, and no lock was held
	state    chan struct{} // closed when err is known, or the channel works
	works    bool
	err      error
	watchers map[string]map[*watcher]bool // by key
}

type watcher struct{ wake func() }

const (
	probes         = 2           // messages to itself that the database takes
	probeLimit     = time.Second // for one to come, and four times as long as the database took to take it
	firstReconnect = 10 * time.Millisecond
	maxReconnect   = time.Second
)

func newWakes(s *PostgreSQL, l Listener) *wakes {
	return &wakes{store: s, listen: l, watchers: map[string]map[*watcher]bool{}}
}

// join returns when the channel works, or with the reason why it does not.
func (w *wakes) join(ctx context.Context) (leave func(), err error) {
	w.mu.Lock()
	w.waiters++
	if w.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		w.stop, w.state, w.works, w.err = stop, make(chan struct{}), false, nil
		go w.run(ctx)
	}
	state := w.state
	w.mu.Unlock()
	select {
	case <-state:
		w.mu.Lock()
		err = w.err
		w.mu.Unlock()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		w.leave()
		return nil, err
	}
	return w.leave, nil
}

func (w *wakes) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = false
	if w.waiters--; w.waiters == 0 && w.look == nil {
		w.rest()
	}
}

// rest ends the connection if nobody waits. If it serves calls, it ends when no lock is held either, twice
// in a row: the next call may need it.
func (w *wakes) rest() {
	w.look = nil
	if w.waiters > 0 || w.stop == nil {
		return
	}
	switch serves := w.listen.Serves(); {
	case serves && w.store.own.holding():
		w.idle = false
	case !serves || w.idle:
		w.stop()
		w.stop = nil
		return
	default:
		w.idle = true
	}
	w.look = time.AfterFunc(reserveIdle, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.rest()
	})
}

// run keeps a connection until ctx is done.
func (w *wakes) run(ctx context.Context) {
	for pause := firstReconnect; ctx.Err() == nil; pause = min(2*pause, maxReconnect) {
		err := w.session(ctx)
		if backends.Permanent(err) || errors.Is(err, errors.ErrUnsupported) {
			w.settle(ctx, err)
			<-ctx.Done() // those that come meanwhile get the same answer
			return
		}
		w.mu.Lock()
		if w.works {
			pause, w.works = firstReconnect, false
		}
		w.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// session is one connection.
func (w *wakes) session(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	came := make(chan struct{})
	arrived := sync.OnceFunc(func() {
		close(came)
		w.open(ctx)
	})
	err := w.listen.Listen(ctx, w.store.channel, func() {
		go func() {
			if !w.probe(ctx, came) {
				end(errNoProbe)
			}
		}()
	}, func(message string) {
		if message == "p" {
			arrived()
			return
		}
		w.heard(message)
	})
	if cause := context.Cause(ctx); errors.Is(cause, errNoProbe) {
		return cause
	}
	return explain(ctx, err)
}

// probe is false if messages that the database has taken do not come. That a machine is busy, a server is far
// or a pool is used up makes a message late, and is no reason to poll for the rest of the wait.
func (w *wakes) probe(ctx context.Context, came <-chan struct{}) bool {
	for taken := 0; taken < probes; {
		began := time.Now()
		err := w.store.behind("SELECT pg_notify($1, 'p') IS NOT NULL", w.store.channel)
		wait := maxReconnect
		switch {
		case err == nil:
			taken++
			wait = probeLimit + 4*time.Since(began)
		case backends.Permanent(w.store.explain(ctx, err)):
			return false
		}
		select {
		case <-came:
			return true
		case <-ctx.Done():
			return true
		case <-time.After(wait):
		}
	}
	return false
}

var errNoProbe = fmt.Errorf("a message that was sent through the pool did not come to the listener, "+
	"so it is not connected to the same database, or a pooler is in between: waiters poll: %w", errors.ErrUnsupported)

// open lets waiters in. Messages may have been missed before, so it wakes those that are there already.
func (w *wakes) open(ctx context.Context) {
	w.settle(ctx, nil)
	w.store.turns.WakeAll()
	w.mu.Lock()
	keys := make([]string, 0, len(w.watchers))
	for key := range w.watchers {
		keys = append(keys, key)
	}
	w.mu.Unlock()
	for _, key := range keys {
		go w.again(key)
	}
}

// settle answers those that wait for the channel.
func (w *wakes) settle(ctx context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil { // the last waiter has left
		return
	}
	w.works, w.err = err == nil, err
	select {
	case <-w.state:
	default:
		close(w.state)
	}
}

// watch registers wake for the releases of a key.
func (w *wakes) watch(ctx context.Context, key string, wake func()) error {
	leave, err := w.join(ctx)
	if err != nil {
		return err
	}
	me := &watcher{wake}
	w.mu.Lock()
	if w.watchers[key] == nil {
		w.watchers[key] = map[*watcher]bool{}
	}
	w.watchers[key][me] = true
	w.mu.Unlock()
	end := func() {
		if w.remove(key, me) {
			w.forget(key)
		}
		leave()
	}
	var ok bool
	err = w.store.exec.Row(ctx, "SELECT lockstep.watch($1,$2)", []any{w.store.key(key), w.store.channel}, &ok)
	if err = w.store.explain(ctx, err); err != nil && (backends.Permanent(err) || ctx.Err() != nil) {
		go end()
		return err
	}
	if err != nil { // the channel works, and the database will too
		go w.again(key)
	}
	context.AfterFunc(ctx, end)
	return nil
}

// remove tells whether nobody watches the key any more.
func (w *wakes) remove(key string, me *watcher) (last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watchers[key], me)
	if len(w.watchers[key]) > 0 {
		return false
	}
	delete(w.watchers, key)
	return true
}

// again registers a key anew, whose registration has ended with a release, and wakes its watchers. It
// registers first: a release after that is told again.
func (w *wakes) again(key string) {
	w.mu.Lock()
	watched := len(w.watchers[key]) > 0
	w.mu.Unlock()
	if watched {
		_ = w.store.behind("SELECT lockstep.watch($1,$2)", w.store.key(key), w.store.channel)
	}
	w.mu.Lock()
	var all []func()
	for me := range w.watchers[key] {
		all = append(all, me.wake)
	}
	w.mu.Unlock()
	if watched && len(all) == 0 { // they have left meanwhile
		w.forget(key)
	}
	for _, wake := range all {
		wake()
	}
}

// forget ends the registration of a key that nobody watches any more. If somebody has come back
// meanwhile, the key is registered again, since the two statements may have crossed.
func (w *wakes) forget(key string) {
	_ = w.store.behind("SELECT lockstep.unwatch($1,$2)", w.store.key(key), w.store.channel)
	w.mu.Lock()
	back := len(w.watchers[key]) > 0
	w.mu.Unlock()
	if back {
		w.again(key)
	}
}

// heard takes a message: w (the key is free), r (there is a reservation for the waiter) or n (for the
// waiter before it), then the waiter, @ and the key in hex.
func (w *wakes) heard(message string) {
	if message == "" {
		return
	}
	kind := message[0]
	waiter, digits, _ := strings.Cut(message[1:], "@")
	waiter = fromASCII(waiter)
	text, err := hex.DecodeString(digits)
	key, ours := strings.CutPrefix(string(text), w.store.config.prefix)
	if err != nil || !ours {
		return
	}
	if kind == 'w' {
		go w.again(key)
		return
	}
	t := w.store.turns.Find(waiter)
	switch waits := t != nil && t.Key == key; {
	case waits && kind == 'r':
		t.Wake()
	case waits:
		w.store.turns.LookLater(t)
	case kind == 'r': // the waiter has left
		go w.store.quit(key, waiter)
	}
}
