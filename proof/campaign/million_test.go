package campaign

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestAMillionLocks holds a million locks at once on a Redis Cluster of three masters, by one Client,
// for two lengths of their TTL. So each lock lives by renewal alone at the end.
//
//   - Every lock is granted, and none is lost.
//   - While they are held, the cluster has one key for each, a third of them on each master, and no
//     other keys.
//   - Every Unlock is confirmed, and the cluster is empty at the end.
//
// It prints what a lock costs: memory of the client and of the masters, and CPU time of the masters.
//
//	go test ./proof/campaign -run TestAMillionLocks -v                      1,000 locks
//	LOCKSTEP_TORTURE=1 go test ./proof/campaign -run TestAMillionLocks -v   1,000,000: 6 minutes, 1 GB
//
// To change it: the number and the TTL are the first lines. A renewal is due after a third of the TTL,
// so the two decide how many commands a second the renewals take.
func TestAMillionLocks(t *testing.T) {
	t.Parallel()
	n, ttl := 1_000, 20*time.Second
	if full.Size() {
		n, ttl = 1_000_000, 2*time.Minute
	}
	cluster := redistest.StartCluster(t, 3, 0)
	locks := locker.New(single.New(goredis.New(beneath.DialCluster(t, cluster), redisstore.WithMaxTTL(ttl))), locker.WithTTL(ttl))
	before := measured(t, cluster)

	held := make([]*locker.Lock, n)
	began := time.Now()
	forEach(n, func(i int) error {
		l, err := locks.TryLock(t.Context(), fmt.Sprintf("account/%d", i))
		held[i] = l
		return err
	}, t)
	if t.Failed() {
		return
	}
	t.Logf("%d locks taken in %v", n, time.Since(began).Round(time.Millisecond))
	taken := measured(t, cluster)
	for i, keys := range taken.keys {
		if keys < n/3*9/10 || keys > n/3*11/10 {
			t.Errorf("master %d has %d keys of %d; want about a third", i, keys, n)
		}
	}

	<-time.After(ttl + ttl/4) // past the end of each lease that was not renewed
	kept := measured(t, cluster)
	if kept.count() != n {
		t.Errorf("the cluster has %d keys; want %d", kept.count(), n)
	}
	lost := 0
	for _, l := range held {
		if err := context.Cause(l.Context()); err != nil {
			if lost++; lost == 1 {
				t.Error(err)
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d locks were lost", lost, n)
	}
	forEach(n, func(i int) error { return held[i].Unlock(t.Context()) }, t)
	if left := measured(t, cluster).count(); left != 0 {
		t.Errorf("%d keys are left", left)
	}

	renewals := float64(n) * kept.at.Sub(taken.at).Seconds() / (ttl.Seconds() / 3)
	matrix.Figures(t, "memory of a held lock: %d bytes of heap in the client, %d in its master", (taken.heap-before.heap)/n, (taken.memory-before.memory)/n)
	matrix.Figures(t, "CPU time of the masters: %.1f µs to take one, %.1f to renew it; %.0f renewals/s",
		1e6*(taken.cpu-before.cpu)/float64(n), 1e6*(kept.cpu-taken.cpu)/renewals, renewals/kept.at.Sub(taken.at).Seconds())
}

// forEach calls f for each number below n, from 64 goroutines, and stops at the first error.
func forEach(n int, f func(i int) error, t *testing.T) {
	t.Helper()
	var workers sync.WaitGroup
	next := make(chan int, 64)
	for range 64 {
		workers.Go(func() {
			for i := range next {
				if t.Failed() {
					continue
				}
				if err := f(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// cost is what client and masters have used up to an instant.
type cost struct {
	at     time.Time
	heap   int     // bytes of this process
	cpu    float64 // seconds of the masters
	memory int     // bytes of the masters
	keys   []int   // of each master
}

func (c cost) count() (sum int) {
	for _, k := range c.keys {
		sum += k
	}
	return sum
}

func measured(t *testing.T, cluster *redistest.Cluster) (m cost) {
	t.Helper()
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	m.at, m.heap = time.Now(), int(heap.HeapAlloc)
	for _, s := range cluster.Masters() {
		of := info(t, s)
		m.keys = append(m.keys, int(of["keys"]))
		m.memory += int(of["used_memory"])
		m.cpu += of["used_cpu_user"] + of["used_cpu_sys"]
	}
	return m
}
