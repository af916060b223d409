package wake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

// fakeServer makes connections that answer as the test wants.
type fakeServer struct {
	mu      sync.Mutex
	conns   []*fakeConn
	mute    bool             // requests are taken and not answered
	refuses map[string]error // by channel
	down    error            // what asking fails with
}

func (f *fakeServer) Subscribe(context.Context) driver.Subscription {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &fakeConn{server: f, events: make(chan any, 1000), closed: make(chan struct{})}
	f.conns = append(f.conns, c)
	return c
}

type fakeConn struct {
	server *fakeServer
	events chan any // an Event or an error
	closed chan struct{}
	once   sync.Once
	subs   []string // subscribed channels, guarded by server.mu
}

func (c *fakeConn) ask(answer driver.Event, change func()) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	select {
	case <-c.closed:
		return io.ErrClosedPipe
	default:
	}
	switch err := c.server.refuses[answer.Channel]; {
	case c.server.down != nil:
		return c.server.down
	case c.server.mute:
	case err != nil && answer.Kind == driver.EventSubscribed:
		c.events <- err
	default:
		change()
		c.events <- answer
	}
	return nil
}

func (c *fakeConn) Subscribe(channel string) error {
	return c.ask(driver.Event{Kind: driver.EventSubscribed, Channel: channel}, func() { c.subs = append(c.subs, channel) })
}

func (c *fakeConn) Unsubscribe(channel string) error {
	return c.ask(driver.Event{Kind: driver.EventUnsubscribed, Channel: channel}, func() {
		c.subs = slices.DeleteFunc(c.subs, func(s string) bool { return s == channel })
	})
}

func (c *fakeConn) Ping() error { return c.ask(driver.Event{Kind: driver.EventPong}, func() {}) }

func (c *fakeConn) Receive() (driver.Event, error) {
	select {
	case e := <-c.events:
		if err, ok := e.(error); ok {
			return driver.Event{}, err
		}
		return e.(driver.Event), nil
	case <-c.closed:
		return driver.Event{}, io.ErrClosedPipe
	}
}

func (c *fakeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (f *fakeServer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// open lists the channels of connections that are not closed, one list each.
func (f *fakeServer) open() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []string{}
	for _, c := range f.conns {
		select {
		case <-c.closed:
		default:
			slices.Sort(c.subs)
			all = append(all, fmt.Sprint(c.subs))
		}
	}
	return fmt.Sprint(all)
}

func (f *fakeServer) publish(channel string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		if slices.Contains(c.subs, channel) {
			c.events <- driver.Event{Kind: driver.EventMessage, Channel: channel}
		}
	}
}

// cut breaks the present connection.
func (f *fakeServer) cut() { f.tell(io.EOF) }

// tell sends an Event or an error on the present connection.
func (f *fakeServer) tell(what any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[len(f.conns)-1].events <- what
}

// bell counts wakes.
type bell struct {
	mu sync.Mutex
	n  int
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
}

func (b *bell) rung() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

func inBubble(t *testing.T, test func(t *testing.T, f *fakeServer, w *Listener)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{refuses: map[string]error{}}
		test(t, f, New(f.Subscribe))
	})
}

func watch(t *testing.T, w *Listener, channel string, wake func()) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if err := w.Watch(ctx, channel, wake); err != nil {
		t.Fatalf("watch %s: %v", channel, err)
	}
	return cancel
}

func TestOneConnectionWithTheChannelsThatSomeoneWaitsOn(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		leaveA := watch(t, w, "a", func() {})
		leaveB := watch(t, w, "b", func() {})
		leaveB2 := watch(t, w, "b", func() {})
		expectOpen(t, f, "[[a b]]")
		leaveA()
		expectOpen(t, f, "[[b]]")
		leaveB()
		expectOpen(t, f, "[[b]]")
		leaveB2()
		expectOpen(t, f, "[]")
		if w.running {
			t.Error("goroutines serve nobody")
		}
		defer watch(t, w, "c", func() {})()
		expectOpen(t, f, "[[c]]")
	})
}

func expectOpen(t *testing.T, f *fakeServer, want string) {
	t.Helper()
	synctest.Wait()
	if got := f.open(); got != want {
		t.Errorf("open connections and their channels: %s, want %s", got, want)
	}
}

func TestAMessageWakesAllWhoWatchItsChannel(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		var a1, a2, b bell
		defer watch(t, w, "a", a1.ring)()
		leave := watch(t, w, "a", a2.ring)
		defer watch(t, w, "b", b.ring)()
		f.publish("a")
		synctest.Wait()
		leave()
		synctest.Wait()
		f.publish("a")
		synctest.Wait()
		if a1.rung() != 2 || a2.rung() != 1 || b.rung() != 0 {
			t.Errorf("wakes: %d, %d and %d; want 2, 1 and 0", a1.rung(), a2.rung(), b.rung())
		}
	})
}

func TestWhoComesBackWhileItsChannelIsGivenBackIsHeard(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		defer watch(t, w, "other", func() {})()
		for range 100 { // leaving and coming again reach the asking goroutine together
			var b bell
			watch(t, w, "a", func() {})()
			leave := watch(t, w, "a", b.ring)
			f.publish("a")
			synctest.Wait()
			if b.rung() != 1 {
				t.Fatalf("woken %d times, channels %s", b.rung(), f.open())
			}
			leave()
		}
	})
}

func TestAConnectionThatBreaksIsReplacedAndIsAHintForAll(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		var a, b bell
		defer watch(t, w, "a", a.ring)()
		defer watch(t, w, "b", b.ring)()
		f.set(func() { f.down = errors.New("refused") })
		f.cut()
		time.Sleep(10 * time.Second)
		if a.rung()+b.rung() != 0 {
			t.Error("woken while nothing is known")
		}
		f.set(func() { f.down = nil })
		time.Sleep(maxReconnect)
		synctest.Wait()
		if a.rung() != 1 || b.rung() != 1 {
			t.Errorf("after the reconnect: %d and %d wakes, want one each", a.rung(), b.rung())
		}
		expectOpen(t, f, "[[a b]]")
		f.publish("a")
		synctest.Wait()
		if a.rung() != 2 {
			t.Error("the new connection is not heard")
		}
	})
}

func TestWatchWaitsForAServerThatIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		f.set(func() { f.down = errors.New("refused") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Watch(ctx, "a", func() {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("watch = %v", err)
		}
		active := make(chan error)
		go func() { active <- w.Watch(t.Context(), "a", func() {}) }()
		time.Sleep(5 * time.Second)
		f.set(func() { f.down = nil })
		if err := <-active; err != nil {
			t.Errorf("watch = %v once the server is back", err)
		}
	})
}

func TestWatchWaitsForTheNextConnectionAlthoughAnotherWatchesItsChannel(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		defer watch(t, w, "a", func() {})()
		f.set(func() { f.down = errors.New("refused") })
		f.cut()
		synctest.Wait()
		active := make(chan error, 1)
		go func() { active <- w.Watch(t.Context(), "a", func() {}) }()
		time.Sleep(5 * time.Second)
		select {
		case err := <-active:
			t.Fatalf("watch = %v while there is no connection", err)
		default:
		}
		f.set(func() { f.down = nil })
		if err := <-active; err != nil {
			t.Errorf("watch = %v once the server is back", err)
		}
		expectOpen(t, f, "[[a]]")
	})
}

func TestABubbleMayEndWhileTheServerIsDown(t *testing.T) {
	for range 20 {
		inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
			leave := watch(t, w, "a", func() {})
			f.set(func() { f.down = errors.New("refused") })
			f.cut()
			time.Sleep(time.Minute)
			leave()
		}) // which panics if a goroutine is left that sleeps
	}
}

func TestARefusedChannelIsToldAtOnceAndHarmsNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		var b bell
		defer watch(t, w, "b", b.ring)()
		f.set(func() { f.refuses["a"] = &driver.ReplyError{Text: "NOPERM no channel"} })
		before := time.Now()
		var refused *driver.ReplyError
		if err := w.Watch(t.Context(), "a", func() {}); !errors.As(err, &refused) {
			t.Errorf("watch = %v", err)
		}
		if time.Since(before) != 0 {
			t.Errorf("told after %v", time.Since(before))
		}
		f.publish("b")
		synctest.Wait()
		if b.rung() != 1 {
			t.Error("the other channel is not heard any more")
		}
		f.set(func() { delete(f.refuses, "a") })
		defer watch(t, w, "a", func() {})() // it was granted in the meantime
	})
}

func TestARefusedConnectionIsToldAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		f.set(func() { f.down = &driver.ReplyError{Text: "NOAUTH Authentication required."} })
		if err := w.Watch(t.Context(), "a", func() {}); err == nil {
			t.Error("watch = nil")
		}
		expectOpen(t, f, "[]")
	})
}

func TestASilentConnectionIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		var a bell
		defer watch(t, w, "a", a.ring)()
		time.Sleep(10 * pingInterval)
		if n := len(f.conns); n != 1 {
			t.Fatalf("%d connections although every ping was answered", n)
		}
		f.set(func() { f.mute = true })
		time.Sleep(2*pingInterval + time.Millisecond)
		f.set(func() { f.mute = false })
		time.Sleep(2*pingInterval + maxReconnect)
		synctest.Wait()
		if n := len(f.conns); n < 2 || a.rung() == 0 {
			t.Errorf("%d connections, %d wakes: the silent connection is still relied on", n, a.rung())
		}
	})
}

func TestAConnectionThatTakesNoPingIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		var a bell
		defer watch(t, w, "a", a.ring)()
		f.set(func() { f.down = errors.New("broken pipe") })
		time.Sleep(pingInterval + time.Millisecond)
		f.set(func() { f.down = nil })
		time.Sleep(maxReconnect)
		synctest.Wait()
		if n := len(f.conns); n < 2 || a.rung() != 1 {
			t.Errorf("%d connections, %d wakes", n, a.rung())
		}
		expectOpen(t, f, "[[a]]")
	})
}

// A client library may connect again behind our back. What was published meanwhile is lost.
func TestAChannelThatIsConfirmedUnaskedIsAHint(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		var a, b bell
		defer watch(t, w, "a", a.ring)()
		defer watch(t, w, "b", b.ring)()
		f.tell(driver.Event{Kind: driver.EventSubscribed, Channel: "a"})
		synctest.Wait()
		if a.rung() != 1 || b.rung() != 0 {
			t.Errorf("wakes: %d and %d; want 1 and 0", a.rung(), b.rung())
		}
		defer watch(t, w, "c", func() {})() // which finds its own answer
		f.publish("c")
	})
}

func TestAnAnswerThatNobodyAskedForHarmsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		var a bell
		defer watch(t, w, "a", a.ring)()
		for _, unasked := range []any{driver.Event{Kind: driver.EventPong}, driver.Event{Kind: driver.EventUnsubscribed, Channel: "b"}, &driver.ReplyError{Text: "ERR unknown command"}} {
			f.tell(unasked)
		}
		synctest.Wait()
		if a.rung() != 0 {
			t.Errorf("woken %d times for nothing", a.rung())
		}
		defer watch(t, w, "b", func() {})()
		f.publish("a")
		expectOpen(t, f, "[[a b]]")
		if a.rung() != 1 {
			t.Error("the channel is not heard any more")
		}
	})
}

// invalid is a refusal that no server has replied.
type invalid struct{ error }

func (invalid) Permanent() bool { return true }

func TestAConnectionThatThereCannotBeIsToldAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		never := invalid{errors.New("no such server")}
		f.set(func() { f.down = never })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Watch(ctx, "a", func() {}); !errors.Is(err, never) {
			t.Errorf("watch = %v", err)
		}
	})
}

// An error reply that passes ends the connection, and no wait: those who are told that they can be
// woken are, and those who are not wait for another connection.
func TestAnErrorReplyThatPassesEndsNoWait(t *testing.T) {
	for _, text := range []string{
		"ERR max number of clients reached", "LOADING Redis is loading the dataset in memory", "MASTERDOWN Link with MASTER is down",
		"BUSY Redis is busy running a script.", "CLUSTERDOWN The cluster is down", "ERR something that is not known",
	} {
		t.Run(text, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
				var a bell
				defer watch(t, w, "a", a.ring)()
				f.set(func() { f.refuses = map[string]error{"b": &driver.ReplyError{Text: text}} })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				watched := make(chan error, 1)
				go func() { watched <- w.Watch(ctx, "b", func() {}) }()
				time.Sleep(3 * maxReconnect)
				select {
				case err := <-watched:
					t.Fatalf("watch = %v before the server takes it", err)
				default:
				}
				f.set(func() { f.refuses = nil })
				if err := <-watched; err != nil {
					t.Errorf("watch = %v", err)
				}
				synctest.Wait()
				before := a.rung()
				if before > 15 { // one for each connection
					t.Errorf("%d connections in %v", before, 3*maxReconnect)
				}
				f.publish("a")
				synctest.Wait()
				if a.rung() != before+1 {
					t.Errorf("the other channel is not heard: %d wakes, %d before", a.rung(), before)
				}
				expectOpen(t, f, "[[a b]]")
			})
		})
	}
}

func TestAListenerThatIsRefusedItsChannelDisturbsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		f.refuses["refused"] = &driver.ReplyError{Text: "NOPERM no permissions to access one of the channels"}
		var heard []string
		for _, channel := range []string{"refused", "permitted"} {
			defer w.Listen(channel, func(string) { heard = append(heard, channel) })()
		}
		var b bell
		defer watch(t, w, "a", b.ring)()
		expectOpen(t, f, "[[a permitted]]")
		for _, channel := range []string{"refused", "permitted", "a"} {
			f.publish(channel)
		}
		synctest.Wait()
		if !slices.Equal(heard, []string{"permitted"}) || b.rung() != 1 {
			t.Errorf("heard on %v, and woken %d times", heard, b.rung())
		}
	})
}

// A connection takes the channels in the order in which they were asked for, also if it is another one.
func TestAChannelIsActiveBeforeThoseThatAreJoinedLater(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer, w *Listener) {
		var want []string
		for i := range 20 {
			channel := fmt.Sprint("channel ", i)
			want = append(want, channel)
			defer w.Listen(channel, func(string) {})()
		}
		for range 3 {
			synctest.Wait()
			f.set(func() {
				if got := f.conns[len(f.conns)-1].subs; !slices.Equal(got, want) {
					t.Errorf("subscribed to %v, want %v", got, want)
				}
			})
			f.cut()
			time.Sleep(time.Second)
		}
	})
}
