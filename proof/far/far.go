// Package far plays Clients that are far away from their server.
package far

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// Relay passes connections on to target, and delays all bytes, so that a round trip takes as long as
// roundTrip. It returns the address to connect to. A new connection costs a round trip too.
func Relay(tb testing.TB, target string, roundTrip time.Duration) (addr string) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(func() {
		cancel()
		_ = listener.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				server, err := net.Dial("tcp", target)
				if err != nil {
					_ = client.Close()
					return
				}
				stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
				defer stop()
				var both sync.WaitGroup
				both.Go(func() { delay(server, client, roundTrip/2, roundTrip) })
				both.Go(func() { delay(client, server, roundTrip/2, 0) })
				both.Wait()
			})
		}
	})
	return listener.Addr().String()
}

// delay copies what comes, each piece d later. The first piece waits for the handshake.
func delay(to, from net.Conn, d, handshake time.Duration) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1<<16)
	go func() {
		defer close(pieces)
		began := time.Now()
		for {
			buffer := make([]byte, 4<<10)
			n, err := from.Read(buffer)
			due := time.Now().Add(d)
			if earliest := began.Add(handshake + d); due.Before(earliest) {
				due = earliest
			}
			if n > 0 {
				pieces <- piece{buffer[:n], due}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.bytes); err != nil {
			_ = from.Close()
		}
	}
	if c, ok := to.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

// Clients is how many contend for the lock.
const Clients = 16

const (
	holds = 20 * time.Millisecond
	runs  = 48 // times a hold and one and a half round trips: a hand-over takes two round trips
	least = 34 // grants in a run

	// served is the time for clients, relay and server to compute a hand-over on a busy machine. When far
	// Clients collapse, nearly each turn costs a reservation, which is several times as long.
	served = 30 * time.Millisecond
)

// RoundTrips are those of the table that LOCKSTEP_TORTURE=1 plays. Otherwise only 250 ms is played.
func RoundTrips() []time.Duration {
	if full.Size() {
		return []time.Duration{2 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond}
	}
	return []time.Duration{250 * time.Millisecond}
}

// Run lets sixteen Clients that are far away take a lock in turns, for as long as they need for 48
// turns of a hold, one and a half round trips and served, and twice as long on a machine that is shared. They
// must have it 34 times, and each of them at least once. With ordered, each has it at least twice, and
// with alone nobody has it again before all others have had it. near is a Client of the same lock that
// is not far away, and store has the lock. If a busy machine kept them from that, they begin anew.
func Run(t *testing.T, roundTrip time.Duration, store backends.Inspector, near *locker.Client, far []*locker.Client, ordered, alone bool) {
	t.Helper()
	trial.WhileBusy(t, 2*roundTrip, func(t testing.TB, _ time.Duration) {
		run(t, roundTrip, store, near, far, ordered, alone)
	})
}

func run(t testing.TB, roundTrip time.Duration, store backends.Inspector, near *locker.Client, far []*locker.Client, ordered, alone bool) {
	t.Helper()
	first, err := near.Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var order []int
	enough := make(chan struct{})
	var all sync.WaitGroup
	for i, c := range far {
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := c.Lock(ctx, "key")
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("Lock of Client %d: %v", i, err)
						cancel() // the others would wait for it
					}
					return
				}
				mu.Lock()
				if order = append(order, i); len(order) == runs {
					close(enough)
				}
				mu.Unlock()
				time.Sleep(holds)
				if err := l.Unlock(context.WithoutCancel(ctx)); err != nil {
					t.Errorf("Unlock of Client %d: %v", i, err)
				}
			}
		})
	}
	for state := (backends.State{}); state.Waiting < len(far); time.Sleep(5 * time.Millisecond) {
		if state, err = store.Inspect(ctx, "key"); err != nil {
			t.Fatal(err)
		}
	}
	limit := runs * (holds + roundTrip*3/2 + served)
	if !full.Size() {
		limit *= 2
	}
	if err := first.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	select {
	case <-enough:
	case <-time.After(limit):
	}
	mu.Lock()
	got := append([]int(nil), order...)
	mu.Unlock()
	cancel()
	all.Wait()
	each := make([]int, len(far))
	for _, i := range got {
		each[i]++
	}
	t.Logf("a round trip of %v: %d grants in %v of %v, by Client %v", roundTrip, len(got), time.Since(began).Round(time.Millisecond), limit, each)
	if len(got) < least {
		t.Errorf("%d grants; want %d", len(got), least)
	}
	atLeast := 1
	if ordered {
		atLeast = 2
	}
	for i, n := range each {
		if n < atLeast {
			t.Errorf("Client %d had the lock %d times; want %d: %v", i, n, atLeast, got)
		}
	}
	for i := range got {
		// A Client that a busy machine keeps from joining the queue again is a few positions later.
		for j := i + 1; alone && j < min(i+len(far)*3/4, len(got)); j++ {
			if got[i] == got[j] {
				t.Errorf("Client %d had the lock as number %d and again as number %d, before others that wait: %v", got[i], i, j, got)
			}
		}
	}
}
