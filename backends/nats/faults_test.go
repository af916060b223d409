package nats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/nats"
	"github.com/lockstep-go/lockstep/internal/verify/history"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

const (
	byDefault = "" // the default: a sync every two minutes
	always    = "sync_interval: always"
)

// granted takes some keys and returns them with their numbers.
func granted(t *testing.T, store backends.NumberedStore, n int) (keys []string, last uint64) {
	t.Helper()
	for i := range n {
		key := "key" + strconv.Itoa(i)
		r, err := store.SetNXNumbered(t.Context(), key, "token", 20*time.Minute, backends.Turn{})
		if err != nil || !r.OK {
			t.Fatalf("SetNXNumbered = %+v, %v", r, err)
		}
		keys, last = append(keys, key), r.Fence
	}
	return keys, last
}

// heldOf counts the keys that are still held by the token. It asks a store that remembers no
// sequence.
func heldOf(t *testing.T, c *cluster, keys []string) (held int) {
	t.Helper()
	store := nats.New(c.conn, nats.WithMaxTTL(maxTTL))
	for _, key := range keys {
		eventually(t, "the store answers", func() bool {
			ok, err := store.ExpireIf(t.Context(), key, "token", 20*time.Minute)
			if ok {
				held++
			}
			return err == nil
		})
	}
	return held
}

func TestTheKillOfAServerForgetsNothing(t *testing.T) {
	for _, settings := range []string{byDefault, always} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			c := start(t, 1, settings)
			store := nats.New(c.conn, nats.WithMaxTTL(maxTTL))
			keys, last := granted(t, store, 50)
			c.members[0].kill()
			c.members[0].start(t)
			if held := heldOf(t, c, keys); held != len(keys) {
				t.Errorf("%d of %d keys are held after the kill", held, len(keys))
			}
			r, err := store.SetNXNumbered(t.Context(), "next", "token", time.Minute, backends.Turn{})
			if err != nil || r.Fence <= last {
				t.Errorf("SetNXNumbered = %+v, %v; want a number over %d", r, err, last)
			}
		})
	}
}

// A team takes a few locks in turns, and notes when it held them.
type team struct {
	began  time.Time
	stop   context.CancelFunc
	all    sync.WaitGroup
	mu     sync.Mutex
	holds  []history.Hold
	grants []history.Grant
	lost   int
}

const (
	teamKeys = 3
	teamTTL  = 2 * time.Second
)

// work lets one worker for each address take the locks. The first worker of each lock keeps it
// until it is lost, so that renewals and losses are part of it.
func work(t *testing.T, urls ...string) *team {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	team := &team{began: time.Now(), stop: stop}
	for i, url := range urls {
		conn := dial(t, url, fastPings...)
		locks := locker.New(fenced.New(nats.New(conn)), locker.WithTTL(teamTTL))
		for k := range teamKeys {
			team.all.Go(func() { team.worker(ctx, locks, fmt.Sprint("key", k), fmt.Sprint("worker", i), i == k) })
		}
	}
	t.Cleanup(team.end)
	return team
}

func (x *team) now() int64 { return int64(time.Since(x.began)) }

func (x *team) worker(ctx context.Context, locks *locker.Client, key, who string, keeps bool) {
	for ctx.Err() == nil {
		asked := x.now()
		l, err := locks.Lock(ctx, key, locker.WithWait(time.Minute))
		if err != nil {
			continue
		}
		h := history.Hold{Key: key, Who: who, Start: x.now()}
		h.End = h.Start
		x.mu.Lock()
		x.grants = append(x.grants, history.Grant{Key: key, Who: who, Asked: asked, Answered: h.Start, Fence: l.Lease().Fence})
		x.mu.Unlock()
		until := time.Now().Add(10 * time.Millisecond)
		if keeps {
			until = until.Add(teamTTL + teamTTL/2)
		}
		for time.Now().Before(until) && ctx.Err() == nil {
			at := x.now()
			if l.Context().Err() != nil {
				break
			}
			h.End = at // it still was held then
			time.Sleep(time.Millisecond)
		}
		lost := l.Context().Err() != nil
		_ = l.Unlock(context.WithoutCancel(ctx)) // a loss is no failure here
		x.mu.Lock()
		x.holds = append(x.holds, h)
		if lost {
			x.lost++
		}
		x.mu.Unlock()
	}
}

// progress waits until each lock was granted some more times.
func (x *team) progress(t *testing.T, when string) {
	t.Helper()
	from := x.now()
	for limit := time.Now().Add(2 * patience); ; time.Sleep(10 * time.Millisecond) {
		granted := map[string]int{}
		x.mu.Lock()
		for _, g := range x.grants {
			if g.Asked > from {
				granted[g.Key]++
			}
		}
		x.mu.Unlock()
		enough := len(granted) == teamKeys
		for _, n := range granted {
			enough = enough && n >= 3
		}
		if enough {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s, the waiters have not got on within %v: %v", when, 2*patience, granted)
		}
	}
}

func (x *team) end() {
	x.stop()
	x.all.Wait()
}

// judge checks the history.
func (x *team) judge(t *testing.T) {
	t.Helper()
	x.end()
	for _, o := range history.Overlaps(x.holds) {
		t.Errorf("two holders: %v", o)
	}
	for _, i := range history.Inversions(x.grants) {
		t.Errorf("numbers: %v", i)
	}
	t.Logf("%d grants, %d holds lost", len(x.grants), x.lost)
}

func TestNoTwoHoldersWhileTheLeaderFails(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T, c *cluster, leader *member) (heal func()){
		"killed": func(t *testing.T, _ *cluster, leader *member) func() {
			leader.kill()
			return func() { leader.start(t) }
		},
		"stopped": func(t *testing.T, _ *cluster, leader *member) func() {
			leader.pause(t)
			return leader.resume
		},
		// clients still reach it
		"partitioned": func(_ *testing.T, c *cluster, leader *member) func() {
			c.partition(leader, true)
			return func() { c.partition(leader, false) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, 3, byDefault)
			// some know all servers, and some only one
			urls := []string{c.url(), c.url()}
			for _, m := range c.members {
				urls = append(urls, "nats://"+m.client.Addr())
			}
			team := work(t, urls...)
			team.progress(t, "at first")
			rounds := 1
			if os.Getenv("LOCKSTEP_TORTURE") != "" {
				rounds = 10
			}
			for range rounds {
				leader := c.leader(t)
				heal := fault(t, c, leader)
				team.progress(t, "while "+leader.name+" is "+name)
				heal()
				team.progress(t, "after "+leader.name+" was "+name)
			}
			team.judge(t)
		})
	}
}

func TestAHolderIsToldOfItsLossByTheEndOfItsLease(t *testing.T) {
	c := start(t, 1, byDefault)
	locks := locker.New(fenced.New(nats.New(c.conn)), locker.WithTTL(teamTTL))
	l, err := locks.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	c.members[0].pause(t)
	defer c.members[0].resume()
	select {
	case <-l.Context().Done():
	case <-time.After(patience):
		t.Fatal("the holder is not told")
	}
	if !errors.Is(context.Cause(l.Context()), locker.ErrLost) {
		t.Errorf("the cause is %v; want ErrLost", context.Cause(l.Context()))
	}
}

// A link carries the routes from one server to another.
type link struct {
	from, to int
	listener net.Listener

	mu   sync.Mutex
	down bool
	open map[net.Conn]bool
}

func newLink(t *testing.T, from, to int, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{from: from, to: to, listener: listener, open: map[net.Conn]bool{}}
	t.Cleanup(func() { listener.Close(); l.set(true) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.carry(conn, target)
		}
	}()
	return l
}

func (l *link) carry(conn net.Conn, target string) {
	defer conn.Close()
	other, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer other.Close()
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		return
	}
	l.open[conn], l.open[other] = true, true
	l.mu.Unlock()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{conn, other}, {other, conn}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		}()
	}
	<-done
	l.mu.Lock()
	delete(l.open, conn)
	delete(l.open, other)
	l.mu.Unlock()
}

// set cuts the link, or lets routes be made again.
func (l *link) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	if down {
		for conn := range l.open {
			conn.Close()
		}
	}
}

// partition cuts a server off from the others, or ends that.
func (c *cluster) partition(m *member, on bool) {
	for _, l := range c.links {
		if c.members[l.from] == m || c.members[l.to] == m {
			l.set(on)
		}
	}
}
