package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
	"github.com/lockstep-go/lockstep/internal/turns"
)

// A shared lock is a sorted set: its holds, each by the ms at which it ends, by the server's clock,
// and their group. Its waiters stand in the queue of the key, and reservations for them are beside
// it.
//
//	Enter   EVALSHA enter.lua   ZADD token, PEXPIREAT key when its last hold ends, if the hold fits; else ZADD the queue
//	Renew   EVALSHA renew.lua   ZADD token, if it has not ended
//	Leave   EVALSHA leave.lua   ZREM token; reservations for the head of the queue, and PUBLISH to their stores
//	quit    EVALSHA withdraw.lua   ZREM the queue, or what was reserved, and then as Leave

// reservedKey is the key of reservations. It has a NUL, which no key of a lock has, so they never
// collide.
func reservedKey(key string) string { return sideKey(key, "\x00reserved") }

// holdName is the member of the sorted set for a hold: its token, unless that could be taken for the
// name of a group.
func holdName(token string) string {
	if strings.HasPrefix(token, "\x00") {
		return "\x00token:" + token
	}
	return token
}

// admission is an Admission as enter.lua is told of it.
type admission struct {
	backends.Admission
	queueing        bool // the lock and its queue are used together
	member, inOrder string
	slots           string // not empty: the hold gets one
	lost            string // see lostChannel
}

// Enter adds the hold token to key for ttl if it fits to those that are there. If the lock and its
// queue can't be used together, it uses the lock alone, unless there is an order to respect: then a
// reservation keeps nobody out, and the waiter that it is for may find no room.
func (s *Store) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	if err := s.scripts("shared"); err != nil {
		return backends.Result{}, err
	}
	if err := s.granting(ctx, ttl); err != nil {
		return backends.Result{}, err
	}
	if err := s.turnError(a.Turn); err != nil {
		return backends.Result{}, err
	}
	if err := a.Validate(); err != nil {
		return backends.Result{}, backends.Invalid(err.Error())
	}
	full, ms, told := s.config.prefix+key, milliseconds(ttl), admission{Admission: a, queueing: a.InOrder || s.queues()}
	if a.Slots {
		told.slots = "slots"
	}
	if !told.queueing {
		return s.ops.enter(ctx, s.line, full, token, ms, told)
	}
	var mine *turns.Turn
	if a.InOrder {
		told.inOrder = "in order"
	}
	if a.Waiter != "" {
		member := sharedMember(a, s.own)
		if mine = s.turns.Ask(full, a.Waiter, member); mine != nil {
			told.member, told.lost = member, s.lostChannel(mine)
		}
	}
	r, err := s.ops.enter(ctx, s.line, full, token, ms, told)
	if !a.InOrder && (driver.IsMoving(err) || isKeptOut(err)) {
		r, alone := s.ops.enter(ctx, s.line, full, token, ms, admission{Admission: a, slots: told.slots})
		s.noteKeptOut(err, alone)
		return r, alone
	}
	if mine != nil && !s.asked(mine, r, err) {
		go s.withdraw(full, told.member) // what was sent before may have been there first
	}
	return r, err
}

// sharedMember is what the queue has of a waiter for a shared lock: see holds.lua.
func sharedMember(a backends.Admission, channel string) string {
	return fmt.Sprintf("%s@%d@%d@%s%s", a.Waiter, max(a.Limit, 0), len(a.Group), a.Group, channel)
}

// entered reads the reply of enter.lua.
func entered(a backends.Admission) func(reply any, err error) (backends.Result, error) {
	return func(reply any, err error) (backends.Result, error) {
		if err != nil {
			return backends.Result{}, err
		}
		list, _ := reply.([]any)
		switch {
		case len(list) == 4 && list[0] == int64(1):
			holds, _ := list[1].(int64)
			slot, isSlot := list[3].(int64)
			if holds < 1 || !isSlot || a.Slots && slot < 0 {
				return backends.Result{}, unexpected(reply)
			}
			r := backends.Result{OK: true, Holds: int(holds), Room: a.Room(int(holds)), Slot: int(max(slot, 0))}
			if a.Numbered {
				return withNumber(r, list[2], nil)
			}
			return r, nil
		case len(list) == 5 && list[0] == int64(0):
			left, isLeft := list[1].(int64)
			holds, isHolds := list[2].(int64)
			place, isPlace := list[3].(int64)
			holder, isText := list[4].(string)
			if isLeft && isHolds && isPlace && isText {
				r := refused(left, holder)
				r.Holds, r.Position = int(max(holds, 0)), int(max(place, 0))
				return r, nil
			}
		}
		return backends.Result{}, unexpected(reply)
	}
}

// Renew makes the hold token live for ttl from now, and never shorter than it would have lived.
func (s *Store) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	if err := s.scripts("shared"); err != nil {
		return false, err
	}
	if err := s.check(ctx, ttl); err != nil {
		return false, err
	}
	return s.ops.renew(ctx, s.line, s.config.prefix+key, token, milliseconds(ttl))
}

// Leave ends the hold token, and wakes waiters. It is sent once.
func (s *Store) Leave(ctx context.Context, key, token string) (bool, error) {
	if err := s.scripts("shared"); err != nil {
		return false, err
	}
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	return s.leave(ctx, s.line, s.config.prefix+key, token)
}

// leave uses the lock alone if the lock and its queue can't be used together: the waiters find out
// when they look.
func (s *Store) leave(ctx context.Context, l link, key, token string) (bool, error) {
	if s.queues() {
		ok, err := yes(once(ctx, l, scripts.Leave,
			key, queueKey(key), reservedKey(key), holdName(token), s.channel(key), reservation, s.counted()))
		if !driver.IsMoving(err) && !isKeptOut(err) {
			return ok, err
		}
		ok, alone := s.leaveAlone(ctx, l, key, token)
		s.noteKeptOut(err, alone)
		return ok, alone
	}
	return s.leaveAlone(ctx, l, key, token)
}

func (s *Store) leaveAlone(ctx context.Context, l link, key, token string) (bool, error) {
	return yes(once(ctx, l, scripts.LeaveAlone, key, holdName(token), s.channel(key), reservation, s.counted()))
}

// withdraw removes a waiter from the queue of a shared lock, and ends its reservation.
func (s *Store) withdraw(key, member string) {
	s.remove(scripts.Withdraw, key, member,
		key, queueKey(key), reservedKey(key), member, wakeChannel(key), reservation, s.counted())
}

// heardAdmitted takes a message that a waiter has a reservation for a shared lock.
func (s *Store) heardAdmitted(rest string) {
	member, key, ok := admitted(rest)
	if !ok {
		return
	}
	waiter, _, _ := strings.Cut(member, "@")
	if t := s.turns.Find(waiter); t != nil && t.Key == key {
		t.Wake()
		return
	}
	go s.withdraw(key, member) // the waiter has left
}

// admitted splits what a message about a reservation has behind its kind: how long the member is,
// the member and the key.
func admitted(rest string) (member, key string, ok bool) {
	length, rest, _ := strings.Cut(rest, "@")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}

// turnError refuses a waiter whose name does not fit into the queue, and an order where there is no
// queue.
func (s *Store) turnError(t backends.Turn) error {
	switch {
	case strings.Contains(t.Waiter, "@"):
		return backends.Invalidf("waiter %q has an @", t.Waiter)
	case t.InOrder && !s.queueing:
		return backends.Invalid("waiters can't stand in order under redisstore.WithoutWakes, redisstore.WithoutScripts or redisstore.WithReplicas")
	}
	return nil
}
