package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

const (
	permits    = 3
	shareKeys  = 2            // of semaphores and read-write locks
	jobKeys    = 8            // each is free once in a minimum hold
	minHold    = 2 * leaseTTL // of a job
	termLength = leaseTTL + leaseTTL/4
	shareWait  = time.Second
)

// orders are those of a program.
type orders struct {
	Work    string
	Addr    string
	Library int
	Prefix  string // of the keys
	Broken  bool   // its strategy does not keep its promise
}

const programEnv = "LOCKSTEP_CAMPAIGN_PROGRAM"

// A program is what a process of a fleet does. It tells of all that it is granted, in the lines of a
// [rivals.Record].
type program struct {
	orders
	tell func(line string)
	over context.Context // ends the program
}

// runProgram runs in the process: see TestProcess.
func runProgram(t *testing.T, text string) {
	p := &program{tell: func(line string) { fmt.Println(line) }, over: context.Background()}
	if err := json.Unmarshal([]byte(text), &p.orders); err != nil {
		t.Fatal(err)
	}
	rivals.EndWithParent()
	p.run(libraries[p.Library].dial(t, p.Addr).store)
}

func (p *program) run(store *redisstore.Store) {
	n := permits
	if p.Broken {
		n++
	}
	var all sync.WaitGroup
	for i := range hands {
		switch p.Work {
		case "permits":
			all.Go(func() { p.hold(p.client("permit", semaphore.New(store, n))) })
		case "permits in order":
			all.Go(func() { p.hold(p.client("permit", semaphore.New(store, n, semaphore.WithOrder()))) })
		case "reading and writing":
			rw := rwlock.New(store)
			readers := rw.Readers()
			if p.Broken {
				readers = elsewhere{readers}
			}
			if i == 0 {
				all.Go(func() { p.hold(p.client("write", rw.Writers())) })
			} else {
				all.Go(func() { p.hold(p.client("read", readers)) })
			}
		case "leading":
			if i == 0 {
				all.Go(func() { p.lead(store) })
			}
		case "jobs":
			all.Go(func() { p.jobs(p.client("job", single.New(store))) })
		case "passing on":
			all.Go(func() { p.pass(p.client("pass", fenced.New(store))) })
		}
	}
	all.Wait()
}

// client returns a Client that tells of what it is granted.
func (p *program) client(group string, l locker.Locker) witness {
	w := witness{Witness: rivals.Witness{Locker: l, Group: group, Tell: p.tell}, leading: new(atomic.Bool)}
	w.client = locker.New(w, locker.WithTTL(leaseTTL))
	return w
}

// hold holds something again and again. One hold in ten needs renewals.
func (p *program) hold(w witness) {
	rivals.Want(p.over, w.client, rivals.Wants{
		Key: func() string { return p.key(shareKeys) }, Work: p.workTime, Wait: shareWait, Tell: p.tell,
	})
}

func (p *program) workTime() time.Duration {
	longest := 20 * time.Millisecond
	if rand.IntN(10) == 0 {
		longest = 2 * leaseTTL
	}
	return rand.N(longest)
}

func (p *program) key(n int) string { return keyOf(p.Prefix, rand.IntN(n)) }

func keyOf(prefix string, i int) string { return fmt.Sprintf("%s key %d", prefix, i) }

// failed rests after an error, since the server may be down.
func (p *program) failed(err error) {
	if errors.Is(err, locker.ErrLost) {
		p.tell(fmt.Sprint("error lost, before it was granted: ", err))
	}
	rivals.Rest(p.over, rand.N(10*time.Millisecond))
}

// lead leads for a little longer than a TTL, and resigns. Terms that are shorter would be followed
// by pauses.
func (p *program) lead(store *redisstore.Store) {
	l := fenced.New(store)
	if p.Broken {
		l = semaphore.New(store, 2)
	}
	w := p.client("lead", l)
	err := election.New(w.client, p.Prefix+" leader").Run(p.over, func(ctx context.Context, _ election.Term) error {
		w.leading.Store(true)
		defer w.leading.Store(false)
		rivals.Rest(ctx, termLength)
		return nil
	})
	if p.over.Err() == nil {
		p.tell(fmt.Sprint("error Run has ended: ", err))
	}
}

// errJob is what one job in five fails with. Then another process may do it at once.
var errJob = errors.New("the job has failed")

// jobs does jobs that are due once in a minimum hold. The work of each takes a fraction of that.
func (p *program) jobs(w witness) {
	opts := []locker.Option{locker.WithAttempts(1), locker.WithMinHold(minHold)}
	if p.Broken {
		opts = opts[:1]
	}
	for p.over.Err() == nil {
		_ = w.client.Do(p.over, p.key(jobKeys), func(ctx context.Context, l *locker.Lock) error {
			rivals.Rest(ctx, rand.N(20*time.Millisecond))
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case rand.IntN(5) == 0:
				return errJob
			}
			w.Say("done", l.Lease().Token, time.Now())
			return nil
		}, opts...)
		rivals.Rest(p.over, rand.N(20*time.Millisecond)) // most attempts find the key held
	}
}

// pass takes locks, also with tickets of other processes, and gives every other one away. One ticket
// in ten is sent twice.
func (p *program) pass(w witness) {
	post := redis.NewClient(&redis.Options{Addr: p.Addr})
	defer post.Close()
	tickets := p.Prefix + " tickets"
	for p.over.Err() == nil {
		l, err := p.resume(w, post.RPop(p.over, tickets).Val()) // empty if there is none
		if l == nil {
			l, err = w.client.Lock(p.over, p.key(shareKeys), locker.WithWait(shareWait))
		}
		if err != nil {
			p.failed(err)
			continue
		}
		rivals.Rest(l.Context(), p.workTime())
		ticket, err := locker.Ticket{}, error(nil)
		if away := rand.IntN(2) == 0; away {
			ticket, err = l.Transfer(p.over, leaseTTL)
		}
		if ticket.Key() == "" || err != nil {
			_ = l.Unlock(context.Background()) // if it fails, the hold ends with its lease
			continue
		}
		if !p.Broken {
			w.Say("release", l.Lease().Token, time.Now())
		}
		text, _ := ticket.MarshalText()
		for range 1 + max(0, rand.IntN(10)-8) {
			post.LPush(p.over, tickets, text) // if it fails, nobody resumes the lock
		}
	}
}

// resume returns nil without a ticket, and for one that was used or whose lease has ended.
func (p *program) resume(w witness, text string) (*locker.Lock, error) {
	var ticket locker.Ticket
	if text == "" {
		return nil, nil
	}
	if err := ticket.UnmarshalText([]byte(text)); err != nil {
		p.tell(fmt.Sprint("error ", err))
	}
	l, err := w.client.Resume(p.over, ticket)
	if l != nil && l.Key() != ticket.Key() {
		p.tell("error another lock was resumed")
	}
	return l, err
}

// A witness also tells of attempts of leaders that were held, and of releases that come too early.
type witness struct {
	rivals.Witness
	leading *atomic.Bool // lead runs
	client  *locker.Client
}

func (w witness) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	asked := time.Now()
	lease, err := w.Witness.Acquire(ctx, req)
	if w.Group == "lead" && errors.Is(err, locker.ErrHeld) {
		w.Tell(fmt.Sprint("refused ", asked.UnixNano()))
	}
	return lease, err
}

func (w witness) Release(ctx context.Context, lease contract.Lease) error {
	// What may be left of a lease that has ended is released while lead winds up.
	if w.leading.Load() && !lease.Ended() {
		w.Tell("error released, and lead has not returned")
	}
	return w.Witness.Release(ctx, lease)
}

// elsewhere locks other keys than its caller believes.
type elsewhere struct{ locker.Locker }

func (e elsewhere) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	req.Key += ", elsewhere"
	return e.Locker.Acquire(ctx, req)
}
