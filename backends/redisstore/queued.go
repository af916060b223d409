package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
	"github.com/lockstep-go/lockstep/internal/turns"
)

// Waiters stand in a queue beside the lock: a sorted set in its slot of a Redis Cluster.
//
//	SetNXQueued  SET key token NX PX ttl   once after a release of this store that found the queue empty
//	             EVALSHA enqueue.lua   SET key token PX ttl if key is free or reserved for the waiter; else ZADD the queue
//	DeleteIf     EVALSHA pass.lua      if key holds token, SET key to a reservation for the head of the queue, and PUBLISH
//	                                   to its store; DEL if the queue is empty
//	WatchQueued  SUBSCRIBE             one channel per Store, for all keys, and one of all stores; EVALSHA quit.lua when a
//	                                   waiter leaves the queue
//
// A waiter whose store has lost its connection has no receiver, and is passed over at once. A
// frozen waiter has one, and costs the others one reservation. It is late then, and keeps its
// position: see place.lua. The next waiter in line is told when the reservation begins, and looks
// when it is over. A waiter whose position was lost tells all stores.

// queueLife is how long a queue lives without an attempt: as in place.lua.
const queueLife = 10 * time.Minute

// SetNXQueued is SetNX for a waiter. Without a position to keep or an order to respect, it is
// SetNX. So it is under WithoutWakes, WithoutScripts and WithReplicas, except that an order is an
// error there.
func (s *Store) SetNXQueued(ctx context.Context, key, token string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	if t.Waiter == "" && !t.InOrder { // the usual case for a free lock
		return s.SetNX(ctx, key, token, ttl)
	}
	return s.setInTurn(ctx, &attempt{key: s.config.prefix + key, token: token, ttl: ttl, turn: t})
}

// attempt is one call of SetNXQueued or SetNXNumbered. Its key has the prefix.
type attempt struct {
	key, token string
	ttl        time.Duration
	turn       backends.Turn
	numbered   bool
}

func (s *Store) setInTurn(ctx context.Context, a *attempt) (backends.Result, error) {
	if err := s.granting(ctx, a.ttl); err != nil {
		return backends.Result{}, err
	}
	if err := s.turnError(a.turn); err != nil {
		return backends.Result{}, err
	}
	switch {
	case a.turn.InOrder:
		return s.setInOrder(ctx, a)
	case s.queues():
		return s.setAsWaiter(ctx, a)
	}
	return s.setAlone(ctx, a)
}

// setInOrder takes a free key only for the head of the queue.
func (s *Store) setInOrder(ctx context.Context, a *attempt) (backends.Result, error) {
	mine, member := s.join(a)
	r, err := s.enqueue(ctx, a, mine, member)
	return s.inQueue(mine, member, r, err)
}

// setAsWaiter takes a free key whoever is in the queue. Where the lock and its queue can't be used
// together, it uses the lock alone.
func (s *Store) setAsWaiter(ctx context.Context, a *attempt) (backends.Result, error) {
	if s.turns.LikelyFree(a.key, a.turn.Waiter) {
		if r, err := s.setLikelyFree(ctx, a); r.OK || err != nil {
			return r, err
		}
	}
	mine, member := s.join(a)
	if mine == nil {
		return s.setAlone(ctx, a)
	}
	r, err := s.enqueue(ctx, a, mine, member)
	if driver.IsMoving(err) || isKeptOut(err) {
		r, alone := s.setAlone(ctx, a)
		s.noteKeptOut(err, alone)
		return r, alone
	}
	return s.inQueue(mine, member, r, err)
}

// setLikelyFree takes a key that is likely to be free. The script of the queue costs the server five
// times as much as SET. A key that is not free costs this one call more.
func (s *Store) setLikelyFree(ctx context.Context, a *attempt) (backends.Result, error) {
	if a.numbered {
		return s.ops.number(ctx, s.line, a.key, a.token, lifeOfKey(a.ttl), byClock)
	}
	return setIfFree(ctx, s.line, a.key, a.token, lifeOfKey(a.ttl))
}

// setAlone takes the key without its queue, which may have been tried before.
func (s *Store) setAlone(ctx context.Context, a *attempt) (backends.Result, error) {
	if a.numbered {
		return s.numberAlone(ctx, a.key, a.token, a.ttl, byClock)
	}
	return s.set(ctx, a.key, a.token, a.ttl)
}

// join returns the turn of the waiter, and what the queue has of it. There is none for a caller that
// does not wait, or has no watch: it gets no position.
func (s *Store) join(a *attempt) (mine *turns.Turn, member string) {
	if a.turn.Waiter == "" {
		return nil, ""
	}
	member = s.member(a.turn.Waiter)
	if mine = s.turns.Ask(a.key, a.turn.Waiter, member); mine == nil {
		return nil, ""
	}
	return mine, member
}

// enqueue sends the script of the queue.
func (s *Store) enqueue(ctx context.Context, a *attempt, mine *turns.Turn, member string) (backends.Result, error) {
	inOrder, ms, keep, lost := "", lifeOfKey(a.ttl), keep(a.turn, a.ttl), s.lostChannel(mine)
	if a.turn.InOrder {
		inOrder = "in order"
	}
	if a.numbered {
		return withNumber(enqueued(once(ctx, s.line, scripts.Numbered, a.key, queueKey(a.key), fenceKey(a.key),
			a.token, ms, member, inOrder, reservation, s.counted(), queueLifeMs, keep, lost, byClock)))
	}
	r, _, err := enqueued(once(ctx, s.line, scripts.Enqueue, a.key, queueKey(a.key),
		a.token, ms, member, inOrder, reservation, s.counted(), queueLifeMs, keep, lost))
	return r, err
}

// lostChannel is where an attempt of the waiter tells that its position was lost; empty: it has none
// to lose.
func (s *Store) lostChannel(t *turns.Turn) string {
	if s.turns.IsPlaced(t) {
		return s.lost
	}
	return ""
}

// inQueue is the result of enqueue. A waiter whose watch has ended meanwhile leaves the queue: what was
// sent before may have been there first.
func (s *Store) inQueue(mine *turns.Turn, member string, r backends.Result, err error) (backends.Result, error) {
	if mine != nil && !s.asked(mine, r, err) {
		go s.quit(mine.Key, member)
	}
	return r, err
}

// asked notes the answer to an attempt in the queue. It is false if nobody will use the position.
func (s *Store) asked(t *turns.Turn, r backends.Result, err error) bool {
	switch {
	case err != nil: // it may be granted, and then the position is not lost
		s.turns.Placed(t, false)
	case r.Position > 0:
		s.turns.Placed(t, true)
	}
	return s.turns.Asked(t, r.OK)
}

var reservation, queueLifeMs any = milliseconds(backends.Reservation), milliseconds(queueLife)

// keep is how long a reservation for the waiter lasts, in ms, as place.lua has it: in steps, so that
// it seldom changes.
func keep(t backends.Turn, ttl time.Duration) int64 {
	const step = 50
	ms := milliseconds(t.Reservation(ttl))
	if ms <= milliseconds(backends.Reservation) {
		return 0
	}
	return ms / step * step
}

// enqueued reads the reply of enqueue.lua: number is what it says of the number of a grant.
func enqueued(reply any, err error) (r backends.Result, number any, _ error) {
	if err != nil {
		return r, nil, err
	}
	list, _ := reply.([]any)
	switch {
	case len(list) == 3 && list[0] == int64(1):
		return backends.Result{OK: true}, list[1], nil
	case len(list) == 4 && list[0] == int64(0):
		left, isLeft := list[1].(int64)
		place, isPlace := list[2].(int64)
		holder, isText := list[3].(string)
		if isLeft && isPlace && isText {
			r = refused(left, holder)
			r.Position = int(max(place, 0))
			return r, nil, nil
		}
	}
	return r, nil, unexpected(reply)
}

// pass is DeleteIf. If the lock and its queue can't be used together, it releases the lock alone:
// the waiters find out when they look.
func (s *Store) pass(ctx context.Context, l link, key, token string) (bool, error) {
	args := s.passing(key, token)
	reply, err := once(ctx, l, scripts.Pass, args[:]...)
	ok, err := s.passed(key, reply, err)
	if driver.IsMoving(err) || isKeptOut(err) {
		ok, alone := yes(once(ctx, l, scripts.Release, s.releasing(key, token)...))
		s.noteKeptOut(err, alone)
		return ok, alone
	}
	return ok, err
}

// passed reads the reply of pass.lua, and notes whether it has found nobody in the queue.
func (s *Store) passed(key string, reply any, err error) (bool, error) {
	if err == nil && reply == int64(2) { // see free.lua
		s.turns.FoundEmpty(key)
		return true, nil
	}
	return yes(reply, err)
}

// passing is what pass.lua is told. An array stays on the stack of its caller, and both names are one piece
// of memory. So a pair of Lock and Unlock makes 28.5 allocations. With a slice in place of the array it makes
// 29.4, and with two pieces of memory 29.4 to 29.8.
func (s *Store) passing(key, token string) [6]any {
	queue, channel := queueAndChannel(key)
	return [...]any{key, queue, token, channel, reservation, s.counted()}
}

// noteKeptOut takes the errors of a call for a lock and its queue, and of one for the lock alone.
// If only the second call is permitted, only waiters in order try the first again.
func (s *Store) noteKeptOut(both, alone error) {
	if alone == nil && isKeptOut(both) {
		s.keptOut.Store(true)
	}
}

// isKeptOut tells that a script was not begun because of a permission. What is not permitted inside
// says so in other words.
func isKeptOut(err error) bool {
	reply, ok := errors.AsType[*driver.ReplyError](err)
	return ok && strings.HasPrefix(reply.Text, "NOPERM ")
}

// WatchQueued hears on the one channel of the Store and on the one of all stores. Both are opened for
// the first waiter and closed after the last.
func (s *Store) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	if !s.queues() {
		return s.Watch(ctx, key, wake)
	}
	if waiter == "" || strings.Contains(waiter, "@") {
		return backends.Invalidf("waiter %q is empty or has an @", waiter)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	t := &turns.Turn{Key: s.config.prefix + key, Waiter: waiter, Wake: wake}
	deaf := s.wakes.Listen(s.lost, s.heard)
	leave, err := s.wakes.Join(ctx, s.own, func() { s.turns.Missed(t) }, s.heard)
	if err != nil {
		deaf()
		return err
	}
	s.turns.Add(t)
	context.AfterFunc(ctx, func() {
		leave()
		deaf()
		switch member := s.turns.Remove(t); {
		case member == "":
		case member == s.member(waiter):
			s.quit(t.Key, member)
		default:
			s.withdraw(t.Key, member)
		}
	})
	return nil
}

// member is what the queue has: the waiter, and the channel that wakes it.
func (s *Store) member(waiter string) string { return waiter + "@" + s.own }

// quit removes a waiter from the queue of a lock, and ends its reservation.
func (s *Store) quit(key, member string) {
	queue, channel := queueAndChannel(key)
	s.remove(scripts.Quit, key, member, key, queue, member, channel, reservation, s.counted())
}

// remove removes a waiter from the queue with the script. If the lock and its queue can't be used
// together, it uses the queue alone: a reservation ends by itself. If that fails, the waiter is
// passed over when it is the head.
func (s *Store) remove(script scripts.Script, key, member string, args ...any) {
	ctx, cancel := context.WithTimeout(context.Background(), quitLimit)
	defer cancel()
	if _, err := do(ctx, s.line, script, args...); driver.IsMoving(err) {
		_, _ = s.line.do(ctx, "ZREM", queueKey(key), member)
	}
}

const quitLimit = 5 * time.Second

// heard takes a message: r (the lock is reserved for the waiter), n (for the waiter before it) or l
// (the waiter, of any store, has lost its position), then the waiter, @ and the key.
func (s *Store) heard(message string) {
	if message == "" {
		return
	}
	if message[0] == 'R' {
		s.heardAdmitted(message[1:])
		return
	}
	waiter, key, _ := strings.Cut(message[1:], "@")
	if message[0] == 'l' {
		s.turns.Lost(key, waiter)
		return
	}
	t := s.turns.Find(waiter)
	switch waits := t != nil && t.Key == key; {
	case waits && message[0] == 'r':
		t.Wake()
	case waits:
		s.turns.LookLater(t)
	case message[0] == 'r': // the waiter has left
		go s.quit(key, s.member(waiter))
	}
}

// queues tells whether waiters stand in a queue.
func (s *Store) queues() bool { return s.queueing && !s.keptOut.Load() }

// counted is empty where PUBLISH does not tell how many have heard: in a cluster they may be
// connected to another server.
func (s *Store) counted() any {
	if s.clustered() {
		return ""
	}
	return "counted"
}

// OneServer is false for a cluster: while one of its servers is down, the keys of the others can be
// locked.
func (s *Store) OneServer() bool { return !s.clustered() }

func (s *Store) clustered() bool {
	c, ok := s.exec.(interface{ Clustered() bool })
	return ok && c.Clustered()
}
