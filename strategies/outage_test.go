package strategies_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// TestARestartFailsNoRequestThatHasWithWait: the server is away for 1.5 s while 50 requests at once
// lock ten keys again and again. A request that held its lock when the server went may lose it. All
// others succeed.
func TestARestartFailsNoRequestThatHasWithWait(t *testing.T) {
	const requests, keys = 50, 10
	server := redistest.Start(t)
	store, conn := goredis.Open(&redis.Options{Addr: server.Addr(), PoolSize: 20}, redisstore.WithoutQuarantine())
	t.Cleanup(func() { conn.Close() })
	locks := locker.New(single.New(store), locker.WithWait(2*time.Minute), locker.WithTTL(2*time.Second)) // for a busy machine
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted, over := 0, make(chan struct{})
	half := make(chan struct{})
	for i := range requests {
		wg.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-over:
					return
				default:
				}
				l, err := locks.Lock(t.Context(), fmt.Sprint("key", (i+round)%keys))
				if err != nil {
					t.Errorf("Lock = %v", err)
					return
				}
				mu.Lock()
				if granted++; granted == 5*requests {
					close(half)
				}
				mu.Unlock()
				_ = l.Unlock(t.Context()) // the reply may be lost
			}
		})
	}
	<-half
	server.Kill()
	time.Sleep(1500 * time.Millisecond) // the length of the outage
	server.Restart()
	mu.Lock()
	before := granted
	mu.Unlock()
	for limit := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		after := granted - before
		mu.Unlock()
		if after >= 2*requests || time.Now().After(limit) {
			break
		}
	}
	close(over)
	wg.Wait()
	if granted < before+2*requests {
		t.Errorf("%d grants in two minutes after the restart", granted-before)
	}
}

// Without WithWait nothing says how long an outage may last.
func TestARestartFailsARequestWithoutWithWait(t *testing.T) {
	server := redistest.Start(t)
	store, conn := goredis.Open(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1}, redisstore.WithoutQuarantine())
	t.Cleanup(func() { conn.Close() })
	server.Kill()
	_, err := locker.New(single.New(store)).Lock(t.Context(), "key")
	if err == nil || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrWaitLimit) {
		t.Errorf("Lock = %v; want the error of the connection", err)
	}
}

// TestAServerThatFailsGetsFewAttemptsWhateverTheNumberOfWaiters: a thousand goroutines wait for a
// key each, on a server that is out of memory and is then killed.
func TestAServerThatFailsGetsFewAttemptsWhateverTheNumberOfWaiters(t *testing.T) {
	const waiters, limit = 1000, 100 // attempts in half a second; each waiter by itself would make one
	server := redistest.Start(t)
	store, conn := goredis.Open(&redis.Options{Addr: server.Addr(), PoolSize: 20}, redisstore.WithoutQuarantine())
	t.Cleanup(func() { conn.Close() })
	locks := locker.New(single.New(store), locker.WithWait(5*time.Minute), locker.WithTTL(30*time.Second)) // for a busy machine
	if _, err := server.Do("CONFIG", "SET", "maxmemory", "1"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			l, err := locks.Lock(t.Context(), fmt.Sprint("key", i))
			if err != nil {
				t.Errorf("Lock = %v", err)
				return
			}
			_ = l.Unlock(t.Context())
		})
	}
	for began := time.Now(); rejected(t, server) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Error("the server has rejected nothing for 30 seconds")
			break
		}
	}
	time.Sleep(500 * time.Millisecond) // all first attempts may be under way before one has failed
	sent := float64(limit)
	for tries := 0; tries < 5 && sent >= limit; tries++ {
		before, began := rejected(t, server), time.Now()
		time.Sleep(500 * time.Millisecond)
		sent = float64(rejected(t, server)-before) * 0.5 / time.Since(began).Seconds() // a busy machine sleeps longer
	}
	if sent >= limit {
		t.Errorf("%.0f attempts for each half second, want fewer than %d", sent, limit)
	}
	server.Kill()
	server.Restart() // now with memory
	all.Wait()
}

// rejected returns how many commands the server has rejected because it is out of memory.
func rejected(t *testing.T, server *redistest.Server) (n int) {
	t.Helper()
	info, err := server.Do("INFO", "errorstats")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info.(string)) {
		if _, err := fmt.Sscanf(line, "errorstat_OOM:count=%d", &n); err == nil {
			return n
		}
	}
	return 0
}
