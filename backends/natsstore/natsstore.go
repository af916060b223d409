// Package natsstore keeps locks in a stream of NATS JetStream, for programs that have a NATS server
// already:
//
//	conn, err := nats.Connect("nats://…")            // github.com/nats-io/nats.go
//	store := natsstore.New(conn)
//	err = store.Install(ctx, 3)                         // once: the stream, with three replicas
//	locks := locker.New(fenced.New(store))
//
// # Durability
//
// With its default settings, a NATS server may forget a lock that it has granted. It acknowledges a
// write before it is on disk, and calls fsync every two minutes. So a power cut takes the last two
// minutes, on one server as on three that lose power together. A lock that is forgotten is granted
// again, and the sequence of the stream falls back with it: two holders may then have the same
// number, and a guard that compares numbers sees no difference. The kill of a process forgets
// nothing, since the kernel has the data. Jepsen found lost writes and lasting disagreement of
// replicas in 2.12.1 (https://jepsen.io/analyses/nats-2.12.1), after files were damaged on a
// minority of servers too.
//
// A release deletes by the sequence that the store remembers. After a power cut, the server may have
// given that sequence to the lock of another key. So a store forgets its sequences when its connection
// was made again. Two cases are left, in which a release may delete the lock of another key: the
// connection stays, because it leads to another server of the cluster than those that lost power; or it
// breaks while the release is on its way.
//
// Set sync_interval: always in the configuration of every server, and use three replicas. No client
// can see that setting, so Check can't either. If an overlap is expensive, choose PostgreSQL or
// etcd.
//
// # How it works
//
// A lock is one message on a subject of its own, with the token as its data and with a TTL.
//
//	SetNX     publish, if the subject has no message (Nats-Expected-Last-Subject-Sequence: 0)
//	ExpireIf  publish again, if the last message is still ours (expected sequence)
//	DeleteIf  delete the message by its sequence (STREAM.MSG.DELETE), then publish a wake-up
//	Watch     subscribe to the wake-ups of the key
//
// The server decides each of them by a sequence, which it never gives twice. A store remembers the
// sequences of its own grants, so each is one round trip. Otherwise it first reads the last message
// of the subject from the leader of the stream (STREAM.MSG.GET). It never grants, renews or deletes
// by what it has read alone. A server that has lost its majority may answer a read for some seconds,
// so a holder may be told of a loss that did not happen.
//
// The number of a grant is the sequence of its first message. A renewal keeps it.
//
// What is different from other stores:
//   - A TTL has whole seconds. The store rounds up. The holder still stops at the end of its own
//     TTL.
//   - The server does not tell how long a lock still lives. So ExpireIf makes it live for the
//     longest TTL that was asked for it, from now. A shorter TTL never shortens it.
//   - A release wakes the waiters of all programs. The end of a lease wakes nobody: waiters poll
//     for it. Waiters have no queue, so there is no fair and no rwlock.
//   - The wall clock of the leader ends a lock. A clock that is set, or that of the next leader,
//     may end it early.
//   - A stream that is deleted and made again by Install has greater numbers, if the clock of that
//     program is right. A stream that is restored from a backup has not.
//   - A server or proxy that stood still may carry out a grant long after its connection was given
//     up. Nobody has that lock, and the key is held until the TTL ends.
//   - There is no guard: NATS compares sequences only within one stream.
//   - A lock can't be handed to another process (Lock.Transfer).
package natsstore

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
	"github.com/nats-io/nats.go"
)

// An Option changes a store.
type Option func(*config)

type config struct {
	stream, subject string
	maxTTL          time.Duration
	invalid         error
}

// WithStream sets the name of the stream; LOCKSTEP without it.
func WithStream(name string) Option {
	return func(c *config) {
		c.stream = name
		if name == "" || strings.ContainsAny(name, forbidden+".") {
			c.invalid = backends.Invalidf("natsstore.WithStream: %q is no name of a stream: use letters, digits, - and _", name)
		}
	}
}

// WithSubject sets what all subjects begin with; lockstep without it. A lock has the subject
// <subject>.lock.<key>, and its wake-ups have <subject>.wake.<key>. Programs with different
// subjects need different streams.
func WithSubject(subject string) Option {
	return func(c *config) {
		c.subject = subject
		if strings.ContainsAny(subject, forbidden) || strings.Contains("."+subject+".", "..") {
			c.invalid = backends.Invalidf("natsstore.WithSubject: %q is no subject: use words of letters, digits, - and _, with dots between", subject)
		}
	}
}

// forbidden may not be in subjects that a client publishes to.
const forbidden = " \t\r\n\x00*>/\\"

// WithMaxTTL sets the longest TTL that the store takes; [backends.DefaultMaxTTL], 30 seconds,
// without it.
func WithMaxTTL(ttl time.Duration) Option {
	return func(c *config) {
		if ttl < time.Millisecond {
			c.invalid = backends.Invalidf("natsstore.WithMaxTTL: %v is under 1ms", ttl)
			return
		}
		c.maxTTL = ttl
	}
}

// A Store is a [backends.NumberedStore] without a queue, a [backends.Inspector], a
// [backends.Lister], a [backends.Evictor] and a [backends.Identifier]. Safe for concurrent use.
type Store struct {
	conn   *nats.Conn
	config config
	grants grants
	rests  rests
	first  *first
	place  place
}

var (
	_ backends.NumberedStore = (*Store)(nil)
	_ backends.Inspector     = (*Store)(nil)
	_ backends.Lister        = (*Store)(nil)
	_ backends.Evictor       = (*Store)(nil)
	_ backends.Identifier    = (*Store)(nil)
	_ backends.OneServer     = (*Store)(nil)
)

// New returns a store that uses the connection. It sends nothing; see [Store.Install] and
// [Store.Check]. The caller closes the connection. A connection that has given up to reconnect
// (nats.MaxReconnects) stays closed, so set that to -1. With nats.NoEcho, each call is an error: a release
// would wake no waiter on the same connection. nats.go keeps no error of a dial that fails while it connects
// again, such as connection refused: no error of a call can say it, and only the nats.ReconnectErrHandler of
// the application gets it.
//
// A load balancer or NAT forgets an idle connection without a reset. So a call tests the connection by a PING
// when no call of the store was answered for five seconds. If no PONG and no message comes for a second, the
// store calls ForceReconnect, unless the connection has NoReconnect or MaxReconnects(0). Requests of the
// application that are under way fail then.
//
// If a call has no answer for half a second, and a PING none for 0.3 seconds more, the store opens a second
// connection with the options of the first, without its handlers. Its name is that of the first with
// " lockstep" behind. All calls go over it until the first one answers again, or the client library has made
// it again. If a PING over the second has no answer within a second either, the next calls take another, and
// those that were sent over it go on to wait. So leave room for three connections more. If the server lets the
// user open no other one, calls go on over the one there is.
func New(conn *nats.Conn, opts ...Option) *Store {
	s := &Store{conn: conn, rests: newRests(), first: newFirst(conn), config: config{stream: "LOCKSTEP", subject: "lockstep", maxTTL: backends.DefaultMaxTTL}}
	for _, opt := range opts {
		if opt != nil {
			opt(&s.config)
		}
	}
	switch {
	case conn == nil:
		s.config.invalid = backends.Invalid("the *nats.Conn is nil")
		return s
	case conn.Opts.NoEcho:
		s.config.invalid = backends.Invalid("the *nats.Conn has nats.NoEcho, so a release would wake no waiter of this program: give the store a connection without it")
	}
	s.grants.remade = conn.StatusChanged(nats.CONNECTED)
	runtime.AddCleanup(s, func(remade chan nats.Status) { go conn.RemoveStatusListener(remade) }, s.grants.remade)
	s.place.last = strings.Join(addresses(conn), ", ")
	return s
}

// SetNX implements [backends.Store].
func (s *Store) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	r, err := s.acquire(ctx, key, value, ttl)
	r.Fence = 0
	return r, err
}

// SetNXNumbered implements [backends.NumberedStore]. There is no queue, so t has no effect, but for
// InOrder, which is an error.
func (s *Store) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	if t.InOrder {
		return backends.Result{}, backends.Invalid("waiters have no order in NATS: use another store for fair")
	}
	r, err := s.acquire(ctx, key, value, ttl)
	if err == nil && r.Fence > maxNumber {
		_, _ = s.DeleteIf(ctx, key, value) // if it fails, the grant ends by its TTL
		return backends.Result{}, errNumbersEnd
	}
	return r, err
}

const maxNumber = 1<<53 - 1 // every language can hold it

func (s *Store) acquire(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	seconds, err := s.check(ctx, key, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	if err := s.wakeUp(ctx); err != nil {
		return backends.Result{}, err
	}
	end := s.rests.grant()
	r, err := s.take(ctx, key, value, seconds)
	end(err)
	return r, err
}

func (s *Store) take(ctx context.Context, key, value string, seconds int64) (backends.Result, error) {
	for i := range attempts {
		if err := s.pause(ctx, i); err != nil {
			return backends.Result{}, err
		}
		connection := s.grants.connection()
		seq, err := s.publish(ctx, key, value, &entry{ttl: seconds})
		if err == nil {
			s.grants.put(key, value, &entry{seq: seq, number: seq, ttl: seconds, connection: connection})
			return backends.Result{OK: true, Fence: seq}, nil
		}
		if !isConflict(err) {
			return backends.Result{}, err
		}
		found, err := s.last(ctx, key)
		switch {
		case err != nil:
			return backends.Result{}, err
		case found == nil:
			continue // it has ended, or, with replicas, a grant is under way that may be our own
		case found.value != value:
			return backends.Result{Foreign: found.ttl == 0, Holder: backends.InTheWay(backends.LabelOf(found.value))}, nil
		}
		found, err = s.renew(ctx, key, found, seconds)
		switch {
		case err != nil:
			return backends.Result{}, err
		case found != nil:
			return backends.Result{OK: true, Fence: found.number}, nil
		}
	}
	return backends.Result{}, s.at(errBusy)
}

// renew makes what was found live for so many seconds from now, or for longer. It returns nil if
// the value is not there any more.
func (s *Store) renew(ctx context.Context, key string, found *entry, seconds int64) (*entry, error) {
	value := found.value
	for i := range attempts {
		if err := s.pause(ctx, i); err != nil {
			return nil, err
		}
		// It is written again whatever its sequence: another write may be older than this call. With the
		// same sequence, another write is under way in a stream with replicas.
		if found == nil {
			now, err := s.last(ctx, key)
			switch {
			case err != nil:
				return nil, err
			case now == nil || now.value != value:
				s.grants.take(key, value)
				return nil, nil
			}
			found = now
		}
		next := *found
		next.ttl, next.connection = max(seconds, found.ttl), s.grants.connection()
		seq, err := s.publish(ctx, key, value, &next)
		if err == nil {
			next.seq = seq
			s.grants.put(key, value, &next)
			return &next, nil
		}
		if !isConflict(err) {
			return nil, err
		}
		found = nil // it has another sequence now, or another write is under way, or it is gone
	}
	return nil, s.at(errBusy)
}

// attempts is how often a call begins anew because the message has changed, or because another write
// of it is under way.
const attempts = 64

// pause waits before attempt i of a call, or until ctx ends. The first two attempts follow at once:
// the message may have changed since this store wrote it. Then the pauses double from 1 to 64
// milliseconds, under 4 seconds in all: a stream with replicas may need a while for another write.
func (s *Store) pause(ctx context.Context, i int) error {
	if i >= 2 {
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond << min(i-2, 6)):
		}
	}
	return s.over(ctx)
}

// ExpireIf implements [backends.Store]. A value without a TTL stays as it is, and ok is true.
func (s *Store) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (ok bool, err error) {
	seconds, err := s.check(ctx, key, ttl)
	if err != nil {
		return false, err
	}
	if err := s.wakeUp(ctx); err != nil {
		return false, err
	}
	found := s.grants.get(key, value)
	if found == nil {
		if found, err = s.last(ctx, key); err != nil || found == nil || found.value != value {
			return false, err
		}
		if found.ttl == 0 {
			return true, nil
		}
	}
	found, err = s.renew(ctx, key, found, seconds)
	return found != nil, err
}

// DeleteIf implements [backends.Store].
func (s *Store) DeleteIf(ctx context.Context, key, value string) (ok bool, err error) {
	if err := s.ready(ctx, key); err != nil {
		return false, err
	}
	if err := s.wakeUp(ctx); err != nil {
		return false, err
	}
	found := s.grants.take(key, value)
	for i := range attempts {
		if err := s.pause(ctx, i); err != nil {
			return false, err
		}
		if found == nil {
			if found, err = s.last(ctx, key); err != nil || found == nil || found.value != value {
				return false, err
			}
		}
		deleted, err := s.remove(ctx, found)
		if err != nil {
			return false, err
		}
		if deleted {
			s.wake(ctx, key)
			return true, nil
		}
		found = nil // it has another sequence now, or is gone
	}
	return false, s.at(errBusy)
}

// Endpoint returns the address of the server that the connection has, or those of the servers that it tries.
func (s *Store) Endpoint() string {
	if s.conn == nil {
		return ""
	}
	d, _ := s.first.doubted()
	if c := d.usable(); c != nil {
		return c.place.of(c.conn)
	}
	return s.place.of(s.conn)
}

// OneServer implements [backends.OneServer]: one stream has all keys, and one leader.
func (s *Store) OneServer() bool { return true }

// Identify implements [backends.Identifier]. All servers of a cluster are the same node, since a
// stream with replicas is on several of them. A server outside a cluster is known by its name: give
// each its own.
func (s *Store) Identify(ctx context.Context) (_ backends.Identity, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	if err := s.ready(ctx, ""); err != nil {
		return backends.Identity{}, err
	}
	info, err := s.info(ctx)
	if err != nil {
		return backends.Identity{}, err
	}
	if info.Cluster.Name != "" {
		return backends.Identity{Server: "nats cluster " + info.Cluster.Name, Role: "master"}, nil
	}
	return backends.Identity{Server: "nats server " + info.Cluster.Leader, Role: "master"}, nil
}

// ready refuses all calls of a store that was given bad options, keys that no subject can have, and
// calls that come too late.
func (s *Store) ready(ctx context.Context, key string) error {
	switch {
	case s.config.invalid != nil:
		return s.config.invalid
	case len(s.wakes(key)) > maxSubject:
		return backends.Invalidf("a key of %d bytes makes a subject of over %d bytes: use a shorter key", len(key), maxSubject)
	}
	return s.over(ctx)
}

// maxSubject keeps a line of the protocol under the limit of the server, max_control_line, which is
// 4,096.
const maxSubject = 2048

// check refuses what must not be sent, and gives ttl in seconds, rounded up.
func (s *Store) check(ctx context.Context, key string, ttl time.Duration) (seconds int64, err error) {
	if err := backends.CheckTTL(ctx, ttl, s.config.maxTTL, "natsstore.WithMaxTTL"); err != nil {
		return 0, err
	}
	return int64((ttl + time.Second - 1) / time.Second), s.ready(ctx, key) // the server cuts fractions off
}
