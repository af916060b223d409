package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/natsstore"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func isPermanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

func isUnsent(err error) bool {
	var u interface{ Unsent() bool }
	return errors.As(err, &u) && u.Unsent()
}

func TestManyProgramsMayInstallAtOnce(t *testing.T) {
	url := run(t).ClientURL()
	var all sync.WaitGroup
	for range 8 {
		conn := dial(t, url)
		all.Go(func() {
			for range 3 {
				if err := natsstore.New(conn).Install(trial.Patient(t), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestNumbersRiseWhenTheStreamIsMadeAgain(t *testing.T) {
	conn := install(t)
	store := natsstore.New(conn)
	var last uint64
	for range 3 {
		r, err := store.SetNXNumbered(t.Context(), "k", "token", time.Second, backends.Turn{})
		if err != nil || !r.OK || r.Fence <= last {
			t.Fatalf("SetNXNumbered = %+v, %v; want a number over %d", r, err, last)
		}
		last = r.Fence
		if err := newOutside(t, conn).js.DeleteStream(t.Context(), "LOCKSTEP"); err != nil {
			t.Fatal(err)
		}
		again(t, func() error { return store.Install(trial.Patient(t), 1) })
	}
}

// again makes a stream in the place of one that was deleted. The server removes empty folders after it
// has answered, and a new stream may find that one of its own is gone.
func again(t *testing.T, install func() error) {
	t.Helper()
	var err error
	eventually(t, "the stream is made again", func() bool {
		err = install()
		return err == nil || !strings.Contains(err.Error(), "error creating store for stream")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// good is a stream that is fit for locks, by the client library's own type.
func good() jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: "LOCKSTEP", Subjects: []string{"lockstep.lock.*"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, Replicas: 1}
}

func TestInstallAndCheckRefuseAStreamThatIsNotFitForLocks(t *testing.T) {
	conn := dial(t, run(t).ClientURL())
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	store := natsstore.New(conn)
	for says, change := range map[string]func(c *jetstream.StreamConfig){
		"":                     func(*jetstream.StreamConfig) {},
		"it does not take":     func(c *jetstream.StreamConfig) { c.Subjects = []string{"lockstep.locks.*"} },
		"allow_msg_ttl":        func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false },
		"max_msgs_per_subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 },
		"retention":            func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"max_age":              func(c *jetstream.StreamConfig) { c.MaxAge = 10 * time.Second },
		"max_age of 24h0m0s":   func(c *jetstream.StreamConfig) { c.MaxAge = 24 * time.Hour },
		"discard":              func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 },
		"discard_new_per_subject": func(c *jetstream.StreamConfig) {
			c.Discard, c.DiscardNewPerSubject = jetstream.DiscardNew, true
		},
		"denies deletion":           func(c *jetstream.StreamConfig) { c.DenyDelete = true },
		"no_ack":                    func(c *jetstream.StreamConfig) { c.NoAck = true },
		"subject_delete_marker_ttl": func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Second },
		"transforms subjects": func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "lockstep.lock.*", Destination: "lockstep.lock.same"}
		},
		"copies other streams": func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "OTHER"}} },
	} {
		t.Run(says, func(t *testing.T) {
			c := good()
			change(&c)
			again(t, func() error {
				_, err := js.CreateStream(t.Context(), c)
				return err
			})
			defer js.DeleteStream(context.Background(), c.Name)
			report, err := store.Check(trial.Patient(t))
			if err != nil {
				t.Fatal(err)
			}
			failed := store.Install(trial.Patient(t), 1)
			if says == "" {
				if failed != nil || report.Err() != nil {
					t.Errorf("Install: %v; Check: %v", failed, report)
				}
				return
			}
			if !isPermanent(failed) || !strings.Contains(failed.Error(), says) {
				t.Errorf("Install: %v; want a permanent error that names %s", failed, says)
			}
			if err := report.Err(); err == nil || !strings.Contains(err.Error(), says) || report.Err(natsstore.ProblemSettings) != nil {
				t.Errorf("Check: %v; want an unsafe finding that names %s", report, says)
			}
		})
	}
}

func TestInstallRefusesReplicasThatItDoesNotGet(t *testing.T) {
	conn := dial(t, run(t).ClientURL())
	store := natsstore.New(conn)
	for _, replicas := range []int{-1, 0, 3, 6} {
		if err := store.Install(trial.Patient(t), replicas); !isPermanent(err) {
			t.Errorf("Install(%d) on one server: %v; want a permanent error", replicas, err)
		}
	}
	if err := store.Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	if err := store.Install(trial.Patient(t), 3); !isPermanent(err) || !strings.Contains(err.Error(), "it has 1 replica and not 3") {
		t.Errorf("Install(3) over a stream with one replica: %v", err)
	}
}

func TestCheckFinds(t *testing.T) {
	conn := dial(t, run(t).ClientURL())
	store := natsstore.New(conn)
	problems := func() (all []backends.Problem) {
		t.Helper()
		r, err := store.Check(trial.Patient(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Log(r)
		for _, f := range r.Findings {
			all = append(all, f.Problem)
		}
		return all
	}
	if got, want := problems(), []backends.Problem{natsstore.ProblemInstall}; !slices.Equal(got, want) {
		t.Errorf("without a stream: %v; want %v", got, want)
	}
	if err := store.Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	if got, want := problems(), []backends.Problem{natsstore.ProblemSync, natsstore.ProblemReplicas}; !slices.Equal(got, want) {
		t.Errorf("after Install: %v; want %v", got, want)
	}
	js := newOutside(t, conn).js
	_ = js.DeleteStream(t.Context(), "LOCKSTEP")
	c := good()
	c.Storage = jetstream.MemoryStorage
	if _, err := js.CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got, want := problems(), []backends.Problem{natsstore.ProblemPersistence, natsstore.ProblemReplicas}; !slices.Equal(got, want) {
		t.Errorf("in memory: %v; want %v", got, want)
	}
	for limit, change := range map[string]func(c *jetstream.StreamConfig){
		"max_bytes of the stream LOCKSTEP is 4000": func(c *jetstream.StreamConfig) { c.MaxBytes = 4000 },
		"max_msgs of the stream LOCKSTEP is 10":    func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 },
	} {
		_ = js.DeleteStream(t.Context(), "LOCKSTEP")
		c := good()
		c.Discard = jetstream.DiscardNew
		change(&c)
		again(t, func() error {
			_, err := js.CreateStream(t.Context(), c)
			return err
		})
		r, err := store.Check(trial.Patient(t))
		if err != nil || r.Err() != nil || !strings.Contains(r.String(), limit) || !slices.Contains(problems(), natsstore.ProblemSpace) {
			t.Errorf("Check: %v, %v; want a finding that is not unsafe, and says that %s", r, err, limit)
		}
		if err := store.Install(trial.Patient(t), 1); err != nil { // an account may demand a limit
			t.Errorf("Install over a stream with a limit (%s): %v", limit, err)
		}
	}
}

func TestCheckFindsReplicasThatAreDown(t *testing.T) {
	c := start(t, 3, byDefault)
	store := natsstore.New(c.conn)
	find := func(want bool) {
		t.Helper()
		var r natsstore.Report
		eventually(t, fmt.Sprintf("a finding about replicas: %v", want), func() bool {
			var err error
			r, err = store.Check(t.Context())
			return err == nil && want == slices.ContainsFunc(r.Findings, func(f backends.Finding) bool { return f.Problem == natsstore.ProblemReplicas })
		})
		if r.Err() != nil || r.Cluster != "C" || r.Replicas != 3 {
			t.Errorf("Check: %v", r)
		}
	}
	find(false)
	leader := c.leader(t)
	i := slices.IndexFunc(c.members, func(m *member) bool { return m != leader })
	c.members[i].kill()
	find(true)
}

// The user has exactly the permissions that the store lists, or one of them less.
func TestAUserWithThePermissionsListedMayDoEverythingAndNeedsEach(t *testing.T) {
	publish, subscribe := natsstore.New(nil).Permissions()
	without := func(all []string, one string) []string {
		t.Helper()
		i := slices.Index(all, one)
		if i < 0 {
			t.Fatalf("%v has no %s", all, one)
		}
		return slices.Delete(slices.Clone(all), i, i+1)
	}
	for name, tt := range map[string]struct {
		publish, subscribe []string
		fails              string // the first call that fails
	}{
		"all":                                 {publish, subscribe, ""},
		"not to publish to lockstep.lock.*":   {without(publish, "lockstep.lock.*"), subscribe, "SetNX"},
		"not to publish to STREAM.MSG.GET":    {without(publish, "$JS.API.STREAM.MSG.GET.LOCKSTEP"), subscribe, "SetNX of a held key"},
		"not to publish to STREAM.INFO":       {without(publish, "$JS.API.STREAM.INFO.LOCKSTEP"), subscribe, "Inspect"},
		"not to publish to MSG.DELETE":        {without(publish, "$JS.API.STREAM.MSG.DELETE.LOCKSTEP"), subscribe, "DeleteIf"},
		"not to subscribe to lockstep.wake.*": {publish, without(subscribe, "lockstep.wake.*"), "Watch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call, err := use(t, tt.publish, tt.subscribe)
			if call != tt.fails {
				t.Fatalf("%s: %v; want %q to fail first", call, err, tt.fails)
			}
			if err != nil && (!isPermanent(err) || !strings.Contains(err.Error(), "Store.Permissions")) {
				t.Errorf("%s: %v; want a permanent error that says what to do", call, err)
			}
		})
	}
}

// use makes each call as a user with these permissions, and returns the first that fails.
func use(t *testing.T, publish, subscribe []string) (call string, err error) {
	t.Helper()
	s := run(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "operator", Password: "p"},
			{Username: "app", Password: "p", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
			}},
		}
	})
	if err := natsstore.New(dial(t, s.ClientURL(), nats.UserInfo("operator", "p"))).Install(trial.Patient(t), 1); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, s.ClientURL(), nats.UserInfo("app", "p"))
	store, again := natsstore.New(conn), natsstore.New(conn) // again does not know the sequence
	const ttl = 20 * time.Second
	evict := func(e backends.Eviction) error {
		state, err := store.Inspect(trial.Patient(t), "k")
		if err != nil || len(state.Holds) != 1 {
			return fmt.Errorf("Inspect = %+v, %w", state, err)
		}
		_, err = store.Evict(trial.Patient(t), "k", state.Holds[0].Print, e)
		return err
	}
	for _, c := range []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"SetNX", func(ctx context.Context) error { _, err := store.SetNX(ctx, "k", "token", ttl); return err }},
		{"SetNX of a held key", func(ctx context.Context) error { _, err := again.SetNX(ctx, "k", "other", ttl); return err }},
		{"ExpireIf", func(ctx context.Context) error { _, err := again.ExpireIf(ctx, "k", "token", ttl); return err }},
		{"Inspect", func(ctx context.Context) error { _, err := store.Inspect(ctx, "k"); return err }},
		{"List", func(ctx context.Context) error { _, err := store.List(ctx, "", "", 10); return err }},
		{"DeleteIf", func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "k", "token"); return err }},
		{"SetNX again", func(ctx context.Context) error { _, err := store.SetNX(ctx, "k", "token", ttl); return err }},
		{"Evict", func(context.Context) error { return evict(backends.Eviction{Foreign: true}) }},
		{"Evict with Now", func(context.Context) error { return evict(backends.Eviction{Now: true}) }},
		{"Identify", func(ctx context.Context) error { _, err := store.Identify(ctx); return err }},
		{"Check", func(ctx context.Context) error { _, err := store.Check(ctx); return err }},
		{"Watch", func(ctx context.Context) error { return store.Watch(ctx, "k", func() {}) }},
	} {
		if err := c.do(t.Context()); err != nil {
			return c.name, err
		}
	}
	return "", nil
}

func TestTheServersOfAClusterAreOneNodeOfAQuorum(t *testing.T) {
	c := start(t, 3, byDefault)
	var nodes []backends.Identifier
	for _, m := range c.members {
		nodes = append(nodes, natsstore.New(dial(t, "nats://"+m.client.Addr())))
	}
	var wrong *backends.NodesError
	if err := backends.CheckNodes(trial.Patient(t), nodes...); !errors.As(err, &wrong) || len(wrong.Same) != 2 || len(wrong.Unreachable) > 0 {
		t.Errorf("CheckNodes of three servers of a cluster = %v; want all to be the same", err)
	}
	one, two := natsstore.New(install(t)), natsstore.New(install(t))
	if err := backends.CheckNodes(trial.Patient(t), one, two, nodes[0]); err != nil {
		t.Errorf("CheckNodes of independent servers = %v", err)
	}
	if err := backends.CheckNodes(trial.Patient(t), one, one); err == nil {
		t.Error("CheckNodes takes one server twice")
	}
}
