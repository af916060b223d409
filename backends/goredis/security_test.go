package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// The tests in security_*_test.go run docs/security.md. This file reads the users, and the tables
// of refusals, out of files that the page links to, and lives the life of a lock with them.

const (
	page   = "../../docs/security.md"
	acl    = "../../docs/redis-users.acl"
	golden = "testdata/refusals.md"
)

// long is a ttl that ends no wait of a test: what returns before that was told.
const long = 30 * time.Minute

// hourly keeps a waiter from finding out by polling: only a wake or a refusal ends its sleep.
func hourly(int, float64) time.Duration { return time.Hour }

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// users are the ACL lines that the page links to: what follows the name in ACL SETUSER.
func users(t *testing.T) map[string][]string {
	t.Helper()
	lines, err := os.ReadFile(acl)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(lines)) {
		words := strings.Fields(line)
		if len(words) < 4 || words[0] != "ACL" || words[1] != "SETUSER" || words[3] != "reset" {
			t.Fatalf("not an ACL line: %q", line)
		}
		all[words[2]] = words[3:]
	}
	return all
}

// refusals is a table of the golden file: by permission, then by operation, what comes of it.
func refusals(t *testing.T, of string) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "<!-- refusals of "+of+": the test reads this table -->\n\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(strings.ReplaceAll(table, `\|`, "\x00"), "\n")
	if !found || len(lines) < 3 {
		t.Fatalf("no table of refusals of %s in %s", of, golden)
	}
	cells := func(line string) []string {
		var all []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			all = append(all, strings.ReplaceAll(strings.Trim(cell, " `"), "\x00", "|"))
		}
		return all
	}
	operations := cells(lines[0])[1:]
	all := map[string]map[string]string{}
	for _, line := range lines[2:] {
		row := cells(line)
		what := map[string]string{}
		for i, cell := range row[1:] {
			switch cell {
			case refused, nobodyTold:
				what[operations[i]] = cell
			case "":
			default:
				t.Fatalf("cell %q in %s", cell, line)
			}
		}
		all[row[0]] = what
	}
	return all
}

// The cells of the tables.
const (
	refused    = "refused"
	nobodyTold = "nobody told"
)

// errNobodyTold is what comes of an Unlock that did not tell who waits in the queue.
var errNobodyTold = errors.New(nobodyTold)

// permissions are the rules that grant something.
func permissions(rules []string) []string {
	var all []string
	for _, rule := range rules {
		if strings.ContainsAny(rule[:1], "+~&%") {
			all = append(all, rule)
		}
	}
	return all
}

func without(rules []string, rule string) []string {
	return slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })
}

// A guarded server has users with few permissions.
type guarded struct {
	*redistest.Server
	t *testing.T
}

func guard(t *testing.T, opts ...redistest.Option) guarded {
	return guarded{redistest.Start(t, opts...), t}
}

func (s guarded) do(args ...string) any {
	s.t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		s.t.Fatalf("%q: %v", args, err)
	}
	return reply
}

func (s guarded) grant(user string, rules ...string) {
	s.t.Helper()
	s.do(append([]string{"ACL", "SETUSER", user}, rules...)...)
}

// denied are the objects of the entries in the ACL LOG, but for what go-redis sends to name itself:
// see TestACLLetsGoRedisNameItself.
func (s guarded) denied() string {
	return strings.Join(slices.DeleteFunc(s.log(), func(object string) bool { return object == namesItself }), " ")
}

const namesItself = "client|setinfo"

// log are the objects of the entries in the ACL LOG.
func (s guarded) log() []string {
	s.t.Helper()
	var all []string
	for _, entry := range s.do("ACL", "LOG").([]any) {
		fields := entry.([]any)
		all = append(all, fields[slices.Index(fields, any("object"))+1].(string))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (s guarded) channels() string { return fmt.Sprint(s.do("PUBSUB", "CHANNELS")) }

func (s guarded) as(user string) *client.Options {
	return &client.Options{Addr: s.Addr(), Username: user, Password: "secret"}
}

var app = redisstore.WithPrefix("app:")

// locks are those of the user behind c. The channel gets a value when one of its Locks has begun to wait: it is subscribed and
// has asked again since, or it polls.
func locksOf(c goredis.Client) (*locker.Client, <-chan struct{}) { return variant{}.locks(c) }

type waits struct {
	locker.Locker
	begun   chan struct{}
	watches *atomic.Int64
}

func (w waits) Watch(ctx context.Context, key, waiter string, wake func()) error {
	err := w.Locker.Watch(ctx, key, waiter, wake)
	switch {
	case err == nil:
		w.watches.Add(1)
	case errors.Is(err, errors.ErrUnsupported):
		w.begun <- struct{}{}
	}
	return err
}

func (w waits) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	watches := w.watches.Load()
	lease, err := w.Locker.Acquire(ctx, req)
	if watches > 0 && w.watches.CompareAndSwap(watches, watches-1) {
		w.begun <- struct{}{}
	}
	return lease, err
}

// isPermanent tells whether err is what the page says of a refusal.
func isPermanent(err error, code string) bool {
	var reply *redisstore.ReplyError
	return errors.As(err, &reply) && reply.Code() == code && reply.Permanent() && !errors.Is(err, locker.ErrHeld)
}

func wantPermanent(t *testing.T, what string, err error) {
	t.Helper()
	if !isPermanent(err, "NOPERM") {
		t.Errorf("%s = %v, want NOPERM", what, err)
	}
}

func mustLock(t *testing.T, locks *locker.Client, key string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	l, err := locks.TryLock(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustUnlock(t *testing.T, l *locker.Lock) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// waiter is a Lock that was called in a goroutine.
type waiter struct{ done chan error }

// start calls Lock. A lock that is granted is unlocked; whether that is permitted is not the question. A hang shows as
// the end of the ctx.
func start(t *testing.T, locks *locker.Client, key string, opts ...locker.Option) waiter {
	w := waiter{make(chan error, 1)}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		l, err := locks.Lock(ctx, key, opts...)
		if err == nil {
			_ = l.Unlock(ctx)
		}
		w.done <- err
	}()
	return w
}

// A life is that of locks of one user. Every operation of the table of refusals is in it.
type life struct {
	t       *testing.T
	server  guarded
	user    string
	connect func(t *testing.T) goredis.Client // as the user
	variant
}

// live makes locks with the rules of full, changes the rules to less, does every operation of the table over new
// connections, and returns what each came to. Keys begin with key.
func (x life) live(key string, full, less []string) map[string]error {
	t, s := x.t, x.server
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s.grant(x.user, full...)
	var c exchangeable
	c.Store(new(x.connect(t)))
	mine, begun := x.locks(&c)
	theirs, _ := variant{strategy: x.strategy}.locks(dial(t, &client.Options{Addr: s.Addr()}))
	extended, unlocked := mustLock(t, mine, key+"/extend"), mustLock(t, mine, key+"/unlock")
	held := mustLock(t, theirs, key+"/held")
	var passed *awaited
	if x.passes {
		passed = x.await(mine, key+"/passed")
	}
	var inner *locker.Lock
	if x.strategy == "reentrant" {
		ctx := locker.ContextWithOwner(ctx, "me")
		for range 2 {
			var err error
			if inner, err = mine.TryLock(ctx, key+"/nested"); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.grant(x.user, less...)
	c.Store(new(x.connect(t)))

	errs := map[string]error{}
	operation := func(name string, run func() error) {
		s.do("SCRIPT", "FLUSH") // so that each operation needs EVAL
		errs[name] = run()
	}
	operation("Lock of a free lock", func() error {
		l, err := mine.Lock(ctx, key+"/free")
		if err == nil {
			defer func() { _ = l.Unlock(ctx) }() // may be refused, which is not the question here
		}
		return err
	})
	operation("TryLock of a held one", func() error {
		if _, err := mine.TryLock(ctx, key+"/held"); !errors.Is(err, locker.ErrHeld) {
			return err
		}
		return nil
	})
	operation("Extend", func() error { return extended.Extend(ctx, long+time.Minute) })
	operation("Unlock", func() error { return unlocked.Unlock(ctx) })
	if x.passes {
		operation("Unlock with somebody in the queue", func() error { return passed.unlock(ctx) })
	}
	if inner != nil {
		operation("Unlock of an inner hold", func() error { return inner.Unlock(ctx) })
	}
	if x.shared() {
		s.do("ZADD", "app:"+key+"/ended", "1000000000000", "has ended")
		s.do("PEXPIRE", "app:"+key+"/ended", "60000")
		operation("Lock after a hold that has ended", func() error {
			_, err := mine.TryLock(ctx, key+"/ended")
			return err
		})
	}
	operation("Lock that has to wait", func() error {
		var waits []locker.Option
		if !x.polls {
			waits = append(waits, locker.WithBackoff(hourly))
		}
		w := start(t, mine, key+"/held", waits...)
		select {
		case err := <-w.done:
			return err
		case <-begun:
			mustUnlock(t, held)
			return <-w.done
		}
	})
	for name, err := range errs {
		for _, l := range []*locker.Lock{extended, unlocked, held} {
			if err != nil && strings.Contains(err.Error(), l.Lease().Token) {
				t.Errorf("%s shows a token: %v", name, err)
			}
		}
	}
	return errs
}

// awaited is a lock that somebody waits for in its queue, at a store that may do everything.
type awaited struct {
	*locker.Lock
	store *redisstore.Store
	told  chan struct{}
	other string        // a key like it, which that store has
	later chan struct{} // told of that
}

func (x life) await(mine *locker.Client, key string) *awaited {
	x.t.Helper()
	a := &awaited{Lock: mustLock(x.t, mine, key), store: goredis.New(dial(x.t, &client.Options{Addr: x.server.Addr()}), app), other: key + "/later"}
	mustSet(x.t, a.store, a.other, "token")
	if x.shared() {
		a.told = enterQueue(x.t, a.store, key)
	} else {
		a.told = queueAt(x.t.Context(), x.t, a.store, key, "waiter for "+key, 1).woken
	}
	a.later = queueAt(x.t.Context(), x.t, a.store, a.other, "waiter for "+a.other, 1).woken
	return a
}

// enterQueue makes a waiter stand in the queue of a shared lock that is held.
func enterQueue(t *testing.T, s *redisstore.Store, key string) (told chan struct{}) {
	t.Helper()
	told = make(chan struct{}, 1)
	waiter := "waiter for " + key
	if err := s.WatchQueued(t.Context(), key, waiter, func() { told <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	r, err := s.Enter(t.Context(), key, "token", 20*time.Second, backends.Admission{Group: "other", Limit: 1, Turn: backends.Turn{Waiter: waiter}})
	if err != nil || r.OK || r.Position != 1 {
		t.Fatalf("Enter = %+v, %v; want position 1", r, err)
	}
	return told
}

// unlock looks whether the waiter was told. Messages come in their order.
func (a *awaited) unlock(ctx context.Context) error {
	if err := a.Unlock(ctx); err != nil {
		return err
	}
	if _, err := a.store.DeleteIf(ctx, a.other, "token"); err != nil {
		return err
	}
	select {
	case <-a.later:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-a.told:
		return nil
	default:
		return errNobodyTold
	}
}

// exchangeable is a client that can be replaced by another.
type exchangeable struct{ atomic.Pointer[goredis.Client] }

func (e *exchangeable) Process(ctx context.Context, cmd client.Cmder) error {
	return (*e.Load()).Process(ctx, cmd)
}

func (e *exchangeable) Watch(ctx context.Context, fn func(*client.Tx) error, keys ...string) error {
	return (*e.Load()).Watch(ctx, fn, keys...)
}

func (e *exchangeable) Subscribe(ctx context.Context, channels ...string) *client.PubSub {
	return (*e.Load()).Subscribe(ctx, channels...)
}
