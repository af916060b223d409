package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	redislocker "github.com/go-co-op/gocron-redis-lock/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	lockgoredis "github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

const (
	ran     = "ran"
	skipped = "skipped"
	job     = "nightly"
)

// instance is a process with a scheduler of gocron. A tick is called by hand, so that the instances
// have it one after the other, as they do when their clocks differ.
type instance struct {
	t       *testing.T
	job     gocron.Job
	work    chan func()
	outcome chan string
}

// watched tells what became of a tick: a scheduler does not.
type watched struct {
	gocron.Locker
	gocron.Elector
	outcome chan<- string
}

func (w watched) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	l, err := w.Locker.Lock(ctx, key)
	if err != nil {
		w.outcome <- skipped
		return nil, err
	}
	return watchedLock{l, w.outcome}, nil
}

func (w watched) IsLeader(ctx context.Context) error {
	err := w.Elector.IsLeader(ctx)
	if err != nil {
		w.outcome <- skipped
	}
	return err
}

type watchedLock struct {
	gocron.Lock
	outcome chan<- string
}

func (l watchedLock) Unlock(ctx context.Context) error {
	err := l.Lock.Unlock(ctx)
	l.outcome <- ran
	return err
}

func withLocker(t *testing.T, l gocron.Locker) *instance {
	return newInstance(t, nil, func(i *instance) gocron.SchedulerOption {
		return gocron.WithDistributedLocker(watched{Locker: l, outcome: i.outcome})
	})
}

func withElector(t *testing.T, e gocron.Elector) *instance {
	outcome := make(chan string, 1)
	return newInstance(t, func() { outcome <- ran }, func(i *instance) gocron.SchedulerOption {
		i.outcome = outcome
		return gocron.WithDistributedElector(watched{Elector: e, outcome: outcome})
	})
}

func newInstance(t *testing.T, after func(), option func(*instance) gocron.SchedulerOption) *instance {
	t.Helper()
	i := &instance{t: t, work: make(chan func(), 1), outcome: make(chan string, 1)}
	s, err := gocron.NewScheduler(option(i))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	task := func() {
		(<-i.work)()
		if after != nil {
			after()
		}
	}
	if i.job, err = s.NewJob(gocron.DurationJob(24*time.Hour), gocron.NewTask(task), gocron.WithName(job)); err != nil {
		t.Fatal(err)
	}
	s.Start()
	return i
}

// begin lets the scheduler run the job, with work.
func (i *instance) begin(work func()) {
	i.t.Helper()
	select {
	case <-i.work: // of a tick that was skipped
	default:
	}
	i.work <- work
	if err := i.job.RunNow(); err != nil {
		i.t.Fatal(err)
	}
}

func (i *instance) end() string {
	i.t.Helper()
	select {
	case outcome := <-i.outcome:
		return outcome
	case <-time.After(patience):
		i.t.Fatal("the scheduler neither ran nor skipped the job")
		return ""
	}
}

func (i *instance) tick() string {
	i.t.Helper()
	i.begin(func() {})
	return i.end()
}

func (i *instance) wants(what, outcome, want string) {
	i.t.Helper()
	if outcome != want {
		i.t.Errorf("%s: the job was %s; want %s", what, outcome, want)
	}
}

// ours is the Locker for gocron of one process.
func ours(client *redis.Client, opts ...locker.Option) gocron.Locker {
	return locker.As[gocron.Lock](locker.New(single.New(lockgoredis.New(client))), append(opts, locker.WithAttempts(1))...)
}

// A short job is over on one instance before the next one has its tick.
func TestGocronRunsAShortJobOncePerTickWithAMinimumHold(t *testing.T) {
	ss := servers{redistest.Start(t)}
	a := withLocker(t, ours(ss.clients(t)[0], locker.WithMinHold(30*time.Second)))
	b := withLocker(t, ours(ss.clients(t)[0], locker.WithMinHold(30*time.Second)))
	for range 3 {
		a.wants("the first instance", a.tick(), ran)
		b.wants("the second, a little later", b.tick(), skipped)
		a.wants("the first again, whose clock was set back", a.tick(), skipped)
		ss.do(t, "DEL", job) // the minimum hold is over
		a, b = b, a
	}
	t.Run("several times without", func(t *testing.T) {
		a, b := withLocker(t, ours(ss.clients(t)[0])), withLocker(t, ours(ss.clients(t)[0]))
		a.wants("the first instance", a.tick(), ran)
		b.wants("the second, a little later", b.tick(), ran)
	})
}

// Two instances of ours, and one of ours beside one with gocron-redis-lock, which locks with
// redsync.
func TestGocronLockersExcludeEachOther(t *testing.T) {
	theirs := func(client *redis.Client) gocron.Locker {
		l, err := redislocker.NewRedisLocker(client, redsync.WithTries(1), redsync.WithExpiry(long))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	ss := servers{redistest.Start(t)}
	for name, pair := range map[string][2]gocron.Locker{
		"two of ours":             {ours(ss.clients(t)[0]), ours(ss.clients(t)[0])},
		"ours, then redis-lock":   {ours(ss.clients(t)[0]), theirs(ss.clients(t)[0])},
		"redis-lock, then ours":   {theirs(ss.clients(t)[0]), ours(ss.clients(t)[0])},
		"two of redis-lock, even": {theirs(ss.clients(t)[0]), theirs(ss.clients(t)[0])},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := withLocker(t, pair[0]), withLocker(t, pair[1])
			inside, goOn := make(chan struct{}), make(chan struct{})
			a.begin(func() { close(inside); <-goOn })
			wait(t, "the job runs", inside)
			b.wants("while the first runs", b.tick(), skipped)
			close(goOn)
			a.wants("the first", a.end(), ran)
			b.wants("after the first", b.tick(), ran)
		})
	}
	t.Run("redis-lock keeps to our minimum hold", func(t *testing.T) {
		a, b := withLocker(t, ours(ss.clients(t)[0], locker.WithMinHold(30*time.Second))), withLocker(t, theirs(ss.clients(t)[0]))
		a.wants("the first instance", a.tick(), ran)
		b.wants("the second, a little later", b.tick(), skipped)
	})
}

func TestGocronRunsJobsOnTheLeaderOfAnElection(t *testing.T) {
	ss := servers{redistest.Start(t)}
	campaign := func(ctx context.Context) (e *election.Election, over <-chan struct{}) {
		e = election.New(locker.New(fenced.New(lockgoredis.New(ss.clients(t)[0]))), "leader")
		done := make(chan struct{})
		go func() {
			defer close(done)
			err := e.Run(ctx, func(ctx context.Context, _ election.Term) error { <-ctx.Done(); return ctx.Err() })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run = %v", err)
			}
		}()
		return e, done
	}
	ctx, resign := context.WithCancel(t.Context())
	first, over := campaign(ctx)
	eventually(t, "the first leads", func() bool { return first.IsLeader(ctx) == nil })
	rest, end := context.WithCancel(t.Context())
	second, overToo := campaign(rest)
	defer func() { end(); wait(t, "the second ends", overToo) }()

	a, b := withElector(t, first), withElector(t, second)
	a.wants("the leader", a.tick(), ran)
	b.wants("the other", b.tick(), skipped)
	resign()
	wait(t, "the first resigns", over)
	eventually(t, "the second leads", func() bool { return second.IsLeader(rest) == nil })
	a.wants("the leader before", a.tick(), skipped)
	b.wants("the leader", b.tick(), ran)
}
