package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// An attempt reserves a slot on each node. Each slot is given back once, whoever cleans up.
func TestEverySlotIsFreeInTheEnd(t *testing.T) {
	const ms = time.Millisecond
	for says, c := range map[string]struct {
		third   behaviour // of Acquire on the third node
		quorum  int
		cancel  time.Duration // after this time the caller gives up; 0: never
		release time.Duration // a release begins this long after the attempt; 0: after the grant
	}{
		"granted":                                           {quorum: 3},
		"nothing sent":                                      {third: behaviour{err: unsent{}}, quorum: 2},
		"nothing sent, no quorum":                           {third: behaviour{err: unsent{}}, quorum: 3},
		"unknown before the grant":                          {third: behaviour{err: errDown}, quorum: 2},
		"unknown after the grant":                           {third: behaviour{after: 20 * ms, err: errDown}, quorum: 2, release: 50 * ms},
		"unknown while the release waits":                   {third: behaviour{after: 20 * ms, err: errDown}, quorum: 2},
		"unknown after the release":                         {third: behaviour{after: time.Second, err: errDown}, quorum: 2},
		"granted while the release waits":                   {third: behaviour{after: 20 * ms}, quorum: 2},
		"granted after the release":                         {third: behaviour{after: time.Second}, quorum: 2},
		"unknown, no quorum":                                {third: behaviour{err: errDown}, quorum: 3},
		"unknown after the caller gave up":                  {third: behaviour{after: 20 * ms, err: errDown}, quorum: 3, cancel: 10 * ms},
		"unknown long after the caller gave up":             {third: behaviour{after: time.Second, err: errDown}, quorum: 3, cancel: 10 * ms},
		"granted long after the caller gave up":             {third: behaviour{after: time.Second}, quorum: 3, cancel: 10 * ms},
		"released while the attempt was under way":          {third: behaviour{after: 20 * ms, err: errDown}, quorum: 3, release: 10 * ms},
		"released after an unknown answer, not yet granted": {third: behaviour{err: errDown}, quorum: 2, release: 2 * ms},
	} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := newNodes(3)
				nodes[1].set("acquire", behaviour{after: 5 * ms})
				nodes[2].set("acquire", c.third)
				l, req := quorumOf(t, nodes, redlock.WithQuorum(c.quorum)), request()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				release := func() { _ = l.Release(context.Background(), contract.Lease{Key: req.Key, Token: req.Token}) }
				if c.release > 0 {
					time.AfterFunc(c.release, release)
				}
				if _, err := l.Acquire(ctx, req); err == nil && c.release == 0 {
					release()
				}
				time.Sleep(ttl / 2)
				if n := holding(nodes, req.Token); n != 0 {
					t.Errorf("%d nodes have the token", n)
				}
				time.Sleep(time.Hour)
				for i, s := range redlock.Servers(l) {
					if s.Slots != 0 || s.Entries != 0 || s.Dropped != 0 {
						t.Errorf("node %d: %+v", i+1, s)
					}
				}
			})
		})
	}
}

// The first attempt finds node 3 held, and its caller gives up. The second one, with the same token, is
// granted there, and the answer is lost: before or after the token was spent.
func TestAnAttemptWhoseTokenIsSpentCleansUpAfterALostAnswer(t *testing.T) {
	for _, after := range []time.Duration{0, 15 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(3)
			nodes[1].set("acquire", behaviour{after: 20 * time.Millisecond})
			all := lockers(nodes)
			all[2] = losesAnswers{nodes[2], after}
			l, err := redlock.New(all)
			if err != nil {
				t.Fatal(err)
			}
			req := request()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(10*time.Millisecond, cancel)
			nodes[2].store.Set("k", "theirs", time.Minute)
			go func() { _, _ = l.Acquire(ctx, req) }()
			synctest.Wait()
			nodes[2].store.Delete("k")
			if lease, err := l.Acquire(t.Context(), req); err == nil {
				t.Errorf("granted %v with a token that is spent", lease)
			}
			time.Sleep(ttl / 2)
			if n := holding(nodes, req.Token); n != 0 {
				t.Errorf("%v: %d nodes have the token", after, n)
			}
			time.Sleep(time.Hour)
			for i, s := range redlock.Servers(l) {
				if s.Slots != 0 {
					t.Errorf("%v: node %d: %+v", after, i+1, s)
				}
			}
		})
	}
}

// losesAnswers loses the answers to grants.
type losesAnswers struct {
	*node
	after time.Duration
}

func (n losesAnswers) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := n.node.Acquire(ctx, req)
	if err == nil {
		time.Sleep(n.after)
		err = errDown
	}
	return lease, err
}
