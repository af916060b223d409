//go:build unix

package fair_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/redis/go-redis/v9"
)

// These tests kill or stop a process in the queue, on a real server.

// patience is how long a test waits for what must happen on any machine.
const patience = 30 * time.Second

const queue = "{key}:\x00queue"

// TestProcess is not a test. It is the code of the processes that the tests below start. They wait
// for the lock, and report when they have had it.
func TestProcess(t *testing.T) {
	addr := os.Getenv("LOCKSTEP_TEST_REDIS")
	if addr == "" {
		return
	}
	l, err := locks(t, addr).Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, l)
	fmt.Println("had it")
}

// locks returns a Client with its own client library.
func locks(t *testing.T, addr string) *locker.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return locker.New(fair.New(goredis.New(client, beneath.Long)), locker.WithTTL(time.Minute))
}

// queued waits until n waiters are in the queue.
func queued(t *testing.T, server *redistest.Server, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); command(t, server, "ZCARD", queue) != int64(n); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %d in the queue", patience, n)
		}
	}
}

func command(t *testing.T, server *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// behind holds the lock. A process is at the head of the queue, and a call of this test is behind
// it. next receives the lock of that call.
func behind(t *testing.T) (server *redistest.Server, held *locker.Lock, first *exec.Cmd, says *bufio.Reader, next <-chan *locker.Lock) {
	t.Helper()
	server = redistest.Start(t)
	held = mustLock(t, locks(t, server.Addr()))
	first, _, says = child.Start(t, "LOCKSTEP_TEST_REDIS="+server.Addr())
	queued(t, server, 1)
	granted := make(chan *locker.Lock, 1)
	go func() {
		l, err := locks(t, server.Addr()).Lock(t.Context(), "key")
		if err != nil {
			t.Errorf("Lock behind a process = %v", err)
		}
		granted <- l
	}()
	queued(t, server, 2)
	return server, held, first, says, granted
}

func TestAProcessThatIsKilledIsPassedOverAtOnce(t *testing.T) {
	t.Parallel()
	server, held, first, _, next := behind(t)
	members := command(t, server, "ZRANGE", queue, "0", "-1").([]any)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	_, channel, _ := strings.Cut(members[0].(string), "@")
	for command(t, server, "PUBSUB", "NUMSUB", channel).([]any)[1] != int64(0) { // until the server has noticed it
		time.Sleep(time.Millisecond)
	}
	mustUnlock(t, held)
	if value := command(t, server, "GET", "key"); value == "lockstep:reserved:"+members[0].(string) {
		t.Error("the lock is reserved for a process that is dead")
	}
	mustUnlock(t, <-next)
}

func TestAProcessThatStandsStillCostsAReservation(t *testing.T) {
	t.Parallel()
	_, held, first, says, next := behind(t)
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(first.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the process has not stopped: %v, %v", status, err)
	}
	released := time.Now()
	mustUnlock(t, held)
	l := <-next
	if took := time.Since(released); took < backends.Reservation-2*time.Millisecond {
		t.Errorf("the next was granted the lock after %v: was there no reservation?", took)
	} else {
		t.Logf("the next was granted the lock after %v", took)
	}
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, l)
	if line, err := says.ReadString('\n'); line != "had it\n" {
		t.Errorf("the process, when it goes on, says %q, %v", line, err)
	}
}

func TestClientsThatLoopTakeTurnsOnARealServer(t *testing.T) {
	for name, open := range map[string]func(addr string) (backends.QueuedStore, io.Closer){
		"go-redis": func(addr string) (backends.QueuedStore, io.Closer) {
			client := redis.NewClient(&redis.Options{Addr: addr})
			return goredis.New(client, beneath.Long), client
		},
		"redigo": func(addr string) (backends.QueuedStore, io.Closer) {
			s, pool := redigo.Open(addr, nil, redisstore.WithoutQuarantine(), beneath.Long)
			return s, pool
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := func() *locker.Client {
				s, conns := open(server.Addr())
				t.Cleanup(func() { conns.Close() })
				return locker.New(fair.New(s), locker.WithTTL(time.Hour)) // longer than any round
			}
			r := rotation{t: t, server: server, who: map[string]int{}, last: -1}
			held := mustLock(t, client())
			for i := range clients {
				locks := client()
				r.all.Go(func() { r.run(locks, i) })
				queued(t, server, i+1)
				r.who[r.channels()[i]] = i
			}
			r.mu.Lock()
			r.giveBack()
			r.mu.Unlock()
			mustUnlock(t, held)
			r.all.Wait()
			t.Logf("%d turns, of which %d show nothing", r.turns, r.slow)
		})
	}
}

// A rotation is a number of Clients that lock again and again. The holder releases the lock when
// all others are in the queue. Then the queue alone decides who is next, however slow a Client is.
// A reservation can end, so a grant that comes later than that shows nothing.
type rotation struct {
	t      *testing.T
	server *redistest.Server
	all    sync.WaitGroup

	who map[string]int // by the channel of its store

	mu          sync.Mutex
	turns, slow int

	last       int       // the holder before; -1: somebody else
	queue      []int     // when that holder released the lock
	subscribed string    // at that time
	released   time.Time // at or before this time
}

func (r *rotation) run(locks *locker.Client, who int) {
	for {
		err := locks.Do(r.t.Context(), "key", func(context.Context, *locker.Lock) error { return r.turn(who, time.Now()) })
		if errors.Is(err, errEnough) {
			return
		}
		if err != nil {
			r.t.Errorf("client %d: %v", who, err)
			return
		}
	}
}

const enough = 12 * clients

func (r *rotation) turn(who int, granted time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turns == enough || r.t.Failed() {
		return errEnough
	}
	r.turns++
	before, last := r.queue, r.last
	slow := granted.Sub(r.released) >= backends.Reservation-2*time.Millisecond || r.connections() != r.subscribed
	if slow {
		r.slow++
	} else if who != before[0] {
		r.t.Errorf("turn %d: granted to %d, with %v in the queue", r.turns, who, before)
		return errEnough
	}
	queued(r.t, r.server, clients-1)
	r.last = who
	r.giveBack()
	want := before[1:]
	if last >= 0 {
		want = append(want, last)
	}
	if !slow && !slices.Equal(r.queue, want) {
		r.t.Errorf("turn %d: %v in the queue; want %v", r.turns, r.queue, want)
	}
	return nil
}

// giveBack notes the state of the queue before a release.
func (r *rotation) giveBack() {
	r.queue = nil
	for _, channel := range r.channels() {
		r.queue = append(r.queue, r.who[channel])
	}
	r.subscribed, r.released = r.connections(), time.Now()
}

// channels returns the channels of the stores in the queue.
func (r *rotation) channels() (all []string) {
	for _, member := range command(r.t, r.server, "ZRANGE", queue, "0", "-1").([]any) {
		_, channel, _ := strings.Cut(member.(string), "@")
		all = append(all, channel)
	}
	return all
}

// connections returns the connections that receive wake-ups. A waiter that loses its connection is
// passed over.
func (r *rotation) connections() string {
	var ids []string
	for line := range strings.Lines(command(r.t, r.server, "CLIENT", "LIST", "TYPE", "pubsub").(string)) {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}
