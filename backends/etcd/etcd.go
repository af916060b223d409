// Package etcd keeps locks in etcd, which goes on while a minority of its members is down, and which
// forgets nothing that it has answered:
//
//	store, client, err := etcd.Open(clientv3.Config{Endpoints: endpoints})
//	defer client.Close()
//	locks := locker.New(fenced.New(store))
//
// A lock is a key of etcd with the token as its value and with a lease of its own. It does not use
// package concurrency of etcd.
//
//	SetNX     Get, unless the last attempts got their locks. If the key is free: a lease, and
//	          Txn: if CreateRevision(key) = 0 then Put. Meanwhile LeaseKeepAlive, if the lease is that
//	          of a released lock
//	ExpireIf  Get, and LeaseKeepAlive. If the lease is shorter than ttl: a new lease, and
//	          Txn: if ModRevision(key) has not changed then Put. If such a Txn had no answer, the next
//	          call makes one with the old lease, so that the first can't come late
//	DeleteIf  Txn: if Value(key) = token then Delete
//	Enter     Get of all holds. If they admit one more: a lease, and Txn: if none of them is newer,
//	          and one of them is still there, then Put. Meanwhile LeaseKeepAlive, as for SetNX
//	Watch     Watch of the key, with a leader; a key that expires wakes waiters too
//
// Every call is made WithRequireLeader: a member that has lost its leader refuses it at once, and not
// after some seconds. The client library asks the members in turn, so one of three calls meets it.
//
// The client has one connection to each member. If it leaves a call without an answer for about a second or
// more, the next calls for locks go over a connection that the store opens to one member, and closes when
// the client is answered again. If a call has less time, reads that outlive it find that. A waiter has its
// lock about two seconds after the release then. Wake-ups stay on the connection of the client. A waiter
// that hears none looks by itself, after six seconds at most. A client keeps its connections if it has a
// user name and is not from [Open], if its endpoints have different schemes, or if its KV was replaced, as
// package namespace of the client library does. Then gRPC finds one that is silent, if the client has a
// keep-alive: see [Open].
//
// Only a transaction decides who has a lock. What Get returns may be out of date, and then the
// transaction fails. An attempt that finds the lock held changes no key.
//
// The number of a grant is the revision of the cluster at which the key was created. A revision rises
// with every change in the cluster.
//
// # Keys
//
//	<prefix><length of key>/<key>          a lock: "=" and the token
//	<prefix><length of key>/<key>#         its number, if Transfer gave it a new one
//	<prefix><length of key>/<key>/<token>  a hold of a semaphore or of a reentrant lock
//
// The length keeps the keys of two locks apart, whatever bytes they have. See [WithPrefix] for two
// prefixes.
//
// # What is different from other stores
//
// etcd counts a lease in whole seconds, and its shortest lease has 2 seconds with the default election
// timeout. A shorter TTL is rounded up. The holder still stops at the end of its own TTL.
//
// A new leader of etcd starts all leases anew. So the lock of a dead holder then lives longer.
//
// Waiters have no queue: a release wakes one waiter of each program. There is no fair and no rwlock,
// and a semaphore has no order.
//
// A restore from a snapshot takes the revisions back, and the numbers with them, unless it is made
// with --bump-revision and --mark-compacted.
package etcd

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// An Option changes a store.
type Option func(*config)

type config struct {
	prefix  string
	maxTTL  time.Duration
	invalid error
}

// WithPrefix puts prefix before every key; lockstep/ without it. A program needs the permission to
// read and to write keys with this prefix, and no other.
//
// It may not end in a digit, since the length of the key follows: the locks of a1 and a could meet. Do not
// put one prefix inside another, such as a/1/ inside a/.
func WithPrefix(prefix string) Option {
	return func(c *config) {
		c.prefix = prefix
		if n := len(prefix); n > 0 && prefix[n-1] >= '0' && prefix[n-1] <= '9' {
			c.invalid = backends.Invalidf("etcd.WithPrefix: %q ends in a digit, and may meet another prefix: put / at its end", prefix)
		}
	}
}

// WithMaxTTL sets the longest TTL that the store takes; [backends.DefaultMaxTTL], 30 seconds, without
// it.
func WithMaxTTL(ttl time.Duration) Option {
	return func(c *config) {
		if ttl < time.Millisecond {
			c.invalid = backends.Invalidf("etcd.WithMaxTTL: %v is under 1ms", ttl)
			return
		}
		c.maxTTL = ttl
	}
}

// A Store is a [backends.NumberedStore] without a queue, a [backends.SharedTransferStore], a
// [backends.TransferStore], a [backends.Inspector], a [backends.Lister], a [backends.Evictor] and a
// [backends.Identifier].
type Store struct {
	client *clientv3.Client
	ways   *ways
	config config
	spares spares
	moves  moves
	streak streak
	uses   uses
}

// A streak counts grants, until an attempt gets none. An attempt that does not look first spends two of
// them, and gets them back if it is granted. If it finds the lock held, its transaction is an entry in
// the log of the cluster. So there is at most one such transaction for every two grants.
type streak struct{ atomic.Int64 }

const toGoStraight = 2

func (s *streak) spend() bool {
	for {
		switch n := s.Load(); {
		case n < toGoStraight:
			return false
		case s.CompareAndSwap(n, n-toGoStraight):
			return true
		}
	}
}

// uses knows when the store was last used: members were read from, or a lock was granted or released.
type uses struct {
	mu   sync.Mutex
	last time.Time
}

const (
	afterPause = 5 * time.Second
	wakeLimit  = 2 * time.Second // gRPC needs one to find that a connection is dead, and makes another one
)

func (u *uses) note() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = time.Now()
}

func (u *uses) paused() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Since(u.last) >= afterPause
}

var (
	_ backends.NumberedStore       = (*Store)(nil)
	_ backends.TransferStore       = (*Store)(nil)
	_ backends.SharedTransferStore = (*Store)(nil)
	_ backends.Inspector           = (*Store)(nil)
	_ backends.Lister              = (*Store)(nil)
	_ backends.Evictor             = (*Store)(nil)
	_ backends.Identifier          = (*Store)(nil)
	_ backends.OneServer           = (*Store)(nil)
)

// Open opens a client with settings fit for locks, where config does not set its own, and returns a store
// on it together with the client, for the caller to close:
//   - gRPC finds a connection that has fallen silent within 11 seconds (DialKeepAliveTime,
//     DialKeepAliveTimeout): it asks no more often. Until then, calls for locks go over another one;
//   - a login is given up after 5 seconds (DialTimeout);
//   - the client library writes no lines to standard error, since the calls return its errors. It would
//     write one for each call whose ctx ends. It does if config has a Logger or a LogConfig, or if
//     ETCD_CLIENT_DEBUG is set;
//   - an error says why no member could be reached, such as connection refused, and whether a call was sent.
//     The client library drops both.
//
// It connects when it is first used, or at once if config has a Username.
func Open(config clientv3.Config, opts ...Option) (*Store, *clientv3.Client, error) {
	config.DialKeepAliveTime = cmp.Or(config.DialKeepAliveTime, 10*time.Second)
	config.DialKeepAliveTimeout = cmp.Or(config.DialKeepAliveTimeout, time.Second)
	config.DialTimeout = cmp.Or(config.DialTimeout, 5*time.Second)
	if config.Logger == nil && config.LogConfig == nil && os.Getenv("ETCD_CLIENT_DEBUG") == "" {
		config.Logger = zap.NewNop()
	}
	config.DialOptions = append(slices.Clone(config.DialOptions), grpc.WithChainUnaryInterceptor(keepTrace))
	ctx := withTrace(cmp.Or(config.Context, context.Background()))
	config.Context = ctx
	client, err := clientv3.New(config)
	if err != nil {
		why := because(reason(ctx))
		return nil, nil, fmt.Errorf("lockstep: open: etcd at %s: %w%s%s", addresses(config.Endpoints), err, why, hint(why))
	}
	client.Auth = &login{Auth: client.Auth, client: client}
	return New(client, opts...), client, nil
}

// New returns a store that uses the client. The caller closes the client. Unless the client has a Logger,
// it writes a line to standard error for each call whose ctx ends. No error says why no member could be
// reached, and a call that was not sent is unknown: see [Open]. For an embedded server, use a client with its
// address: the store needs a connection, and a client of package v3client has none.
func New(client *clientv3.Client, opts ...Option) *Store {
	s := &Store{client: client, config: config{prefix: "lockstep/", maxTTL: backends.DefaultMaxTTL}}
	s.uses.note() // the connections are new, most likely
	for _, opt := range opts {
		if opt != nil {
			opt(&s.config)
		}
	}
	switch {
	case client == nil:
		s.config.invalid = backends.Invalid("the *clientv3.Client is nil")
		return s
	case client.ActiveConnection() == nil:
		s.config.invalid = backends.Invalid("the *clientv3.Client has no connection, as that of an embedded server (v3client.New): make it with clientv3.New and the address of the server")
		return s
	}
	s.ways = newWays(client, s.at(""))
	if l, ok := client.Auth.(*login); ok {
		l.ways.CompareAndSwap(nil, s.ways)
	}
	// For each renewal, the client library then logs in again, which a majority writes to disk too.
	s.spares.none = client.Username != "" && client.Token == ""
	return s
}

// SetNX implements [backends.Store].
func (s *Store) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	r, err := s.SetNXNumbered(ctx, key, value, ttl, backends.Turn{})
	r.Fence = 0
	return r, err
}

// SetNXNumbered implements [backends.NumberedStore]. There is no queue: an order is a permanent error,
// and t is otherwise of no use.
func (s *Store) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	ctx = begun(ctx)
	seconds, err := s.check(ctx, ttl)
	if err != nil {
		return backends.Result{}, err
	}
	if t.InOrder {
		return backends.Result{}, backends.Invalid("waiters can't stand in order in etcd: use another store for fair")
	}
	paused := s.wakeUp(ctx) // then it looks first
	straight := !paused && s.spares.has(seconds) && s.streak.spend()
	r, err := s.take(ctx, key, value, seconds, straight)
	switch {
	case !r.OK:
		s.streak.Store(0)
	case straight:
		s.streak.Add(toGoStraight + 1)
	default:
		s.streak.Add(1)
	}
	if r.OK {
		s.uses.note()
	}
	return r, err
}

// wakeUp reads from each member if the store was not used for five seconds. A load balancer or NAT may have
// forgotten the connections, of which each member has one. The client library sends a read again when gRPC
// finds that, but nothing that writes. If gRPC has no keep-alive, a read that has no answer shows it, and the
// next calls go another way. The reads outlive a caller who has less time, and the next callers join them.
func (s *Store) wakeUp(ctx context.Context) (paused bool) {
	if !s.uses.paused() {
		return false
	}
	select {
	case <-s.ways.ask(withTrace(ctx), wakeLimit): // what is wrong, the next call finds
		s.uses.note()
	case <-ctx.Done():
	}
	return true
}

// take is SetNXNumbered. If it goes straight, it does not look first whether the key is free.
func (s *Store) take(ctx context.Context, key, value string, seconds int64, straight bool) (backends.Result, error) {
	var found state
	var err error
	if !straight {
		if found, err = s.get(ctx, key); err != nil {
			return backends.Result{}, s.notDone(ctx, err)
		}
	}
	for {
		var done bool
		switch err := found.wrongType(); {
		case err != nil:
			return backends.Result{}, err
		case found.lock == nil:
			if done, found, err = s.create(ctx, key, value, seconds); err != nil {
				return backends.Result{}, err
			}
		case found.token() != value:
			return found.held(), nil
		default: // granted already: it lives for ttl from now at least
			if done, found, err = s.keep(ctx, key, found, found.moved(value, found.number), seconds); err != nil {
				return backends.Result{}, s.explain(ctx, err)
			}
		}
		if done {
			return backends.Result{OK: true, Fence: found.fence()}, nil
		}
	}
}

// create stores value under a key that is free. If something else is there now, it returns that.
func (s *Store) create(ctx context.Context, key, value string, seconds int64) (done bool, now state, err error) {
	at := s.at(key)
	r, err := s.grant(ctx, seconds, at, func(lease clientv3.LeaseID) *txn {
		return s.txn(ctx).
			If(isFree(at), clientv3.Compare(clientv3.CreateRevision(holdsAt(at)), "=", 0).WithRange(end(at))).
			Then(clientv3.OpPut(at, mark+value, clientv3.WithLease(lease))).
			Else(getOp(at))
	})
	switch {
	case err != nil:
		return false, now, err
	case r.Succeeded:
		return true, state{lock: &mvccpb.KeyValue{CreateRevision: r.Header.Revision}}, nil
	}
	return false, readTxn(at, r), nil
}

// keep makes a key live for so many seconds from now at least, and stores next there if that is not
// what it has. It returns done, or what is there now because the key has changed.
func (s *Store) keep(ctx context.Context, key string, found, next state, seconds int64) (done bool, now state, err error) {
	at := s.at(key)
	lease := clientv3.LeaseID(found.lock.Lease)
	enough, err := s.renew(ctx, lease, seconds)
	move := s.moves.of(at) // not before the renewal: a lease that is granted later ends later
	switch {
	case goesOnAfterEnd(ctx, err):
		now, err = s.get(ctx, key)
		return false, now, err
	case err != nil:
		return false, now, err
	case enough && next.value == found.value && move == nil:
		return true, found, nil
	case !enough:
		move = s.moves.begin(at)
	}
	defer func() { s.moves.end(at, move, done, s.config.maxTTL) }()
	if !enough {
		if lease, err = s.newLease(ctx, seconds); err != nil {
			return false, now, err
		}
	}
	puts := []clientv3.Op{clientv3.OpPut(at, next.value, clientv3.WithLease(lease))}
	if next.number > 0 {
		puts = append(puts, clientv3.OpPut(numberAt(at), strconv.FormatInt(next.number, 10), clientv3.WithLease(lease)))
	}
	r, err := s.txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(at), "=", found.lock.ModRevision)).Then(puts...).Else(getOp(at)).Commit()
	switch {
	case goesOnAfterEnd(ctx, err):
		now, err = s.get(ctx, key)
		return false, now, err
	case err != nil:
		return false, now, err
	case r.Succeeded:
		return true, next, nil
	}
	return false, readTxn(at, r), nil
}

// renew starts a lease anew, and reports whether it lasts for so many seconds. No lease is not enough.
func (s *Store) renew(ctx context.Context, lease clientv3.LeaseID, seconds int64) (enough bool, err error) {
	if lease == 0 {
		return false, nil
	}
	lives, err := s.keepAlive(ctx, lease)
	return err == nil && lives >= seconds, err
}

// ExpireIf implements [backends.Store]. A value without a lease stays as it is, and ok is true.
func (s *Store) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (ok bool, err error) {
	ctx = begun(ctx)
	seconds, err := s.check(ctx, ttl)
	if err != nil {
		return false, err
	}
	found, err := s.get(ctx, key)
	if err != nil {
		return false, s.notDone(ctx, err)
	}
	for err == nil {
		if err := found.wrongType(); err != nil {
			return false, err
		}
		if found.lock == nil || found.token() != value {
			return false, nil
		}
		if found.lock.Lease == 0 {
			return true, nil
		}
		if ok, found, err = s.keep(ctx, key, found, found.moved(value, found.number), seconds); ok {
			return true, nil
		}
	}
	return false, s.explain(ctx, err)
}

// DeleteIf implements [backends.Store].
func (s *Store) DeleteIf(ctx context.Context, key, value string) (ok bool, err error) {
	ctx = begun(ctx)
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	at := s.at(key)
	r, err := s.txn(ctx).
		If(clientv3.Compare(clientv3.Value(at), "=", mark+value)).
		Then(clientv3.OpDelete(at, clientv3.WithRange(holdsAt(at)), clientv3.WithPrevKV())). // with its number
		Else(getOp(at)).Commit()
	switch {
	case err != nil:
		return false, s.explain(ctx, err)
	case !r.Succeeded:
		now := readTxn(at, r)
		return false, now.wrongType()
	}
	s.spares.give(clientv3.LeaseID(r.Responses[0].GetResponseDeleteRange().PrevKvs[0].Lease))
	s.uses.note()
	return true, nil
}

// Guard is a condition for any transaction on the same cluster: it holds while the lease is its
// holder's. So a holder that has lost its lock can't write behind the next holder, and the data needs
// no number. It is for leases of single and fenced. A lease of a semaphore or of a reentrant lock
// has [Store.GuardHold].
//
//	client.Txn(ctx).If(store.Guard(lock.Lease())).Then(clientv3.OpPut("invoice/42", "paid")).Commit()
//
// If the transaction has not succeeded, the lock is lost, or another condition of it does not hold.
func (s *Store) Guard(lease contract.Lease) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(s.at(lease.Key)), "=", mark+lease.Token)
}

// OneServer implements [backends.OneServer]: without a majority, no key can be locked.
func (s *Store) OneServer() bool { return true }

// Endpoint returns the addresses of the members that the client knows.
func (s *Store) Endpoint() string {
	if s.client == nil {
		return ""
	}
	return addresses(s.client.Endpoints())
}

// addresses are those of some members, without a password that may be in them.
func addresses(endpoints []string) string {
	all := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		all[i] = endpoint
		if u, err := url.Parse(endpoint); err == nil && u.User != nil {
			u.User = nil
			all[i] = u.String()
		}
	}
	return strings.Join(all, ",")
}

// Identify implements [backends.Identifier]: all members of a cluster are the same node of a quorum.
func (s *Store) Identify(ctx context.Context) (_ backends.Identity, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	ctx = begun(ctx)
	if err := s.ready(ctx); err != nil {
		return backends.Identity{}, err
	}
	r, err := s.client.Get(ctx, s.at(""), clientv3.WithKeysOnly())
	if err != nil {
		return backends.Identity{}, s.notDone(ctx, err)
	}
	return backends.Identity{Server: "etcd cluster " + clusterID(r.Header), Role: "master"}, nil
}

// ready refuses all calls of a store that was given bad options or whose client is closed, and those that
// come too late.
func (s *Store) ready(ctx context.Context) error {
	if s.config.invalid != nil {
		return s.config.invalid
	}
	if err := s.closed(); err != nil {
		return err
	}
	return s.notDone(ctx, ctx.Err())
}

// closed is the error of a client that is closed, or nil. The ctx of a client may end before: its calls go on.
func (s *Store) closed() error {
	if s.client.ActiveConnection().GetState() != connectivity.Shutdown {
		return nil
	}
	return &Error{Code: codes.Canceled, Endpoint: s.Endpoint(), Err: errClosed}
}

// check refuses what must not be sent, and gives ttl in seconds, rounded up.
func (s *Store) check(ctx context.Context, ttl time.Duration) (seconds int64, err error) {
	if err := backends.CheckTTL(ctx, ttl, s.config.maxTTL, "etcd.WithMaxTTL"); err != nil {
		return 0, err
	}
	return max(int64((ttl+time.Second-1)/time.Second), s.spares.shortest()), s.ready(ctx)
}
