package laboratory

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A wire is all that one actor sends, to whichever of its servers. It counts; and it can stop the actor before a command,
// cut it off from a server, and put its clock ahead.
type wire struct {
	mu       sync.Mutex
	changed  sync.Cond
	commands []string // in order, by name
	trips    []int    // by server: a pipeline is one
	flying   int      // commands on their way, those that are stopped aside
	stop     *stop
	cut      map[int]bool
	ahead    time.Duration
}

func newWire(servers int) *wire {
	w := &wire{trips: make([]int, servers), cut: map[int]bool{}}
	w.changed.L = &w.mu
	return w
}

// A stop is where an actor stands still, as a process does that is not given the processor.
type stop struct {
	before  int    // the how manieth command from now on, or
	command string // the next one of this name
	name    string // of the command that was stopped, once arrived is closed
	arrived chan struct{}
	goOn    chan struct{}
}

// reached is the command that was stopped, empty if none has been yet.
func (s *stop) reached() string {
	select {
	case <-s.arrived:
		return s.name
	default:
		return ""
	}
}

func (w *wire) stopBefore(s stop) *stop {
	s.arrived, s.goOn = make(chan struct{}), make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = &s
	return &s
}

// matches is called for each command, with the lock of the wire.
func (s *stop) matches(name string) bool {
	s.before--
	return s.before == 0 || name == s.command
}

// begin counts commands that are about to be sent together.
func (w *wire) begin(server int, cmds []redis.Cmder) {
	w.mu.Lock()
	w.trips[server]++
	var here *stop
	for _, cmd := range cmds {
		w.commands = append(w.commands, cmd.Name())
		if w.stop != nil && w.stop.matches(cmd.Name()) {
			here, w.stop = w.stop, nil
			here.name = cmd.Name()
		}
	}
	if here == nil {
		w.flying++
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	close(here.arrived)
	<-here.goOn
	w.mu.Lock()
	w.flying++
	w.mu.Unlock()
}

func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying--
	w.changed.Broadcast()
}

// rest waits until everything that was sent is answered.
func (w *wire) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.flying > 0 {
		w.changed.Wait()
	}
}

// settle is rest for who can't tell whether all has been sent: it waits until nothing has been for a while.
func (w *wire) settle() {
	const while = 10 * time.Millisecond
	for before := -1; ; {
		w.rest()
		sent, _ := w.count()
		if sent == before {
			return
		}
		before = sent
		time.Sleep(while)
	}
}

// count is how many commands were sent, and how many round trips the server took part in that had most.
func (w *wire) count() (commands, trips int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.commands), slices.Max(w.trips)
}

// sent names the commands that were sent, in order.
func (w *wire) sent() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.commands)
}

// reset begins to count anew.
func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commands = nil
	clear(w.trips)
}

// cutOff lets no connection to the server come about.
func (w *wire) cutOff(server int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[server] = true
}

func (w *wire) isCut(server int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut[server]
}

// link is the part of a wire to one server, as a hook of go-redis.
type link struct {
	*wire
	server int
}

var errCut = errors.New("no route to this server")

func (l link) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.isCut(l.server) {
			return nil, errCut
		}
		return next(ctx, network, addr)
	}
}

func (l link) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isGreeting(cmd) {
			return next(ctx, cmd)
		}
		l.begin(l.server, []redis.Cmder{cmd})
		defer l.end()
		shiftArguments(cmd, l.ahead)
		err := next(ctx, cmd)
		shiftReply(cmd, -l.ahead)
		return err
	}
}

func (l link) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if isGreeting(cmds[0]) {
			return next(ctx, cmds)
		}
		l.begin(l.server, cmds)
		defer l.end()
		for _, cmd := range cmds {
			shiftArguments(cmd, l.ahead)
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			shiftReply(cmd, -l.ahead)
		}
		return err
	}
}

// isGreeting is what go-redis, and quarantine, send on a new connection.
func isGreeting(cmd redis.Cmder) bool {
	return slices.Contains([]string{"hello", "client", "auth", "select", "info", "role"}, cmd.Name())
}
