package fence_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/locker/fence"
)

func TestARegisterAcceptsAFenceThatIsNotLowerThanTheGreatest(t *testing.T) {
	var r fence.Register[string]
	for _, c := range []struct {
		fence uint64
		value string
		want  error
		then  string
		at    uint64
	}{
		{0, "unnumbered", fence.ErrUnnumbered, "", 0},
		{5, "first", nil, "first", 5},
		{5, "again", nil, "again", 5},
		{4, "late", fence.ErrLate, "again", 5},
		{0, "unnumbered", fence.ErrUnnumbered, "again", 5},
		{6, "next", nil, "next", 6},
		{5, "late", fence.ErrLate, "next", 6},
		{1<<64 - 1, "greatest", nil, "greatest", 1<<64 - 1},
		{1<<64 - 2, "late by one", fence.ErrLate, "greatest", 1<<64 - 1},
	} {
		if err := r.Write(c.fence, c.value); !errors.Is(err, c.want) {
			t.Errorf("Write(%d, %q) = %v; want %v", c.fence, c.value, err, c.want)
		}
		if value, at := r.Read(); value != c.then || at != c.at {
			t.Errorf("after Write(%d, %q) it has %q at %d; want %q at %d", c.fence, c.value, value, at, c.then, c.at)
		}
	}
}

func TestAClaimReadsAndKeepsEarlierHoldersFromWriting(t *testing.T) {
	var r fence.Register[int]
	if err := r.Write(1, 10); err != nil {
		t.Fatal(err)
	}
	if value, err := r.Claim(2); err != nil || value != 10 {
		t.Errorf("Claim(2) = %d, %v; want 10", value, err)
	}
	if err := r.Write(1, 11); !errors.Is(err, fence.ErrLate) {
		t.Errorf("a write after a later claim = %v; want ErrLate", err)
	}
	for f, want := range map[uint64]error{0: fence.ErrUnnumbered, 1: fence.ErrLate} {
		if value, err := r.Claim(f); !errors.Is(err, want) || value != 0 {
			t.Errorf("Claim(%d) = %d, %v; want nothing and %v", f, value, err, want)
		}
	}
	if value, at := r.Read(); value != 10 || at != 2 {
		t.Errorf("it has %d at %d; want 10 at 2", value, at)
	}
}

// Every writer stores its own fence as the value, so that a value and a fence of different writers show.
func TestConcurrentWritesAreAcceptedInTheOrderOfTheirFencesOnly(t *testing.T) {
	const writers, writes = 4, 50_000
	var r fence.Register[uint64]
	var next atomic.Uint64
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range writes {
				f := next.Add(1)
				if err := r.Write(f, f); err == nil {
					continue
				}
				if value, at := r.Read(); at <= f || value != at {
					t.Errorf("%d was refused, and then it has %d at %d", f, value, at)
					return
				}
			}
		})
	}
	all.Go(func() {
		for before := uint64(0); before < writers*writes; {
			value, at := r.Read()
			if value != at || at < before {
				t.Errorf("it has %d at %d, after %d", value, at, before)
				return
			}
			before = at
		}
	})
	all.Wait()
}

// Holders that read, add one and write lose no update if they claim, although all hold the "lock" at once.
func TestNoUpdateBasedOnAClaimIsLost(t *testing.T) {
	var r fence.Register[int]
	var holders sync.WaitGroup
	var mu sync.Mutex
	next, added := uint64(0), 0
	for range 8 {
		holders.Go(func() {
			for range 1000 {
				mu.Lock()
				next++
				f := next
				mu.Unlock()
				n, err := r.Claim(f)
				if err == nil {
					err = r.Write(f, n+1)
				}
				if err == nil {
					mu.Lock()
					added++
					mu.Unlock()
				}
			}
		})
	}
	holders.Wait()
	if n, _ := r.Read(); n != added || n == 0 {
		t.Errorf("the value is %d after %d writes", n, added)
	}
}
