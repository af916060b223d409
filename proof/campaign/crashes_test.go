package campaign

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/redis/go-redis/v9"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/fence"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestNoUpdateIsLostInCrashes lets processes add to counters under locks. Meanwhile servers are
// killed and restarted, or the processes are killed, or stopped for longer than their leases. A
// worker reads a counter and writes it a moment later. An update is lost if another worker wrote in
// between.
//
//   - Killed servers: no update is lost where servers that forget cannot make two holders (S). One
//     instance that forgets loses some (V). Updates there take half a second, so that the server is
//     back before they are written.
//   - Killed processes: no update is lost (S).
//   - Stopped processes write without a look at their context, like a write that is already under
//     way. A lock cannot prevent that (V). A guard that compares numbers can (S).
//
// Run it alone: go test ./proof/campaign -run TestNoUpdateIsLostInCrashes -v
func TestNoUpdateIsLostInCrashes(t *testing.T) {
	aof := []string{"--appendonly", "yes", "--appendfsync", "always"}
	for _, c := range []crashes{
		{strategy: "single, AOF always", fault: "servers killed", over: "single", servers: 1, args: aof},
		{strategy: "single, no persistence", fault: "servers killed", over: "single", servers: 1, ttl: 2 * time.Second, pause: 500 * time.Millisecond, violated: true},
		{strategy: "redlock 4 of 5", fault: "servers killed", over: "redlock", servers: 5},
		{strategy: "redlock numbered 3 of 5, AOF always", fault: "servers killed", over: "numbered", servers: 5, args: aof, guarded: true},
		{strategy: "fenced, guarded, AOF always", fault: "servers killed", over: "fenced", servers: 1, args: aof, guarded: true},
		{strategy: "single", fault: "holders killed", over: "single", servers: 1},
		{strategy: "redlock 4 of 5", fault: "holders killed", over: "redlock", servers: 5},
		{strategy: "single", fault: "holders stopped", over: "single", servers: 1, violated: true},
		{strategy: "fenced, guarded", fault: "holders stopped", over: "fenced", servers: 1, guarded: true},
		{strategy: "redlock numbered 3 of 5", fault: "holders stopped", over: "numbered", servers: 5, guarded: true},
	} {
		t.Run(c.strategy+", "+c.fault, c.run)
	}
}

// crashes is one experiment.
type crashes struct {
	strategy, fault string
	over            string // the strategy of the workers: see job.locker
	servers         int
	args            []string
	ttl             time.Duration // 0: leaseTTL
	pause           time.Duration // between the read and the write; 0: a moment
	guarded         bool          // the counters refuse numbers that fall
	violated        bool          // updates are lost
}

const (
	workers  = 4 // processes
	hands    = 4 // goroutines in each
	counters = 8
	leaseTTL = 400 * time.Millisecond
	moment   = time.Millisecond
)

func (c crashes) run(t *testing.T) {
	rivals.TwoAtOnce(t)
	kills, updates := 5, 300
	if full.Size() {
		kills, updates = 35, 5500 // of each: 350 and 55,000 in all
	}
	if c.pause > 0 {
		updates /= 3 // they take longer
	}
	servers := redistest.StartN(t, c.servers, redistest.WithArgs(c.args...))
	bank := openBank(t, c.guarded)
	staff := make([]*worker, workers)
	for i := range staff {
		staff[i] = c.hire(t, servers, bank)
	}
	for kill := range kills {
		bank.await(t, (kill+1)*updates/kills)
		switch victim := staff[kill%workers]; c.fault {
		case "servers killed":
			s := servers[kill%len(servers)]
			s.Kill()
			s.Restart()
			// a quorum tolerates only so many nodes that forget in the life of a lease
			time.Sleep(leaseTTL)
		case "holders killed":
			victim.end()
			staff[kill%workers] = c.hire(t, servers, bank)
		case "holders stopped":
			victim.signal(t, syscall.SIGSTOP)
			time.Sleep(2 * leaseTTL)
			victim.signal(t, syscall.SIGCONT)
		}
	}
	// until an update is lost
	for more := 0; c.violated && bank.lost() == 0 && more < 20*kills; more++ {
		if c.fault == "servers killed" {
			servers[0].Kill()
			servers[0].Restart()
		} else {
			staff[0].signal(t, syscall.SIGSTOP)
			time.Sleep(2 * leaseTTL)
			staff[0].signal(t, syscall.SIGCONT)
		}
		bank.await(t, bank.made()+updates/kills)
	}
	for _, w := range staff {
		w.end()
	}
	matrix.Figures(t, "%d updates, %d refused as late, %d lost, %d kills or stops", bank.made(), bank.late(), bank.lost(), kills)
	if lost := bank.lost(); (lost > 0) != c.violated {
		t.Errorf("%d updates were lost; want some: %v", lost, c.violated)
	}
	matrix.Cell{
		Strategy: c.strategy, Fault: c.fault, Where: "redis-server", Trials: bank.made(), Violations: bank.lost(),
		Command: command(t.Name()),
	}.Report(t)
}

// A bank has the counters, in the process of the test. A worker sends the name of a counter and the
// number of its grant, gets the value, and sends the new value.
type bank struct {
	listener net.Listener
	guarded  bool

	mu                    sync.Mutex
	ledger                *ledger // of the workers; nil: none is kept
	guards                map[string]*fence.Register[int]
	values                map[string]int
	updates, gone, missed int
}

// message goes to the bank and back.
type message struct {
	Counter string
	Fence   uint64
	Value   int
	Forgone bool // the lock was lost, so nothing is written

	// when the lock was asked for and granted, and until when it was held, in ns since 1970
	Asked, Answered, Until int64
}

func openBank(t *testing.T, guarded bool) *bank {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{listener: l, guarded: guarded, guards: map[string]*fence.Register[int]{}, values: map[string]int{}}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(conn)
		}
	}()
	return b
}

// serve returns when its worker ends.
func (b *bank) serve(conn net.Conn) {
	defer conn.Close()
	in, out := json.NewDecoder(bufio.NewReader(conn)), json.NewEncoder(conn)
	for {
		var read, write message
		if in.Decode(&read) != nil || out.Encode(b.read(read)) != nil {
			return
		}
		b.book().granted(read, conn.RemoteAddr().String())
		if in.Decode(&write) != nil || out.Encode(b.write(write)) != nil {
			return
		}
		b.book().held(write, conn.RemoteAddr().String())
	}
}

func (b *bank) read(m message) message {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.Value = b.values[m.Counter]
	if b.guarded {
		_, _ = b.guard(m.Counter).Claim(m.Fence) // if the worker is late, its write fails
	}
	return m
}

func (b *bank) write(m message) message {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case m.Forgone:
		return m
	case b.guarded && b.guard(m.Counter).Write(m.Fence, m.Value) != nil:
		b.gone++
		return m
	}
	b.updates++
	if b.values[m.Counter] != m.Value-1 {
		b.missed++ // another update since the read is lost
	}
	b.values[m.Counter] = m.Value
	return m
}

func (b *bank) guard(counter string) *fence.Register[int] {
	if b.guards[counter] == nil {
		b.guards[counter] = new(fence.Register[int])
	}
	return b.guards[counter]
}

func (b *bank) made() int { b.mu.Lock(); defer b.mu.Unlock(); return b.updates }
func (b *bank) late() int { b.mu.Lock(); defer b.mu.Unlock(); return b.gone }
func (b *bank) lost() int { b.mu.Lock(); defer b.mu.Unlock(); return b.missed }

func (b *bank) enter(l *ledger) { b.mu.Lock(); defer b.mu.Unlock(); b.ledger = l }
func (b *bank) book() *ledger   { b.mu.Lock(); defer b.mu.Unlock(); return b.ledger }

func (b *bank) await(t *testing.T, updates int) {
	t.Helper()
	eventually(t, fmt.Sprint(updates, " updates"), func() bool { return b.made() >= updates })
}

// A worker is a process that adds to counters until it is killed.
type worker struct{ cmd *exec.Cmd }

const workerEnv = "LOCKSTEP_CAMPAIGN_WORKER"

// job is the order of a worker.
type job struct {
	Over    string
	Servers []string
	Bank    string
	Hasty   bool // it writes without a look at its context
	Pause   time.Duration
	TTL     time.Duration // of leases that are not renewed; 0: leaseTTL, with renewal
}

func (c crashes) hire(t *testing.T, servers []*redistest.Server, b *bank) *worker {
	t.Helper()
	return hire(t, addrs(servers), b, job{Over: c.over, Hasty: c.fault == "holders stopped", Pause: max(c.pause, moment), TTL: c.ttl})
}

func addrs(servers []*redistest.Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

func hire(t *testing.T, servers []string, b *bank, j job) *worker {
	t.Helper()
	j.Servers, j.Bank = servers, b.listener.Addr().String()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, _ := child.Start(t, workerEnv+"="+string(text))
	return &worker{cmd}
}

func (w *worker) end() {
	_ = w.cmd.Process.Kill() // it may have ended
	_ = w.cmd.Wait()
}

func (w *worker) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Error(err)
	}
}

// runWorker runs in the process of a worker: see TestProcess.
func runWorker(t *testing.T, text string) {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // it returns when the process of the test ends
		os.Exit(1)
	}()
	opts := []locker.ClientOption{locker.WithTTL(leaseTTL)}
	if j.TTL > 0 {
		opts = []locker.ClientOption{locker.WithTTL(j.TTL), locker.WithoutRenewal()}
	}
	locks := locker.New(j.locker(t), opts...)
	var all sync.WaitGroup
	for range hands {
		all.Go(func() { j.work(locks) })
	}
	all.Wait()
}

func (j job) locker(t *testing.T) locker.Locker {
	var stores []numberedNested
	for _, addr := range j.Servers {
		// After as many failed dials as its pool is large, go-redis would dial only once a second.
		c := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1, MaxRetries: -1, PoolSize: 10_000})
		stores = append(stores, goredis.New(c))
	}
	switch j.Over {
	case "declared":
		store, _ := goredis.Open(&redis.Options{Addr: j.Servers[0], DialerRetries: 1, MaxRetries: -1, PoolSize: 10_000},
			redisstore.WithServerThatForgetsNothing())
		return single.New(store)
	case "single":
		return single.New(stores[0])
	case "fenced":
		return fenced.New(stores[0])
	case "numbered":
		return numberedQuorumOf(3)(t, stores)
	case "numbered 4":
		return numberedQuorumOf(4)(t, stores)
	}
	return quorumOf(4)(t, stores)
}

func (j job) work(locks *locker.Client) {
	ctx := context.Background()
	conn, err := net.Dial("tcp", j.Bank)
	if err != nil {
		return
	}
	defer conn.Close()
	in, out := json.NewDecoder(bufio.NewReader(conn)), json.NewEncoder(conn)
	for {
		counter := fmt.Sprint("counter ", rand.IntN(counters))
		l, err := locks.Lock(ctx, counter, locker.WithWait(time.Second))
		if err != nil {
			time.Sleep(time.Millisecond) // the server may be down
			continue
		}
		if err := j.add(in, out, l); err != nil && !errors.Is(err, locker.ErrLost) {
			return
		}
		_ = l.Unlock(ctx) // if it fails, the key ends with its lease
	}
}

// add reads a counter and writes it a moment later.
func (j job) add(in *json.Decoder, out *json.Encoder, l *locker.Lock) error {
	lease := l.Lease()
	at := message{Counter: l.Key(), Fence: lease.Fence, Asked: lease.Granted.UnixNano(), Answered: time.Now().UnixNano()}
	if err := errors.Join(out.Encode(at), in.Decode(&at)); err != nil {
		return err
	}
	time.Sleep(j.Pause)
	at.Value++
	now := time.Now()
	ended := l.Context().Err() != nil
	at.Forgone = ended && !j.Hasty
	if !ended {
		at.Until = now.UnixNano()
	}
	return errors.Join(out.Encode(at), in.Decode(&at))
}
