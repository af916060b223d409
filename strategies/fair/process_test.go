//go:build unix

package fair_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	lockredis "github.com/lockstep-go/lockstep/backends/redis"
	"github.com/lockstep-go/lockstep/internal/beneath"
	"github.com/lockstep-go/lockstep/internal/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/redis/go-redis/v9"
)

// What becomes of the queue when a process in it dies or stands still, on a real server.

// patience is how long a test waits for what must happen on any machine.
const patience = 30 * time.Second

const queue = "{key}:\x00queue"

// TestProcess is no test: it is what the processes run that the tests below start. They wait for the lock, and say when they
// have had it.
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

// locks are those of a client library of its own.
func locks(t *testing.T, addr string) *locker.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return locker.New(fair.New(goredis.New(client)), locker.WithTTL(time.Minute))
}

// queued waits until so many stand in the queue.
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

// behind holds the lock, with a process first in the queue and a call of ours behind it, which tells when it is granted.
func behind(t *testing.T) (server *redistest.Server, held *locker.Lock, first *exec.Cmd, says *bufio.Reader, next <-chan *locker.Lock) {
	t.Helper()
	server = redistest.Start(t)
	held = mustLock(t, locks(t, server.Addr()))
	first, _, says = beneath.Process(t, "LOCKSTEP_TEST_REDIS="+server.Addr())
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
	for command(t, server, "PUBSUB", "NUMSUB", channel).([]any)[1] != int64(0) { // until the server has noticed
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

func TestClientsThatLoopAreGrantedTheLockEquallyOftenOnARealServer(t *testing.T) {
	server := redistest.Start(t)
	stores := map[string]func() backends.QueuedStore{
		"go-redis": func() backends.QueuedStore {
			client := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { client.Close() })
			return goredis.New(client)
		},
		"redigo": func() backends.QueuedStore {
			s, pool := redigo.Open(server.Addr(), nil, lockredis.WithoutQuarantine())
			t.Cleanup(func() { pool.Close() })
			return s
		},
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			const each = 50
			held := mustLock(t, locker.New(fair.New(store())))
			loop := newLoop(each * clients)
			for i := range clients {
				locks := locker.New(fair.New(store()))
				loop.all.Go(func() { loop.run(t, locks, i) })
			}
			queued(t, server, clients)
			mustUnlock(t, held)
			loop.wantFair(t)
		})
	}
}
