package goredis_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// The least ACLs: what suffices, what each permission is for, what go-redis needs.

func TestSecurityEveryUserOfThePageIsTested(t *testing.T) {
	inTable := map[string]bool{} // the first cells of the rows of the section
	_, section, _ := strings.Cut(readPage(t), "\n## The least ACL\n")
	above, _, _ := strings.Cut(section, "\n### ")
	for line := range strings.Lines(above) {
		if row, ok := strings.CutPrefix(line, "| "); ok {
			first, _, _ := strings.Cut(row, " | ")
			for i, quoted := range strings.Split(first, "`") {
				inTable[quoted] = inTable[quoted] || i%2 == 1
			}
		}
	}
	for user := range users(t) {
		if _, tested := variants[user]; !tested && !slices.Contains([]string{"check", "inspect", "list", "evict", "legacy"}, user) {
			t.Errorf("nothing tests the user %s", user)
		}
		if !inTable[user] {
			t.Errorf("the user %s is not in the table of users", user)
		}
	}
}

// TestACLSufficesAndIsMinimal shows both: with a line nothing is refused; without any one permission of it exactly what
// the page says is, and at once.
func TestACLSufficesAndIsMinimal(t *testing.T) {
	lines := users(t)
	for user, v := range variants {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			table := refusals(t, cmp.Or(v.refusals, "single"))
			row := func(permission string) map[string]string {
				switch {
				case strings.HasSuffix(permission, ":?fence"):
					permission = "the pattern of counters"
				case strings.HasSuffix(permission, ":?queue"):
					permission = "the pattern of queues"
				case strings.HasSuffix(permission, ":?reserved"):
					permission = "the pattern of reservations"
				case permission[0] == '~':
					permission = "the key pattern"
				case strings.HasSuffix(permission, ":lockstep:*"):
					permission = "the pattern of stores' channels"
				case permission[0] == '&':
					permission = "the channel pattern"
				}
				return table[permission]
			}
			full := lines[user]
			if len(permissions(full)) == 0 {
				t.Fatal("no such user in the page")
			}
			s, connect := startFor(t, user)
			lives := 0
			live := func(t *testing.T, shape string, less []string) map[string]error {
				lives++
				return life{t, s, user, connect, v}.live(fmt.Sprint(shape, "/", lives), full, less)
			}
			for shape := range v.keys {
				for operation, err := range live(t, shape, full) {
					if err != nil {
						t.Errorf("%s of %q = %v", operation, shape, err)
					}
				}
			}
			for _, permission := range permissions(full) {
				if permission == "+info" { // see TestACLWithoutInfoThereIsNoQuarantine
					continue
				}
				if permission == "+time" && v.passes && !v.shared() && v.strategy != "fenced" { // see TestACLOfLateWaiters
					continue
				}
				t.Run("without "+permission, func(t *testing.T) {
					if len(row(permission)) == 0 {
						t.Fatalf("superfluous: the page names nothing that is refused without %s", permission)
					}
					for shape := range v.keys {
						// A waiter that a busy machine makes late meets more of a script: see
						// TestACLOfLateWaiters. What the page says wrongly is refused each time.
						for take := 1; ; take++ {
							var wrong []string
							for operation, err := range live(t, shape, without(full, permission)) {
								want := row(permission)[operation]
								if !v.covers(permission, shape) {
									want = ""
								}
								switch {
								case want == refused && !isPermanent(err, "NOPERM"):
									wrong = append(wrong, fmt.Sprintf("%s of %q = %v, want NOPERM", operation, shape, err))
								case want == nobodyTold && !errors.Is(err, errNobodyTold):
									wrong = append(wrong, fmt.Sprintf("%s of %q = %v, but the page says that it works and nobody is told", operation, shape, err))
								case want == "" && err != nil:
									wrong = append(wrong, fmt.Sprintf("%s of %q = %v, which the page does not say", operation, shape, err))
								}
							}
							if len(wrong) == 0 {
								break
							}
							if take == 3 {
								t.Fatal(strings.Join(wrong, "\n"))
							}
							t.Logf("asked again: %s", strings.Join(wrong, "\n"))
						}
					}
				})
			}
		})
	}
}

func TestACLRenewsALock(t *testing.T) {
	t.Parallel()
	s := guard(t)
	s.grant("single", users(t)["single"]...)
	locks, _ := locksOf(dial(t, s.as("single")))
	l := mustLock(t, locks, "a", locker.WithTTL(3*time.Second))
	first := l.Lease().Expires
	eventually(t, "an extension", func() bool { return l.Lease().Expires.After(first) })
	mustUnlock(t, l)
	if got := s.denied(); got != "" && got != "unsubscribe" {
		t.Errorf("refused on the way: %s", got)
	}
}

func TestACLCarriesTheContract(t *testing.T) {
	t.Parallel()
	lines := users(t)
	s := guard(t)
	admin := goredis.Driven(dial(t, &client.Options{Addr: s.Addr()})).Executor
	for user, opts := range map[string][]redisstore.Option{
		"single-any-key": {app, hour},
		"single-polling": {app, hour, redisstore.WithoutWakes()},
	} {
		t.Run(user, func(t *testing.T) {
			s.grant(user, lines[user]...)
			c := dial(t, s.as(user))
			backendtest.Run(t, backendtest.Harness{
				MaxTTL: time.Hour, NoWatch: user == "single-polling",
				New: func(t *testing.T) (backends.Store, backendtest.Outside) {
					return goredis.New(c, opts...), drivertest.Outside{T: t, Exec: admin, Prefix: "app:"}
				},
			})
			if user == "single-polling" {
				return
			}
			backendtest.RunQueued(t, backendtest.QueuedHarness{
				MaxTTL: time.Hour,
				New: func(t *testing.T) (backends.QueuedStore, backendtest.Outside) {
					return goredis.New(c, opts...), drivertest.Outside{T: t, Exec: admin, Prefix: "app:"}
				},
			})
		})
	}
}

func TestACLChannelsAreNamedAsThePageSays(t *testing.T) {
	s := guard(t)
	for _, key := range []string{"invoice/42", "{a}b", "a}b"} {
		ctx, cancel := context.WithCancel(t.Context())
		if err := goredis.New(dial(t, &client.Options{Addr: s.Addr()}), app).Watch(ctx, key, func() {}); err != nil {
			t.Fatal(err)
		}
		channel := strings.Trim(s.channels(), "[]")
		if row := fmt.Sprintf("`app:%s` | `%s` |", key, channel); !strings.Contains(readPage(t), row) {
			t.Errorf("the page has no row with %s", row)
		}
		cancel()
		eventually(t, "no channel", func() bool { return s.channels() == "[]" })
	}
}

func TestACLKeyPatternMustReadAndWrite(t *testing.T) {
	s := guard(t)
	full := users(t)["single"]
	for _, pattern := range []string{"%R~app:*", "%W~app:*"} {
		s.grant("single", append(without(full, "~app:*"), pattern)...)
		locks, _ := locksOf(dial(t, s.as("single")))
		l, err := locks.TryLock(t.Context(), "a")
		if err == nil {
			err = l.Unlock(t.Context())
		}
		wantPermanent(t, pattern, err)
	}
}

func TestACLNeedsOfGoRedis(t *testing.T) {
	s := guard(t)
	full := users(t)["single"]
	for permission, set := range map[string]func(o *client.Options){
		"+select":         func(o *client.Options) { o.DB = 1 },
		"+client|setname": func(o *client.Options) { o.ClientName = "me" },
	} {
		for _, rules := range [][]string{full, append(slices.Clone(full), permission)} {
			s.grant("single", rules...)
			o := s.as("single")
			set(o)
			locks, _ := locksOf(dial(t, o))
			l, err := locks.TryLock(t.Context(), "a")
			if slices.Contains(rules, permission) {
				if err != nil {
					t.Errorf("with %s: %v", permission, err)
					continue
				}
				mustUnlock(t, l)
				continue
			}
			wantPermanent(t, "TryLock without "+permission, err)
		}
	}

	proxy := redistest.NewProxy(t, s.Addr())
	s.grant("single", full...)
	o := s.as("single")
	o.Addr = proxy.Addr()
	locks, _ := locksOf(dial(t, o))
	mustUnlock(t, mustLock(t, locks, "a"))
	if proxy.Count("HELLO") == 0 || proxy.Count("CLIENT") < 2 {
		t.Errorf("%d HELLO and %d CLIENT: the page says what go-redis sends", proxy.Count("HELLO"), proxy.Count("CLIENT"))
	}
}

// TestACLLetsGoRedisNameItself shows the only difference between servers that the page has for a
// user: those before 7.2 do not know the command, and the line that grants it is an error there.
func TestACLLetsGoRedisNameItself(t *testing.T) {
	s := guard(t)
	known := s.do("COMMAND", "INFO", namesItself).([]any)[0] != nil
	refused := func(rules ...string) bool {
		s.grant("single", append(slices.Clone(users(t)["single"]), rules...)...)
		s.do("ACL", "LOG", "RESET")
		locks, _ := locksOf(dial(t, s.as("single")))
		mustUnlock(t, mustLock(t, locks, "a"))
		return slices.Contains(s.log(), namesItself)
	}
	if got := refused(); got != known {
		t.Errorf("%s is in the ACL LOG: %v; the server knows it: %v", namesItself, got, known)
	}
	switch {
	case known && refused("+"+namesItself):
		t.Errorf("+%s changes nothing", namesItself)
	case !known:
		if _, err := s.Do("ACL", "SETUSER", "single", "+"+namesItself); err == nil {
			t.Errorf("+%s is no error", namesItself)
		}
	}
}

func TestACLForAClusterSavesRoundTripsWithCommand(t *testing.T) {
	t.Parallel()
	rules := users(t)["single-cluster"]
	s, connect := startFor(t, "single-cluster")
	s.grant("single-cluster", rules...)
	c := connect(t)
	asked := func() bool {
		s.do("ACL", "LOG", "RESET")
		locks, _ := locksOf(c)
		mustUnlock(t, mustLock(t, locks, "a"))
		return s.denied() == "command"
	}
	if !asked() {
		t.Errorf("refused: %s", s.denied())
	}
	s.grant("single-cluster", append(slices.Clone(rules), "+command")...)
	if asked() {
		t.Error("+command changes nothing")
	}
}

// TestACLPingAndUnsubscribeAreMerelyWorthAdding waits for the ping of a connection for wakes, some seconds.
func TestACLPingAndUnsubscribeAreMerelyWorthAdding(t *testing.T) {
	t.Parallel()
	s := guard(t)
	keyed := variants["single-no-scripts"] // which has a channel for each key
	full := users(t)["single-no-scripts"]
	for _, extra := range [][]string{nil, {"+ping", "+unsubscribe"}} {
		s.grant("single-no-scripts", append(slices.Clone(full), extra...)...)
		s.do("ACL", "LOG", "RESET")
		proxy := redistest.NewProxy(t, s.Addr())
		o := s.as("single-no-scripts")
		o.Addr = proxy.Addr()
		locks, begun := keyed.locks(dial(t, o))
		theirs, _ := keyed.locks(dial(t, &client.Options{Addr: s.Addr()}))
		a, b := mustLock(t, theirs, "a"), mustLock(t, theirs, "b")
		first := start(t, locks, "a", locker.WithBackoff(hourly))
		await(t, "the wait for a", begun)
		second := start(t, locks, "b", locker.WithBackoff(hourly))
		await(t, "the wait for b", begun)
		mustUnlock(t, b)
		if err := <-second.done; err != nil {
			t.Fatal(err)
		}
		eventually(t, "UNSUBSCRIBE and PING", func() bool { return proxy.Count("UNSUBSCRIBE") > 0 && proxy.Count("PING") > 0 })
		eventually(t, "their answers", func() bool {
			if extra == nil {
				return s.denied() == "ping unsubscribe" && strings.Contains(s.channels(), "{app:b}:wake")
			}
			return s.denied() == "" && s.channels() == "[{app:a}:wake]"
		})
		mustUnlock(t, a)
		if err := <-first.done; err != nil {
			t.Errorf("the Lock that waited = %v", err)
		}
		eventually(t, "no channel when nobody waits", func() bool { return s.channels() == "[]" })
	}
}

// TestACLWithoutInfoThereIsNoQuarantine: the lock works, Check says what is missing, and the strict
// form refuses.
func TestACLWithoutInfoThereIsNoQuarantine(t *testing.T) {
	s := guard(t)
	s.grant("single-quarantine", without(users(t)["single-quarantine"], "+info")...)
	store, c := goredis.Open(s.as("single-quarantine"), app)
	defer c.Close()
	mustUnlock(t, mustLock(t, locker.New(single.New(store)), "a"))
	strict, c := goredis.Open(s.as("single-quarantine"), app, redisstore.WithMaxTTL(time.Minute), redisstore.WithQuarantine(time.Minute))
	defer c.Close()
	_, err := locker.New(single.New(strict)).Lock(t.Context(), "a")
	wantPermanent(t, "Lock", err)
	if err != nil && !strings.Contains(err.Error(), "INFO") {
		t.Errorf("INFO is not named in: %v", err)
	}
}

func TestACLOfCheck(t *testing.T) {
	s := guard(t, redistest.WithArgs("--appendonly", "yes"))
	lines := users(t)
	s.grant("check", lines["check"]...)
	if got := problems(check(t, s.as("check"))); strings.Contains(got, "permission") {
		t.Errorf("with its line: %s", got)
	}
	for _, permission := range permissions(lines["check"]) {
		s.grant("check", without(lines["check"], permission)...)
		if got := strings.Count(problems(check(t, s.as("check"))), "permission"); got != 1 {
			t.Errorf("without %s: %d findings about permissions", permission, got)
		}
	}
	s.grant("single", lines["single"]...)
	r := check(t, s.as("single"))
	if got := problems(r); got != "permission" || r.Err() != nil { // it may ask for the time, as late waiters need it
		t.Errorf("of a user who may ask nothing: %s, %v", got, r.Err())
	}

	s.grant("check", lines["check"]...)
	if settings, err := dial(t, s.as("check")).ConfigGet(t.Context(), "requirepass").Result(); err != nil || len(settings) != 1 {
		t.Errorf("CONFIG GET requirepass = %v, %v: the page warns of it", settings, err)
	}
}

func TestACLOfInspect(t *testing.T) {
	s := guard(t)
	full := users(t)["inspect"]
	holder := goredis.New(dial(t, &client.Options{Addr: s.Addr()}), app)
	mustSet(t, holder, "text", "token")
	if r, err := holder.Enter(t.Context(), "shared", "token", 20*time.Second, backends.Admission{Group: "g"}); err != nil || !r.OK {
		t.Fatalf("Enter = %+v, %v", r, err)
	}
	inspect := func() error {
		store := goredis.New(dial(t, s.as("inspect")), app)
		for _, key := range []string{"text", "shared"} {
			if state, err := store.Inspect(trial.Patient(t), key); err != nil || state.Holding != 1 {
				return fmt.Errorf("Inspect of %q = %+v, %w", key, state, err)
			}
		}
		return nil
	}
	s.grant("inspect", full...)
	if err := inspect(); err != nil {
		t.Error(err)
	}
	if ok, err := goredis.New(dial(t, s.as("inspect")), app).DeleteIf(t.Context(), "text", "token"); err == nil {
		t.Errorf("DeleteIf = %v: a user who may only look has released a lock", ok)
	}
	for _, permission := range permissions(full) {
		s.do("SCRIPT", "FLUSH")
		s.grant("inspect", without(full, permission)...)
		if err := inspect(); permission != "+getrange" { // the line was without it once
			wantPermanent(t, "Inspect without "+permission, err)
		} else if err != nil {
			t.Errorf("Inspect without %s = %v", permission, err)
		}
	}
}

func TestACLOfList(t *testing.T) {
	s := guard(t)
	full := users(t)["list"]
	holder := goredis.New(dial(t, &client.Options{Addr: s.Addr()}), app)
	mustSet(t, holder, "text", "token")
	if r, err := holder.Enter(t.Context(), "shared", "token", 20*time.Second, backends.Admission{Group: "g"}); err != nil || !r.OK {
		t.Fatalf("Enter = %+v, %v", r, err)
	}
	s.do("RPUSH", "app:list", "of other software") // a type that no lock has
	list := func() error {
		page, err := goredis.New(dial(t, s.as("list")), app).List(trial.Patient(t), "", "", backends.MaxPage)
		if err == nil && len(page.Keys) != 2 {
			t.Errorf("List = %+v", page)
		}
		return err
	}
	s.grant("list", full...)
	if err := list(); err != nil {
		t.Error(err)
	}
	for _, permission := range permissions(full) {
		s.do("SCRIPT", "FLUSH")
		s.grant("list", without(full, permission)...)
		if err := list(); permission != "+getrange" { // the line was without it once
			wantPermanent(t, "List without "+permission, err)
		} else if err != nil {
			t.Errorf("List without %s = %v", permission, err)
		}
	}
}

// TestACLOfEvict evicts with and without Now, locks and shared holds, with and without waiters. Without
// any one permission of the line at least one of them fails, or wakes nobody.
func TestACLOfEvict(t *testing.T) {
	s := guard(t)
	full := users(t)["evict"]
	holder := goredis.New(dial(t, &client.Options{Addr: s.Addr()}), app, hour)
	scenes := 0
	scene := func(shared, queued bool, e backends.Eviction) error {
		scenes++
		key, a := fmt.Sprint("key", scenes), backends.Admission{Group: "g", Limit: 1}
		take := func(token, waiter string) backends.Result {
			t.Helper()
			var r backends.Result
			var err error
			if a.Waiter = waiter; shared {
				r, err = holder.Enter(t.Context(), key, token, 30*time.Minute, a)
			} else {
				r, err = holder.SetNXQueued(t.Context(), key, token, 30*time.Minute, backends.Turn{Waiter: waiter})
			}
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		take(rand.Text(), "")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if queued {
			if err := holder.WatchQueued(ctx, key, fmt.Sprint("waiter", scenes), func() {}); err != nil {
				t.Fatal(err)
			}
			if r := take(rand.Text(), fmt.Sprint("waiter", scenes)); r.Position != 1 {
				t.Fatalf("a waiter gets %+v", r)
			}
		}
		if shared { // a hold that has ended, to be removed
			s.do("ZADD", "app:"+key, "200000000000", "ended")
		}
		state, err := holder.Inspect(trial.Patient(t), key)
		if err != nil || len(state.Holds) != 1 {
			t.Fatalf("Inspect = %+v, %v", state, err)
		}
		ok, err := goredis.New(dial(t, s.as("evict")), app).Evict(trial.Patient(t), key, state.Holds[0].Print, e)
		switch {
		case err == nil && !ok:
			t.Error("Evict = false")
		case err == nil && queued && e.Now && s.denied() != "":
			return errNobodyTold
		}
		return err
	}
	all := func() (errs []error) {
		for _, shared := range []bool{false, true} {
			for _, queued := range []bool{false, true} {
				for _, now := range []bool{false, true} {
					if err := scene(shared, queued, backends.Eviction{Now: now}); err != nil {
						errs = append(errs, err)
					}
				}
			}
		}
		return errs
	}
	s.grant("evict", full...)
	s.do("ACL", "LOG", "RESET")
	if errs := all(); len(errs) > 0 {
		t.Errorf("with the line of the page: %v", errs)
	}
	if got := s.denied(); got != "" {
		t.Errorf("refused on the way: %s", got)
	}
	for _, permission := range permissions(full) {
		s.do("SCRIPT", "FLUSH")
		s.do("ACL", "LOG", "RESET")
		s.grant("evict", without(full, permission)...)
		errs := all()
		if len(errs) == 0 {
			t.Errorf("superfluous: %s", permission)
		}
		for _, err := range errs {
			if !errors.Is(err, errNobodyTold) {
				wantPermanent(t, "Evict without "+permission, err)
			}
		}
	}
}

// The scripts note when a waiter is late, and pass it. Without TIME they do not note it.
func TestACLOfLateWaiters(t *testing.T) {
	t.Parallel()
	s := guard(t)
	theirs := goredis.New(dial(t, &client.Options{Addr: s.Addr()}), app, hour)
	for user, c := range map[string]struct{ strategy, less, denied string }{
		"single": {}, "fair": {strategy: "fair"}, "fair without +time": {strategy: "fair", less: "+time", denied: "time"},
		"fenced": {}, "rwlock": {},
	} {
		name, _, _ := strings.Cut(user, " ")
		v, full := variants[name], users(t)[name]
		s.grant(name, without(full, c.less)...)
		locks, _ := v.locks(dial(t, s.as(name)))
		key, late := "late "+user, backends.Turn{Waiter: "late"}
		l := mustLock(t, locks, key)
		if err := theirs.WatchQueued(t.Context(), key, late.Waiter, func() {}); err != nil {
			t.Fatal(err)
		}
		var err error
		if v.shared() {
			_, err = theirs.Enter(t.Context(), key, "token", long, backends.Admission{Group: "write", Limit: 1, Turn: late})
		} else {
			_, err = theirs.SetNXQueued(t.Context(), key, "token", long, late)
		}
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, l)
		s.do("ACL", "LOG", "RESET")
		for range 2 { // the first attempt waits for the end of the reservation
			l, err := locks.Lock(t.Context(), key)
			if err != nil {
				t.Fatalf("Lock of %s past a late waiter = %v", user, err)
			}
			mustUnlock(t, l)
		}
		got := strings.TrimSpace(strings.ReplaceAll(s.denied(), "unsubscribe", "")) // which nobody has
		if strings.Contains(got, "time") != (c.denied != "") || c.denied == "" && got != "" {
			t.Errorf("refused on the way past a late waiter of %s: %q; want %q", user, got, c.denied)
		}
	}
}

func TestACLUnlockWithoutPublishFreesTheLock(t *testing.T) {
	s := guard(t)
	full := users(t)["single"]
	for _, permission := range []string{"+publish", "&{app:*}:wake"} {
		s.grant("single", full...)
		locks, _ := locksOf(dial(t, s.as("single")))
		theirs, _ := locksOf(dial(t, &client.Options{Addr: s.Addr()}))
		l := mustLock(t, locks, "a")
		s.grant("single", without(full, permission)...)
		wantPermanent(t, "Unlock without "+permission, l.Unlock(t.Context()))
		mustUnlock(t, mustLock(t, theirs, "a"))
	}
}

// What is not permitted with a queue keeps no lock, and whoever waits in it gets the lock when he looks.
func TestACLUnlockWithoutAQueueFreesTheLock(t *testing.T) {
	s := guard(t)
	for _, user := range []string{"single", "fair"} {
		v, full := variants[user], users(t)[user]
		for _, permission := range []string{"+zrange", "+zrem", "~{app:*}:?queue", "&app:lockstep:*"} {
			s.grant(user, full...)
			locks, _ := v.locks(dial(t, s.as(user)))
			theirs, begun := v.locks(dial(t, &client.Options{Addr: s.Addr()}))
			l := mustLock(t, locks, "a")
			next := start(t, theirs, "a")
			await(t, "the wait", begun)
			s.grant(user, without(full, permission)...)
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock of %s without %s = %v", user, permission, err)
			}
			if err := <-next.done; err != nil {
				t.Errorf("the next Lock = %v", err)
			}
		}
	}
}

// Package single waits as others do where queues are not permitted.
func TestACLWithoutQueuesIsEnoughForSingle(t *testing.T) {
	s := guard(t)
	lines := users(t)
	full := without(without(lines["single"], "~{app:*}:?queue"), "&app:lockstep:*")
	for name, less := range map[string][]string{
		"neither": full, "the channel alone": append(slices.Clone(full), "&app:lockstep:*"), "the keys alone": append(slices.Clone(full), "~{app:*}:?queue"),
	} {
		s.grant("single", less...)
		locks, begun := locksOf(dial(t, s.as("single")))
		theirs, _ := locksOf(dial(t, &client.Options{Addr: s.Addr()}))
		for _, key := range []string{"a", "b", "c"} {
			l := mustLock(t, theirs, key)
			next := start(t, locks, key)
			await(t, "the wait", begun)
			mustUnlock(t, l)
			if err := <-next.done; err != nil {
				t.Errorf("Lock that has to wait, where of queues is permitted %s = %v", name, err)
			}
			mustUnlock(t, mustLock(t, locks, key))
		}
	}
}
