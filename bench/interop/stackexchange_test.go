package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

func TestStackExchangeRedis(t *testing.T) {
	interoperates(t, 1, 4, onOneServer, func(t *testing.T, ss servers) theirs {
		return stackExchangeLocks{stackExchange{ss.clients(t)[0]}}
	})
}

// TestLockQueryTellsOurToken and takes a lock that is free for one that is.
func TestLockQueryTellsOurToken(t *testing.T) {
	ours, theirs := besideStackExchange(t)
	if value, err := theirs.query(t.Context(), "key"); value != "" || err != nil {
		t.Errorf("LockQuery of a free lock = %q, %v", value, err)
	}
	lease, err := ours.Acquire(t.Context(), contract.Request{Key: "key", Token: contract.NewToken(), TTL: long})
	if err != nil {
		t.Fatal(err)
	}
	if value, err := theirs.query(t.Context(), "key"); value != lease.Token || err != nil {
		t.Errorf("LockQuery = %q, %v", value, err)
	}
}

// The condition of a transaction is looked at before it begins. Their lease ends, and we get the lock, in between.
func TestATransactionOnALeaseThatHasJustEndedLeavesOurs(t *testing.T) {
	for _, operation := range [][]any{{"UNLINK", "key"}, {"EXPIRE", "key", 600}} {
		for how, end := range map[string]func(t *testing.T, s *redistest.Server){
			"it runs out": func(t *testing.T, s *redistest.Server) {
				if _, err := s.Do("PEXPIRE", "key", "30"); err != nil {
					t.Error(err)
				}
				eventually(t, "their lease runs out", func() bool {
					n, err := s.Do("EXISTS", "key")
					return err == nil && n == int64(0)
				})
			},
			"it is released": func(t *testing.T, s *redistest.Server) {
				if _, err := s.Do("DEL", "key"); err != nil {
					t.Error(err)
				}
			},
		} {
			t.Run(operation[0].(string)+", "+how, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				ss := servers{server}
				theirs := stackExchange{ss.clients(t)[0]}
				if ok, err := theirs.take(t.Context(), "key", "theirs", long); !ok || err != nil {
					t.Fatalf("LockTake = %v, %v", ok, err)
				}
				var l *locker.Lock
				stays := func() {}
				done, err := theirs.transaction(t.Context(), "key", "theirs", operation, func() {
					end(t, server)
					l, _ = locker.New(single.New(goredis.New(ss.clients(t)[0], hour)), locker.WithTTL(long)).TryLock(t.Context(), "key")
					stays = ss.mustStay(t, "key")
				})
				if done || err != nil || l == nil {
					t.Fatalf("the transaction = %v, %v; our lock = %v", done, err, l)
				}
				stays()
				if err := l.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock = %v", err)
				}
			})
		}
	}
}

// LockTake with TimeSpan.MaxValue keeps the lock until it is released, with no expiry at the key.
func TestALockTakenForEverIsForeignAndIsWaitedFor(t *testing.T) {
	ours, theirs := besideStackExchange(t)
	if ok, err := theirs.take(t.Context(), "key", "theirs", forEver); !ok || err != nil {
		t.Fatalf("LockTake = %v, %v", ok, err)
	}
	locks := locker.New(ours)
	if _, err := locks.TryLock(t.Context(), "key"); !errors.Is(err, locker.ErrHeld) || !errors.Is(err, locker.ErrForeignKey) {
		t.Errorf("TryLock = %v", err)
	}
	got := make(chan struct{})
	go func() {
		defer close(got)
		if _, err := locks.Lock(t.Context(), "key"); err != nil {
			t.Errorf("Lock = %v", err)
		}
	}()
	if ok, err := theirs.release(t.Context(), "key", "theirs"); !ok || err != nil {
		t.Errorf("LockRelease = %v, %v", ok, err)
	}
	wait(t, "we get it", got)
}

func besideStackExchange(t *testing.T) (locker.Locker, stackExchange) {
	ss := servers{redistest.Start(t)}
	return single.New(goredis.New(ss.clients(t)[0], hour)), stackExchange{ss.clients(t)[0]}
}

// stackExchange sends what the four methods of IDatabase in StackExchange.Redis send, as read in its RedisDatabase.cs,
// RedisTransaction.cs and Condition.cs (github.com/StackExchange/StackExchange.Redis):
//
//	LockTake     SET key value EX seconds NX, or PX milliseconds if they are no whole seconds, or SETNX without a limit
//	LockQuery    GET key
//	LockExtend   WATCH key, GET key, and if that is the value: MULTI, EXPIRE or PEXPIRE key, EXEC; otherwise UNWATCH
//	LockRelease  the same, with UNLINK key
//
// Since its version 2.10.1, LockExtend and LockRelease send SET … IFEQ and DELEX … IFEQ instead to a server that has
// them (Redis 8.4). Those compare and act in one step, on the same plain string; they are not played here.
type stackExchange struct{ client *redis.Client }

const forEver = time.Duration(0)

func (s stackExchange) take(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	switch {
	case expiry == forEver:
		n, err := s.client.Do(ctx, "SETNX", key, value).Int()
		return n == 1, err
	case expiry%time.Second == 0:
		return s.set(ctx, key, value, "EX", int(expiry/time.Second), "NX")
	}
	return s.set(ctx, key, value, "PX", expiry.Milliseconds(), "NX")
}

func (s stackExchange) set(ctx context.Context, args ...any) (bool, error) {
	err := s.client.Do(ctx, append([]any{"SET"}, args...)...).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

func (s stackExchange) query(ctx context.Context, key string) (string, error) {
	value, err := s.client.Do(ctx, "GET", key).Text()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return value, err
}

func (s stackExchange) extend(ctx context.Context, key, value string, expiry time.Duration) (bool, error) {
	if expiry%time.Second == 0 {
		return s.transaction(ctx, key, value, []any{"EXPIRE", key, int(expiry / time.Second)}, nil)
	}
	return s.transaction(ctx, key, value, []any{"PEXPIRE", key, expiry.Milliseconds()}, nil)
}

func (s stackExchange) release(ctx context.Context, key, value string) (bool, error) {
	return s.transaction(ctx, key, value, []any{"UNLINK", key}, nil)
}

// transaction does operation if key has the value. Tests act between the look at the value and MULTI.
func (s stackExchange) transaction(ctx context.Context, key, value string, operation []any, between func()) (bool, error) {
	conn := s.client.Conn()
	defer conn.Close()
	if err := conn.Do(ctx, "WATCH", key).Err(); err != nil {
		return false, err
	}
	switch found, err := conn.Do(ctx, "GET", key).Text(); {
	case err != nil && !errors.Is(err, redis.Nil):
		return false, err
	case found != value:
		return false, conn.Do(ctx, "UNWATCH").Err()
	}
	if between != nil {
		between()
	}
	for _, args := range [][]any{{"MULTI"}, operation} {
		if err := conn.Do(ctx, args...).Err(); err != nil {
			return false, err
		}
	}
	err := conn.Do(ctx, "EXEC").Err()
	if errors.Is(err, redis.Nil) { // the key was touched since
		return false, nil
	}
	return err == nil, err
}

// stackExchangeLocks waits as programs that use it do: by trying again.
type stackExchangeLocks struct{ stackExchange }

var (
	errNotTaken = errors.New("LockTake = false")
	errNotOurs  = errors.New("LockExtend or LockRelease = false")
)

func (s stackExchangeLocks) Acquire(ctx context.Context, key string, ttl time.Duration, wait bool) (theirLock, error) {
	l := stackExchangeLock{s.stackExchange, key, contract.NewToken()}
	for {
		ok, err := s.take(ctx, key, l.value, ttl)
		switch {
		case err != nil:
			return nil, err
		case ok:
			return l, nil
		case !wait:
			return nil, errNotTaken
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (stackExchangeLocks) Refused(err error) bool { return errors.Is(err, errNotTaken) }
func (stackExchangeLocks) Lost(err error) bool    { return errors.Is(err, errNotOurs) }

type stackExchangeLock struct {
	stackExchange
	key, value string
}

func (l stackExchangeLock) Extend(ctx context.Context, ttl time.Duration) error {
	return done(l.extend(ctx, l.key, l.value, ttl))
}

func (l stackExchangeLock) Release(ctx context.Context) error {
	return done(l.release(ctx, l.key, l.value))
}

func done(ok bool, err error) error {
	if !ok && err == nil {
		return errNotOurs
	}
	return err
}
