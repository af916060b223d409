package laboratory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/fence"
	"github.com/redis/go-redis/v9"
)

// A stage is where a scenario is played once: a strategy, its servers, a lock that nobody has used, and a resource. It
// writes down what happens.
type stage struct {
	Record
	row      Row
	take     int // the how manieth
	servers  []server
	key      string
	actors   []*actor
	owners   []*owner
	holders  []*holder
	resource fence.Register[string] // looks at the numbers of grants, where they have one
}

// Times that scenarios use. None of them decides a verdict: a take that was too slow for them is repeated, with twice the
// time.
const (
	ttl      = time.Second            // of an owner whose end is waited for
	brief    = 250 * time.Millisecond // of a lease that is to be over soon
	long     = 10 * time.Minute       // of one that must not end meanwhile
	together = 150 * time.Millisecond // for how long two go on who hold at once
	moment   = 30 * time.Millisecond  // between steps, so that a timeline shows them apart
	patience = 4 * ttl                // with a lock that may never be free
)

// of gives more time to a take that is repeated.
func (s *stage) of(d time.Duration) time.Duration { return d << s.take }

func (s *stage) close() {
	for _, o := range s.owners {
		o.stop()
	}
	for _, h := range s.holders {
		_ = h.Unlock(context.Background()) // some have lost it, which is what they are here for
	}
	for _, a := range s.actors {
		a.wire.rest()
		a.close()
	}
}

// enter brings an actor in.
func (s *stage) enter(name string) (*actor, error) {
	a, err := newActor(name, s.row, s.servers)
	if err == nil {
		s.actors = append(s.actors, a)
	}
	return a, err
}

func (s *stage) tell(who, format string, args ...any) {
	s.Events = append(s.Events, Event{time.Now(), who, fmt.Sprintf(format, args...)})
}

// A holder believes that it has the lock.
type holder struct {
	*locker.Lock
	who  string
	from time.Time
	at   int // its hold in the record
}

// asks makes one attempt; nil if it was refused.
func (s *stage) asks(ctx context.Context, a *actor, opts ...locker.Option) (*holder, error) {
	return s.ask(a, func() (*locker.Lock, error) { return a.locks.TryLock(ctx, s.key, opts...) })
}

// waits waits for the lock; nil if it was not to be had for as long as patience. The first attempt has all the time that
// it needs: one that is cut off may have been granted, and then be in the way of the next.
func (s *stage) waits(ctx context.Context, a *actor, patience time.Duration, opts ...locker.Option) (*holder, error) {
	return s.ask(a, func() (*locker.Lock, error) {
		l, err := a.locks.TryLock(ctx, s.key, opts...)
		if errors.Is(err, locker.ErrHeld) {
			return a.locks.Lock(ctx, s.key, append(opts, locker.WithWait(patience))...)
		}
		return l, err
	})
}

func (s *stage) ask(a *actor, lock func() (*locker.Lock, error)) (*holder, error) {
	from := time.Now()
	l, err := lock()
	return s.answered(a, from, l, err)
}

// answered writes down what a call returned. What is neither a lock nor a refusal keeps the scenario from happening.
func (s *stage) answered(a *actor, from time.Time, l *locker.Lock, err error) (*holder, error) {
	now := time.Now()
	switch {
	case err == nil:
		h := &holder{l, a.name, now, len(s.Holds)}
		s.holders = append(s.holders, h)
		s.Holds = append(s.Holds, Hold{Who: a.name, From: now, Until: now, Works: now})
		s.tell(a.name, "is granted the lock%s", numberOf(l.Fence()))
		return h, nil
	case errors.Is(err, locker.ErrHeld):
		s.Asked = append(s.Asked, Asked{a.name, from, now})
		if took := now.Sub(from); took > together {
			s.tell(a.name, "was refused for %v", tenths(took))
		} else {
			s.tell(a.name, "is refused")
		}
		return nil, nil
	}
	return nil, fmt.Errorf("%s: %w", a.name, err)
}

func numberOf(fence uint64) string {
	if fence == 0 {
		return ""
	}
	return fmt.Sprintf(", number %d", fence)
}

// believe writes down that these hold the lock now, by what their contexts say. Who does not is not in the way.
func (s *stage) believe(holders ...*holder) {
	for _, h := range holders {
		if h == nil {
			continue
		}
		now := time.Now()
		if h.Context().Err() == nil {
			s.Holds[h.at].Until, s.Holds[h.at].Works = now, now
		}
	}
}

// goOn lets holders hold the lock for a while, if there is more than one.
func (s *stage) goOn(ctx context.Context, holders ...*holder) error {
	s.believe(holders...)
	if err := pause(ctx, together); err != nil {
		return err
	}
	s.believe(holders...)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// write is what a holder does to the resource: it refuses a number that is too low. Without numbers it can't.
func (s *stage) write(who string, number uint64) error {
	if number == 0 {
		s.tell("Resource", "accepts what %s writes", who)
		return nil
	}
	err := s.resource.Write(number, who)
	if err == nil {
		s.tell("Resource", "accepts what %s writes%s", who, numberOf(number))
	}
	return err
}

// writeLate is the write of one who held the lock before someone else did.
func (s *stage) writeLate(who string, number uint64) error {
	err := s.write(who, number)
	switch {
	case err == nil:
		s.late = landed
	case errors.Is(err, fence.ErrLate):
		s.late = refusedByFence
		s.tell("Resource", "refuses what %s writes%s", who, numberOf(number))
	default:
		return err
	}
	return nil
}

// hasNoExpiry asks the servers themselves whether what lies under the key is there for ever.
func (s *stage) hasNoExpiry(ctx context.Context) (bool, error) {
	for _, srv := range s.servers {
		client := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1})
		left, err := client.PTTL(ctx, s.key).Result()
		client.Close()
		if err != nil || left == -1 {
			return err == nil, err
		}
	}
	return false, nil
}

// leaveStale leaves under the keys what an owner does that has died, once its leases have ended. A strategy without expiry
// leaves locks that were released.
func (s *stage) leaveStale(ctx context.Context, keys ...string) error {
	a, err := s.enter("Nobody")
	if err != nil {
		return err
	}
	for _, key := range keys {
		lease, err := a.locker.Acquire(ctx, contract.Request{Key: key, Token: contract.NewToken(), TTL: s.of(brief)})
		if err != nil {
			return fmt.Errorf("an owner that is to die: %w", err)
		}
		a.wire.settle()
		if s.row.Endless {
			if err := a.locker.Release(ctx, lease); err != nil {
				return fmt.Errorf("an owner that is to die: %w", err)
			}
		}
	}
	return pause(ctx, s.of(brief)+moment)
}

// rehearse leaves what a dead owner does, and tells which commands an attempt takes to get that. Afterwards the servers
// know all scripts.
func (s *stage) rehearse(ctx context.Context) (commands []string, err error) {
	keys := []string{s.key + "/warm", s.key + "/rehearsal"}
	if err := s.leaveStale(ctx, append(keys, s.key)...); err != nil {
		return nil, err
	}
	a, err := s.enter("Rehearsal")
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		a.wire.reset()
		lease, err := a.locker.Acquire(ctx, contract.Request{Key: key, Token: contract.NewToken(), TTL: s.row.long()})
		if err != nil {
			return nil, fmt.Errorf("a rehearsal: %w", err)
		}
		a.wire.settle()
		commands = a.wire.sent()
		if err := a.locker.Release(ctx, lease); err != nil {
			return nil, fmt.Errorf("a rehearsal: %w", err)
		}
		a.wire.settle()
	}
	return commands, nil
}
