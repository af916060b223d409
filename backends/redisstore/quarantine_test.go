package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// told is what a server tells by INFO.
type told struct {
	run, replid, replid2, role, mode string // mode: the whole line
	up                               int
}

func (s told) String() string {
	role, replid2 := s.role, s.replid2
	if role == "" {
		role = "master"
	}
	if replid2 == "" {
		replid2 = "0000000000000000000000000000000000000000" // as a server without one says
	}
	return fmt.Sprintf("# Server\r\n%s\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n\r\n# Replication\r\nrole:%s\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n",
		s.mode, s.run, s.up, role, s.replid, replid2)
}

const old = 1_000_000 // seconds

var (
	serverA = told{run: "A", replid: "a", up: old}
	serverB = told{run: "B", replid: "b", up: old}
)

// changing is an executor behind which servers change. It notes what is sent, and shows each server
// once to q, on what stands for a new connection.
type changing struct {
	q      *driver.Quarantine
	next   []told // servers that the next commands find on a new connection
	sent   []string
	during func() // runs while a command is on its way
	err    error
}

func (l *changing) Do(_ context.Context, args ...any) (any, error) {
	if len(l.next) > 0 {
		server := l.next[0]
		l.next = l.next[1:]
		if err := l.q.Saw("", server.String(), nil); err != nil {
			return nil, err
		}
	}
	l.sent = append(l.sent, fmt.Sprint(args[0]))
	if l.during != nil {
		l.during()
	}
	switch args[0] {
	case "SET":
		return "OK", l.err
	case "EVALSHA":
		return int64(1), l.err
	}
	return nil, l.err
}

func (l *changing) Once(ctx context.Context, args ...any) (any, error) { return l.Do(ctx, args...) }

func (l *changing) Pinned(context.Context, string, func(driver.Conn) error) error {
	return errors.ErrUnsupported
}
func (l *changing) Subscribe(context.Context) driver.Subscription { return nil }

const longest = 10 * time.Second

func behind(opts ...Option) (*changing, *Store) {
	l := &changing{q: driver.NewQuarantine()}
	return l, New(l, append([]Option{WithMaxTTL(longest), Observed("", l.q)}, opts...)...)
}

func grant(t *testing.T, s *Store) (backends.Result, error) {
	t.Helper()
	return s.SetNX(t.Context(), "key", "token", longest)
}

func mustGrant(t *testing.T, s *Store) {
	t.Helper()
	if r, err := grant(t, s); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
}

func wantQuarantine(t *testing.T, s *Store) *QuarantineError {
	t.Helper()
	r, err := grant(t, s)
	refused := (*QuarantineError)(nil)
	if !errors.As(err, &refused) || r.OK {
		t.Fatalf("SetNX = %+v, %v; want quarantine", r, err)
	}
	return refused
}

func TestANewServerGrantsAtOnce(t *testing.T) {
	l, s := behind()
	l.next = []told{{run: "A", replid: "a", up: 0}}
	mustGrant(t, s)
	mustGrant(t, s)
}

// TestQuarantineLastsFromTheObservation looks at both ends: it must not be over sooner, and ends a
// second later at most.
func TestQuarantineLastsFromTheObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := behind()
		l.next = []told{serverA}
		mustGrant(t, s)
		time.Sleep(time.Hour)
		mustGrant(t, s)
		l.next, l.sent = []told{serverB}, nil
		refused := wantQuarantine(t, s)
		if !backends.Unsent(refused) || backends.Permanent(refused) || len(l.sent) > 0 {
			t.Errorf("unsent: %v, permanent: %v, sent: %v", backends.Unsent(refused), backends.Permanent(refused), l.sent)
		}
		const shortest = longest + longest/100 + time.Second
		if left := time.Until(refused.Until); left < shortest || left > shortest+time.Second {
			t.Errorf("quarantine lasts %v, want %v and at most a second more", left, shortest)
		}
		time.Sleep(time.Until(refused.Until) - time.Nanosecond)
		if again := wantQuarantine(t, s); !again.Until.Equal(refused.Until) || len(l.sent) > 0 {
			t.Errorf("it ends at %v, and at %v; sent: %v", refused.Until, again.Until, l.sent)
		}
		time.Sleep(time.Nanosecond)
		mustGrant(t, s)
	})
}

// TestWithoutOptionsQuarantineLastsHalfAMinute is about the limit that most programs have.
func TestWithoutOptionsQuarantineLastsHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &changing{q: driver.NewQuarantine()}
		s := New(l, Observed("", l.q))
		l.next = []told{serverA}
		mustGrant(t, s)
		l.next = []told{serverB}
		const shortest = 31300 * time.Millisecond // 1.01 times 30 s, and a second
		if left := time.Until(wantQuarantine(t, s).Until); left < shortest || left > shortest+time.Second {
			t.Errorf("quarantine lasts %v, want %v and at most a second more", left, shortest)
		}
	})
}

// TestAMinimumHoldMakesNoQuarantineLonger: its holder relies on a TTL within the limit.
func TestAMinimumHoldMakesNoQuarantineLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &changing{q: driver.NewQuarantine()}
		c := locker.New(single.New(New(l, Observed("", l.q))))
		l.next = []told{serverA}
		if _, err := c.Lock(t.Context(), "key", locker.WithMinHold(14*time.Minute), locker.WithoutRenewal()); err != nil {
			t.Fatal(err)
		}
		l.next = []told{serverB}
		_, err := c.TryLock(t.Context(), "another")
		refused, ok := errors.AsType[*QuarantineError](err)
		if !ok || time.Until(refused.Until) > 33*time.Second {
			t.Fatalf("after a restart: %v; want a quarantine of 32 s", err)
		}
		time.Sleep(time.Until(refused.Until))
		if _, err := c.TryLock(t.Context(), "another", locker.WithMinHold(14*time.Minute), locker.WithoutRenewal()); err != nil {
			t.Errorf("after quarantine: %v", err)
		}
	})
}

func TestATTLOverTheLimitIsRefusedBeforeAnythingIsSent(t *testing.T) {
	l := &changing{q: driver.NewQuarantine()}
	s := New(l)
	const want = "ttl 30.001s is over the store's limit of 30s (see redisstore.WithMaxTTL)"
	_, err := s.SetNX(t.Context(), "key", "token", 30001*time.Millisecond)
	if err == nil || err.Error() != want || !backends.Permanent(err) || len(l.sent) > 0 {
		t.Errorf("SetNX = %v, sent %v; want %s", err, l.sent, want)
	}
	if _, err := s.SetNX(t.Context(), "key", "token", 30*time.Second); err != nil || len(l.sent) != 1 {
		t.Errorf("SetNX for the limit = %v, sent %v", err, l.sent)
	}
}

// TestQuarantineCountsFromTheStartOfAServerThatIsLaterThanOurLastContact: no lock that is older can
// have been granted by it, and none that it granted is forgotten.
func TestQuarantineCountsFromTheStartOfAServerThatIsLaterThanOurLastContact(t *testing.T) {
	for _, c := range []struct {
		up   int
		idle time.Duration
		left time.Duration // at most 2 s more: of the uptime, and of the jitter
	}{
		{up: 5, idle: time.Minute, left: longest + longest/100 + time.Second - 5*time.Second},
		// it was up while we used another
		{up: 5, idle: 3 * time.Second, left: longest + longest/100 + time.Second},
		{up: old, idle: time.Hour, left: longest + longest/100 + time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, s := behind()
			l.next = []told{serverA}
			mustGrant(t, s)
			time.Sleep(c.idle)
			l.next = []told{{run: "A2", replid: "a2", up: c.up}}
			left := time.Until(wantQuarantine(t, s).Until)
			if left < c.left || left > c.left+2*time.Second {
				t.Errorf("up for %d s, after %v: %v left, want %v", c.up, c.idle, left, c.left)
			}
		})
	}
}

// TestARestartThatIsLongPastCostsNothing: the command is sent again on the next connection.
func TestARestartThatIsLongPastCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := behind()
		l.next = []told{serverA}
		mustGrant(t, s)
		time.Sleep(time.Hour)
		l.next = []told{{run: "A2", replid: "a2", up: 600}}
		mustGrant(t, s)
	})
}

func TestWhatIsAnotherServer(t *testing.T) {
	a := serverA
	for name, c := range map[string]struct {
		then    []told
		refused bool
	}{
		"the same":                            {[]told{a}, false},
		"a restart":                           {[]told{{run: "A2", replid: "a2"}}, true},
		"a promotion in place":                {[]told{{run: "A", replid: "x", replid2: "b", up: old}}, true},
		"a promoted replica":                  {[]told{{run: "B", replid: "b", replid2: "a", up: old}}, true},
		"its first replica":                   {[]told{{run: "A", replid: "a2", up: old}}, false},
		"its first replica, after a demotion": {[]told{{run: "A", replid: "b", role: "slave", up: old}, {run: "A", replid: "a2", up: old}}, true},
		"no replica for an hour":              {[]told{{run: "A", replid: "a3", up: old}}, false},
		"no run_id":                           {[]told{{up: old}}, false},
		"a sentinel of Redis":                 {[]told{{run: "S", mode: "redis_mode:sentinel", up: old}}, false},
		"a sentinel of Valkey 9":              {[]told{{run: "S", mode: "server_mode:sentinel", up: old}}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, s := behind()
			l.next = []told{a}
			mustGrant(t, s)
			for _, seen := range c.then[:len(c.then)-1] {
				if err := l.q.Saw("", seen.String(), nil); err == nil {
					t.Errorf("%s: %v is not refused", name, seen)
				}
				time.Sleep(time.Minute)
			}
			l.next = c.then[len(c.then)-1:]
			_, err := grant(t, s)
			if refused := (*QuarantineError)(nil); errors.As(err, &refused) != c.refused || !c.refused && err != nil {
				t.Errorf("%s: SetNX = %v", name, err)
			}
		})
	}
}

// TestAReplicaThatIsPromotedElsewhereIsInQuarantine: behind another address, in place of a master
// that this process used.
func TestAReplicaThatIsPromotedElsewhereIsInQuarantine(t *testing.T) {
	q := driver.NewQuarantine()
	q.Attach(longest, 0)
	for _, c := range []struct {
		endpoint string
		server   told
		refused  bool
	}{
		{"one", serverA, false},
		{"two", serverB, false},
		{"three", told{run: "C", replid: "c", replid2: "z", up: old}, false}, // of a master that we never met
		{"four", told{run: "D", replid: "d", replid2: "a", up: old}, true},
	} {
		if err := q.Saw(c.endpoint, c.server.String(), nil); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.endpoint, err)
		}
		if err := q.Refuses(c.endpoint, false); (err != nil) != c.refused {
			t.Errorf("%s: refuses: %v", c.endpoint, err)
		}
	}
}

// A node of a cluster that comes back without its locks may have another address: a pod has. Only a node that
// was up before this process can't be one.
func TestANodeThatWasStartedSinceIsInQuarantine(t *testing.T) {
	const most = longest + longest/100 + 2*time.Second
	for name, c := range map[string]struct {
		after time.Duration // this process has begun
		up    int
		left  time.Duration // of quarantine, without jitter
	}{
		"it was up before":                  {time.Hour, 3602, 0},
		"it was started as we began":        {8 * time.Second, 8, longest + longest/100 + time.Second - 7*time.Second},
		"it was started just now":           {time.Hour, 0, longest + longest/100 + time.Second},
		"it was started a short while ago":  {time.Hour, 5, longest + longest/100 + time.Second - 4*time.Second},
		"it was started since, but earlier": {time.Hour, 60, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := driver.NewQuarantine()
			q.Attach(longest, 0)
			if err := q.Saw("one", told{run: "A", replid: "a"}.String(), nil); err != nil {
				t.Errorf("%s: the first node: %v", name, err)
			}
			time.Sleep(c.after)
			err := q.Saw("two", told{run: "B", replid: "b", up: c.up}.String(), nil)
			var refused *QuarantineError
			if errors.As(err, &refused) != (c.left > 0) || c.left == 0 && err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if refused == nil {
				return
			}
			if !strings.Contains(err.Error(), "as a node that was restarted") {
				t.Errorf("%s: %v; want the reason", name, err)
			}
			if left := time.Until(refused.Until); left < c.left || left > c.left+time.Second || left > most {
				t.Errorf("%s: %v left; want %v to a second more", name, left, c.left)
			}
			if err := q.Saw("another name of two", told{run: "B", replid: "b", up: c.up}.String(), nil); !errors.As(err, &refused) {
				t.Errorf("%s: under another name: %v", name, err)
			}
			if err := q.Saw("another name of one", told{run: "A", replid: "a"}.String(), nil); err != nil {
				t.Errorf("%s: the first node under another name: %v", name, err)
			}
			if q.Refuses("one", false) != nil || q.Refuses("two", false) == nil {
				t.Errorf("%s: Refuses = %v, %v; want the second alone", name, q.Refuses("one", false), q.Refuses("two", false))
			}
			time.Sleep(most)
			if err := q.Refuses("two", false); err != nil {
				t.Errorf("%s: after quarantine: %v", name, err)
			}
		})
	}
}

// TestAMasterThatAnsweredBeforeIsRemembered: it was restarted, and then its replica took its place elsewhere.
func TestAMasterThatAnsweredBeforeIsRemembered(t *testing.T) {
	q := driver.NewQuarantine()
	q.Attach(longest, 0)
	_ = q.Saw("one", serverA.String(), nil)
	_ = q.Saw("one", told{run: "A2", replid: "a2"}.String(), nil)
	promoted := told{run: "B", replid: "b", replid2: "a", up: old}
	if err := q.Saw("two", promoted.String(), nil); !errors.As(err, new(*QuarantineError)) {
		t.Errorf("the replica of a master that was used before: %v", err)
	}
}

// TestOnlyTheLastMastersOfAnEndpointAreRemembered: a server that has a new run_id every minute
// costs no memory.
func TestOnlyTheLastMastersOfAnEndpointAreRemembered(t *testing.T) {
	q := driver.NewQuarantine()
	q.Attach(longest, 0)
	saw := func(i int) error {
		return q.Saw("", told{run: fmt.Sprint("run", i), replid: fmt.Sprint("id", i), up: old}.String(), nil)
	}
	const n = 8 + 3 // it remembers eight
	for i := range n {
		_ = saw(i)
	}
	if err := saw(1); err == nil || backends.Permanent(err) {
		t.Errorf("a master that is long forgotten: %v; want quarantine, as for any other server", err)
	}
	if err := saw(n - 1); !backends.Permanent(err) {
		t.Errorf("the master before it: %v; want the error of servers that take turns", err)
	}
}

// TestAPromotionCountsFromTheObservation: what its master granted since the replica was started may
// be missing there.
func TestAPromotionCountsFromTheObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := behind()
		l.next = []told{serverA}
		mustGrant(t, s)
		time.Sleep(time.Hour)
		l.next = []told{{run: "B", replid: "b", replid2: "a", up: 600}}
		const shortest = longest + longest/100 + time.Second
		if left := time.Until(wantQuarantine(t, s).Until); left < shortest {
			t.Errorf("%v left, want %v", left, shortest)
		}
	})
}

func TestRenewalsAndReleasesGoOn(t *testing.T) {
	l, s := behind()
	l.next = []told{serverA}
	mustGrant(t, s)
	l.next, l.sent = []told{serverB}, nil
	// on the connection that shows the change
	if ok, err := s.ExpireIf(t.Context(), "key", "token", longest); !ok || err != nil {
		t.Errorf("ExpireIf = %v, %v", ok, err)
	}
	wantQuarantine(t, s)
	if ok, err := s.DeleteIf(t.Context(), "key", "token"); !ok || err != nil {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	if _, err := s.Inspect(t.Context(), "key"); errors.As(err, new(*QuarantineError)) {
		t.Errorf("Inspect = %v", err)
	}
	if got := fmt.Sprint(l.sent); got != "[EVALSHA EVALSHA EVALSHA]" {
		t.Errorf("sent: %v", got)
	}
}

// TestAGrantThatIsOnItsWayWhenQuarantineBeginsDoesNotCount: it may have gone to the server that has
// forgotten.
func TestAGrantThatIsOnItsWayWhenQuarantineBeginsDoesNotCount(t *testing.T) {
	l, s := behind()
	l.next = []told{serverA}
	mustGrant(t, s)
	l.during = func() { // another goroutine opens a connection
		l.during = nil
		_ = l.q.Saw("", serverB.String(), nil)
	}
	if refused := wantQuarantine(t, s); backends.Unsent(refused) || backends.Permanent(refused) {
		t.Errorf("%v: there is something to clean up", refused)
	}
}

// TestAGrantInTheQueueIsAGrant: nothing is sent to a server in quarantine.
func TestAGrantInTheQueueIsAGrant(t *testing.T) {
	l, s := behind()
	l.next = []told{serverA}
	mustGrant(t, s)
	l.next, l.sent = []told{serverB}, nil
	_, err := s.SetNXNumbered(t.Context(), "key", "token", longest, backends.Turn{InOrder: true})
	if !errors.As(err, new(*QuarantineError)) || len(l.sent) > 0 {
		t.Errorf("SetNXNumbered = %v; sent: %v", err, l.sent)
	}
}

func TestServersThatTakeTurnsAreAPermanentError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := behind()
		l.next = []told{serverA}
		mustGrant(t, s)
		l.next = []told{serverB}
		if refused := wantQuarantine(t, s); backends.Permanent(refused) {
			t.Errorf("%v is permanent: a failover looks like this", refused)
		}
		if err := l.q.Saw("", serverA.String(), nil); !backends.Permanent(err) || !strings.Contains(err.Error(), "several servers answer") {
			t.Errorf("back to the first: %v", err)
		}
		if refused := wantQuarantine(t, s); !backends.Permanent(refused) || !backends.Unsent(refused) {
			t.Errorf("SetNX = %v", refused)
		}
		time.Sleep(time.Minute) // and all connections lead to the same one
		mustGrant(t, s)
	})
}

func TestConnectionsAreClosedWhenTheirServerIsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := driver.NewQuarantine()
		closed := map[string]int{}
		track := func(endpoint, name string) func() error {
			return q.TrackCloser(endpoint, func() error { closed[name]++; return nil })
		}
		_ = q.Saw("one", serverA.String(), nil)
		_ = q.Saw("two", told{run: "C", replid: "c", up: old}.String(), nil)
		end := track("one", "ended before")
		track("one", "old")
		track("two", "elsewhere")
		if err := end(); err != nil || closed["ended before"] != 1 {
			t.Errorf("end = %v, %v", err, closed)
		}
		_ = q.Saw("one", serverB.String(), nil)
		synctest.Wait()
		if got := fmt.Sprint(closed); got != "map[ended before:1 old:1]" {
			t.Errorf("closed: %v", got)
		}
	})
}

func TestReadonlyEndsAllConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := behind()
		l.next = []told{serverA}
		mustGrant(t, s)
		closed := false
		l.q.TrackCloser("", func() error { closed = true; return nil })
		l.err = &driver.ReplyError{Text: "READONLY You can't write against a read only replica."}
		if _, err := s.ExpireIf(t.Context(), "key", "token", longest); err == nil {
			t.Error("ExpireIf = nil")
		}
		synctest.Wait()
		if !closed {
			t.Error("the connection is still open")
		}
		l.err = nil
		// promoted again; it has a replica, and so no second id
		l.next = []told{{run: "A", replid: "a2", up: old}}
		wantQuarantine(t, s)
	})
}

// TestAReplicaIsLookedAtTenTimesASecond, whatever the number of attempts.
func TestAReplicaIsLookedAtTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := behind()
		replica := told{run: "A", replid: "a", role: "slave", up: old}
		looks := 0
		for range 1000 {
			l.next = []told{replica}
			_, err := grant(t, s)
			if !backends.Unsent(err) || backends.Permanent(err) {
				t.Fatalf("SetNX = %v", err)
			}
			looks += 1 - len(l.next)
			time.Sleep(time.Millisecond)
		}
		if looks > 11 || looks < 9 || len(l.sent) > 0 {
			t.Errorf("%d looks in a second; sent: %v", looks, l.sent)
		}
		time.Sleep(time.Second)
		l.next = []told{serverA}
		mustGrant(t, s)
		mustGrant(t, s)
	})
}

// TestAClusterMayBeginWithAReplica, but keeps no connection to one when it has found a master.
func TestAClusterMayBeginWithAReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := driver.NewQuarantine()
		q.PerNode()
		closed := false
		q.TrackCloser("replica", func() error { closed = true; return nil })
		replica := told{run: "B", replid: "a", role: "slave", mode: "redis_mode:cluster", up: old}
		if err := q.Saw("replica", replica.String(), nil); err != nil {
			t.Errorf("at first: %v", err)
		}
		if err := q.Saw("master", told{run: "A", replid: "a", mode: "redis_mode:cluster", up: old}.String(), nil); err != nil {
			t.Errorf("the master: %v", err)
		}
		synctest.Wait()
		if !closed {
			t.Error("the connection to the replica is still open")
		}
		if err := q.Saw("replica", replica.String(), nil); err == nil {
			t.Error("a second connection to the replica is not refused")
		}
		if err := q.Refuses("master", false); err != nil {
			t.Errorf("the master: %v", err)
		}
	})
}

// TestAReplicaBesideAMasterRefusesNothing: a Store does not know which endpoint a grant goes to,
// and no grant goes to a replica.
func TestAReplicaBesideAMasterRefusesNothing(t *testing.T) {
	l, s := behind()
	l.next = []told{serverA}
	mustGrant(t, s)
	if err := l.q.Saw("replica", told{run: "B", replid: "a", role: "slave", up: old}.String(), nil); err == nil {
		t.Error("a connection to a replica is not refused")
	}
	mustGrant(t, s)
}

// TestAQuarantineThatHasSeenNothingRefusesNothing: a connection may be older than the Store that reads it.
func TestAQuarantineThatHasSeenNothingRefusesNothing(t *testing.T) {
	q := driver.NewQuarantine()
	if err := q.Refuses("db:6379", false); err != nil {
		t.Errorf("before a Store uses it: %v", err)
	}
	q.Attach(longest, longest)
	if err := q.Refuses("db:6379", false); err != nil {
		t.Errorf("an endpoint that has shown no server: %v", err)
	}
}

func TestTheStrictFormRefusesYoungServersSeenOrNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := behind(WithQuarantine(20 * time.Second))
		l.next = []told{{run: "A", replid: "a", up: 5}}
		refused := wantQuarantine(t, s)
		if left := time.Until(refused.Until); left != 16*time.Second || len(l.sent) > 0 || !strings.Contains(refused.Error(), "WithQuarantine") {
			t.Errorf("%v left: %v; sent: %v", left, refused, l.sent)
		}
		if ok, err := s.DeleteIf(t.Context(), "key", "token"); !ok || err != nil {
			t.Errorf("DeleteIf = %v, %v", ok, err)
		}
		time.Sleep(15 * time.Second)
		l.next = []told{{run: "A", replid: "a", up: 20}} // another connection: the same end
		if _, err := s.DeleteIf(t.Context(), "key", "token"); err != nil {
			t.Errorf("DeleteIf = %v", err)
		}
		if again := wantQuarantine(t, s); !again.Until.Equal(refused.Until) {
			t.Errorf("it ends at %v, and at %v", refused.Until, again.Until)
		}
		time.Sleep(time.Second)
		mustGrant(t, s)
	})
}

func TestAServerThatDoesNotTell(t *testing.T) {
	for text, passes := range map[string]bool{
		"NOPERM this user has no permissions to run the 'info' command": true,
		"NOAUTH Authentication required.":                               true,
		"ERR unknown command 'INFO'":                                    true,
		"section (server) is not supported":                             true,
		"BUSY Redis is busy running a script.":                          false,
		"MAXCLIENTS":                                                    false,
	} {
		q := driver.NewQuarantine()
		if err := q.Saw("", "", &driver.ReplyError{Text: text}); (err == nil) != passes {
			t.Errorf("%s: %v", text, err)
		}
		q.Attach(longest, longest)
		if err := q.Saw("", "", &driver.ReplyError{Text: text}); err == nil || passes && !backends.Permanent(err) {
			t.Errorf("%s, in the strict form: %v", text, err)
		}
		if err := q.Refused(false); (err != nil) != passes || passes && !backends.Unsent(err) {
			t.Errorf("%s, in the strict form: a Store is told %v", text, err)
		}
	}
	if err := driver.NewQuarantine().Saw("", "", context.DeadlineExceeded); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
}

func TestBadInputOfTheStrictForm(t *testing.T) {
	_, short := behind(WithQuarantine(longest - 1))
	for name, s := range map[string]*Store{
		"shorter than the longest TTL":  short,
		"connections that are not seen": New(&changing{}, WithQuarantine(time.Hour)),
	} {
		_, err := grant(t, s)
		if !backends.Permanent(err) || !strings.Contains(err.Error(), "WithQuarantine") {
			t.Errorf("%s: SetNX = %v", name, err)
		}
	}
}

// TestTheLastOptionAboutQuarantineCounts: the servers change where the quarantine sees it.
func TestTheLastOptionAboutQuarantineCounts(t *testing.T) {
	for name, c := range map[string]struct {
		opts    []Option
		refused bool
	}{
		"WithoutQuarantine":                      {[]Option{WithoutQuarantine()}, false},
		"WithoutQuarantine after WithQuarantine": {[]Option{WithQuarantine(longest), WithoutQuarantine()}, false},
		"WithoutQuarantine after a bad one":      {[]Option{WithQuarantine(time.Second), WithoutQuarantine()}, false},
		"WithQuarantine after WithoutQuarantine": {[]Option{WithoutQuarantine(), WithQuarantine(longest)}, true},
	} {
		l, s := behind(c.opts...)
		_ = l.q.Saw("", serverA.String(), nil)
		_ = l.q.Saw("", serverB.String(), nil)
		r, err := grant(t, s)
		if refused := errors.As(err, new(*QuarantineError)); refused != c.refused || !refused && (err != nil || !r.OK) {
			t.Errorf("%s: SetNX = %+v, %v; want quarantine: %v", name, r, err, c.refused)
		}
		if without := !Quarantines(c.opts...); without == c.refused {
			t.Errorf("%s: Quarantines = %v", name, !without)
		}
	}
}

// clockless is an executor whose server does not tell its clock until the ctx ends.
type clockless struct{ says }

func (clockless) Pinned(ctx context.Context, _ string, _ func(driver.Conn) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestOneGrantReadsTheClockOfAServerThatForgetsNothingAndTheOthersDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := driver.NewQuarantine()
		grants := says{once: func([]any) (any, error) { return "OK", nil }}
		s := New(clockless{grants}, Observed("", q), WithServerThatForgetsNothing())
		if err := q.Saw("", serverA.String(), nil); err != nil {
			t.Fatal(err)
		}
		grant := func(key string, want time.Duration) {
			began := time.Now()
			if r, err := s.SetNX(t.Context(), key, "t", time.Second); err != nil || !r.OK || time.Since(began) != want {
				t.Errorf("SetNX of %s = %+v, %v after %v; want a grant after %v", key, r, err, time.Since(began), want)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			grant("the first", shortCutLimit)
		}()
		synctest.Wait()
		grant("the second", 0)
		grant("the third", 0)
		<-done
		grant("a later one", 0) // not read again at once
	})
}
