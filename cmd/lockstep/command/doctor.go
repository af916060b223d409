package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
)

func doctorCommand() *command {
	return &command{
		name: "doctor", args: "[FLAGS]", summary: "check whether a store or a quorum is fit for locks",
		text: `It asks each server how it is set up, checks that the nodes of a quorum are different servers, and rehearses a
lock on a key of its own: a grant, a refusal, an extension, a release with a wake-up, and the end of a lease. It
measures round trips. The least sensible TTL is ten times the 99th percentile, and the margin of a lease.

Each finding has what was found, what it means for locks, and what to type against it.`,
		example: []example{
			{"lockstep doctor", ""},
			{"lockstep doctor -ttl 2s -allow persistence,replicas", "is a TTL of two seconds sensible? Two kinds of findings are known and accepted"},
			{"lockstep doctor -json", "for monitoring"},
		},
		exits: []exit{
			{"0", "fit"}, {"1", "warnings"}, {"2", "unsafe: two holders at once are possible in ordinary operation, or a step of the rehearsal went wrong"},
			{"69", "no answer, or too few nodes of a quorum"}, {"64", "bad flags, or no store is given"},
		},
		setup: func(c *cli, fs *flag.FlagSet) func(context.Context, []string) error {
			d := &doctor{cli: c, ttl: locker.DefaultTTL}
			var allowed string
			fs.Var(seconds{&d.ttl}, "ttl", "the shortest TTL that the programs use (`duration`)")
			fs.IntVar(&d.rounds, "rounds", 100, "`number` of round trips to measure")
			fs.StringVar(&d.key, "key", "", "`name` of the lock for the rehearsal; default: lockstep-doctor/HOST")
			fs.StringVar(&allowed, "allow", "", "`kinds` of findings that are accepted, with commas between them")
			return func(ctx context.Context, _ []string) error {
				if d.rounds < 10 {
					return usage("-rounds %d says nothing: use 10 or more", d.rounds)
				}
				d.allow(allowed)
				return d.run(ctx)
			}
		},
	}
}

// doctor is one `lockstep doctor`.
type doctor struct {
	*cli
	ttl     time.Duration
	rounds  int
	key     string
	allowed []backends.Problem

	result diagnosis
}

// diagnosis is what doctor finds, and prints with -json.
type diagnosis struct {
	Stores     []examined `json:"stores"`
	Findings   []finding  `json:"findings"`
	Rehearsal  []step     `json:"rehearsal"`
	P50US      int64      `json:"round_trip_p50_us"`
	P99US      int64      `json:"round_trip_p99_us"`
	LeastTTLMS int64      `json:"least_ttl_ms"`
	Exit       int        `json:"exit"`
}

type examined struct {
	Store  string `json:"store"`
	Server string `json:"server,omitempty"`
	SkewUS int64  `json:"clock_skew_us,omitempty"`
	Error  string `json:"error,omitempty"`
}

type finding struct {
	Store    string `json:"store,omitempty"`
	Problem  string `json:"problem"`
	Unsafe   bool   `json:"unsafe"`
	Accepted bool   `json:"accepted,omitempty"`
	Found    string `json:"found"`
	Meaning  string `json:"meaning"`
	Remedy   string `json:"remedy,omitempty"`
}

type step struct {
	Step  string `json:"step"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	US    int64  `json:"us"`
}

func (d *doctor) allow(list string) {
	for _, p := range fields(list) {
		d.allowed = append(d.allowed, backends.Problem(p))
	}
}

func (d *doctor) run(ctx context.Context) error {
	stores, err := d.open(ctx, d.ttl)
	if err != nil {
		return err
	}
	defer shut(stores)
	d.result.Findings, d.result.Rehearsal = []finding{}, []step{}
	unreachable := d.examine(ctx, stores)
	if d.nodes(ctx, stores, unreachable) && len(stores)-unreachable >= d.need(len(stores)) {
		err = d.rehearse(ctx, stores)
	}
	d.result.Exit = d.verdict(len(stores), unreachable, err)
	if d.json {
		err = errors.Join(err, d.print(d.out, d.result))
	} else {
		d.show()
	}
	if d.result.Exit == 0 {
		return nil
	}
	if err == nil && d.result.Exit == exitUnavailable {
		err = errors.New("too few stores have answered")
	}
	return &exitError{d.result.Exit, err}
}

func (d *doctor) find(store string, unsafe bool, problem, found, meaning, remedy string) {
	d.result.Findings = append(d.result.Findings, finding{
		Store: store, Problem: problem, Unsafe: unsafe, Accepted: slices.Contains(d.allowed, backends.Problem(problem)),
		Found: found, Meaning: meaning, Remedy: remedy,
	})
}

// examine calls the check of each store, and returns how many did not answer.
func (d *doctor) examine(ctx context.Context, stores []*Store) (unreachable int) {
	reports, errs := make([]Report, len(stores)), make([]error, len(stores))
	var all sync.WaitGroup
	for i, s := range stores {
		if s.Check == nil {
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, d.timeout)
			defer cancel()
			reports[i], errs[i] = s.Check(ctx)
		})
	}
	all.Wait()
	for i, s := range stores {
		x := examined{Store: s.Name, Server: reports[i].Server, SkewUS: reports[i].ClockSkew.Microseconds()}
		if errs[i] != nil {
			x.Error = errs[i].Error()
			unreachable++
		}
		var typed interface{ ErrorType() string }
		switch {
		case errs[i] == nil:
		case errors.As(errs[i], &typed) && typed.ErrorType() == "replica":
			reports[i].Findings = append(reports[i].Findings, backends.Finding{
				Problem: "role", Detail: errs[i].Error(), Consequence: "a lock can't be taken on it", Unsafe: true,
			})
		default:
			d.find(s.Name, false, "unreachable", errs[i].Error(), "no lock can be taken or renewed there",
				"start the server; look at address, user, password and firewall")
		}
		if s.Check == nil {
			d.find(s.Name, false, "unchecked", "this store has no check", "nothing is known of how it keeps locks", "")
		}
		for _, f := range reports[i].Findings {
			remedy := ""
			if s.Remedy != nil {
				remedy = s.Remedy(f)
			}
			d.find(s.Name, f.Unsafe, string(f.Problem), f.Detail, f.Consequence, remedy)
		}
		d.result.Stores = append(d.result.Stores, x)
	}
	return unreachable
}

// nodes checks that the nodes of a quorum are independent. It returns false if there is no quorum
// to rehearse on.
func (d *doctor) nodes(ctx context.Context, stores []*Store, unreachable int) bool {
	if len(stores) == 1 {
		return unreachable == 0
	}
	identifiers := make([]backends.Identifier, len(stores))
	for i, s := range stores {
		var ok bool
		if identifiers[i], ok = s.Backend.(backends.Identifier); !ok {
			d.find(s.Name, true, "identity", "the store does not tell which server it is on", "the nodes may be one server, which counts twice", "use stores that tell")
			return false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	var found *backends.NodesError
	if !errors.As(backends.CheckNodes(ctx, identifiers...), &found) {
		return true
	}
	for _, pair := range found.Same {
		d.find(stores[pair[1]].Name, true, "same", fmt.Sprintf("nodes %d and %d are the same server", pair[0]+1, pair[1]+1),
			"it counts twice, so half of the servers make a quorum", "take one of them out of LOCKSTEP_STORE")
	}
	for _, i := range found.Followers {
		d.find(stores[i].Name, true, "follower", fmt.Sprintf("node %d is a replica of another server", i+1),
			"it is no independent node", "give the address of an independent server")
	}
	return len(found.Same)+len(found.Followers) == 0
}

// rehearse goes through the life of a lock.
func (d *doctor) rehearse(ctx context.Context, stores []*Store) error {
	if len(stores) > 1 && d.strategy == "" {
		d.strategy = "redlock" // redlock-fenced leaves a counter for ever
	}
	l, _, err := d.locker(ctx, stores)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	if d.key == "" {
		d.key = "lockstep-doctor/" + host
	}
	r := &rehearsal{doctor: d, locker: l}
	err = r.run(ctx)
	if r.failed {
		d.find("", true, "rehearsal", "a step of the rehearsal went wrong", "locks do not work as they should with these flags and permissions",
			"look at the error of the step; docs/security.md of Lockstep lists the permissions")
	}
	return err
}

// rehearsal is the life of a lock, step by step.
type rehearsal struct {
	*doctor
	locker locker.Locker
	failed bool
	trips  []time.Duration
}

// rehearsalTTL is that of the rehearsal.
func (d *doctor) rehearsalTTL() time.Duration {
	return min(5*time.Second, max(d.maxTTL, d.ttl)/2).Truncate(time.Millisecond)
}

// step does one step under a limit. After a failure, it does no more.
func (r *rehearsal) step(ctx context.Context, name string, do func(ctx context.Context) error) {
	if r.failed {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	s := step{Step: name, OK: err == nil, US: time.Since(began).Microseconds()}
	if err != nil {
		s.Error, r.failed = err.Error(), true
	}
	r.result.Rehearsal = append(r.result.Rehearsal, s)
}

func (r *rehearsal) request(ttl time.Duration) locker.Request {
	return locker.Request{Key: r.key, Token: locker.NewToken(), TTL: ttl}
}

// timed measures a call.
func (r *rehearsal) timed(call func() error) error {
	began := time.Now()
	err := call()
	r.trips = append(r.trips, time.Since(began))
	return err
}

func (r *rehearsal) run(ctx context.Context) error {
	var lease locker.Lease
	r.step(ctx, "grant", func(ctx context.Context) (err error) {
		if lease, err = r.locker.Acquire(ctx, r.request(r.rehearsalTTL())); errors.Is(err, locker.ErrHeld) {
			r.key += "/" + fmt.Sprint(os.Getpid()) // another doctor is at work
			lease, err = r.locker.Acquire(ctx, r.request(r.rehearsalTTL()))
		}
		return err
	})
	r.step(ctx, "refusal", func(ctx context.Context) error {
		second, err := r.locker.Acquire(ctx, r.request(r.rehearsalTTL()))
		if err == nil {
			_ = r.locker.Release(ctx, second)
			return errors.New("a lock that is held was granted again")
		}
		if errors.Is(err, locker.ErrHeld) {
			return nil
		}
		return err
	})
	r.step(ctx, "extension", func(ctx context.Context) (err error) {
		lease, err = r.locker.Extend(ctx, lease, 2*r.rehearsalTTL())
		return err
	})
	r.step(ctx, "release and wake-up", func(ctx context.Context) error { return r.wake(ctx, lease) })
	r.step(ctx, "round trips", func(context.Context) error { return r.measure(ctx) })
	r.step(ctx, "end of a lease", func(context.Context) error { return r.expire(ctx) })
	r.judge()
	return nil
}

// wake releases the lease while somebody watches.
func (r *rehearsal) wake(ctx context.Context, lease locker.Lease) error {
	woken := make(chan struct{}, 1)
	err := r.locker.Watch(ctx, r.key, "", func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err := r.locker.Release(ctx, lease); err != nil {
		return err
	}
	if err != nil {
		r.find("", false, "wake-ups", "this store wakes nobody", "waiters poll", "-allow wake-ups; another store if many wait for one lock")
		return nil
	}
	limit := time.NewTimer(2 * time.Second)
	defer limit.Stop()
	select {
	case <-woken:
	case <-limit.C:
		r.find("", false, "wake-ups", "a release woke nobody within 2s", "waiters poll, so a lock stays free for a moment before the next has it",
			"look at the permissions for channels, and whether a proxy or pooler stands in between")
	}
	return nil
}

// measure takes, extends and releases the lock again and again.
func (r *rehearsal) measure(ctx context.Context) error {
	for len(r.trips) < r.rounds {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		var lease locker.Lease
		err := r.timed(func() (err error) {
			lease, err = r.locker.Acquire(ctx, r.request(r.rehearsalTTL()))
			return err
		})
		if err == nil {
			err = r.timed(func() (err error) {
				lease, err = r.locker.Extend(ctx, lease, 2*r.rehearsalTTL())
				return err
			})
		}
		if err == nil {
			err = r.timed(func() error { return r.locker.Release(ctx, lease) })
		}
		cancel()
		if err != nil {
			return err
		}
	}
	slices.Sort(r.trips)
	p99 := r.trips[len(r.trips)*99/100]
	r.result.P50US, r.result.P99US = r.trips[len(r.trips)/2].Microseconds(), p99.Microseconds()
	r.result.LeastTTLMS = leastTTL(p99).Milliseconds()
	return nil
}

// leastTTL is the shortest TTL whose lease, without its margin, has room for ten slow round trips.
func leastTTL(p99 time.Duration) time.Duration {
	need := 10 * p99
	start := time.Now()
	ttl := max(need, locker.MinTTL).Truncate(time.Millisecond)
	for locker.Until(start, ttl).Sub(start) < need || ttl < locker.MinTTL {
		ttl += time.Millisecond
	}
	return ttl
}

// expire takes the lock, and waits for the end of the lease.
func (r *rehearsal) expire(ctx context.Context) error {
	ttl := max(200*time.Millisecond, time.Duration(r.result.LeastTTLMS)*time.Millisecond)
	lease, err := r.locker.Acquire(ctx, r.request(ttl))
	if err != nil {
		return err
	}
	for limit := time.Now().Add(2*ttl + 10*time.Second); ; { // some stores keep whole seconds
		next, err := r.locker.Acquire(ctx, r.request(ttl))
		switch {
		case err == nil:
			_ = r.locker.Release(ctx, next)
			if !lease.Ended() {
				return fmt.Errorf("the lock was granted again %v before its lease ended", time.Until(lease.Expires))
			}
			return nil
		case !errors.Is(err, locker.ErrHeld):
			return err
		case time.Now().After(limit):
			return fmt.Errorf("the lock is not free %v after its lease ended", time.Since(lease.Expires).Round(time.Millisecond))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *rehearsal) judge() {
	if least := time.Duration(r.result.LeastTTLMS) * time.Millisecond; least > r.ttl {
		r.find("", false, "ttl", fmt.Sprintf("a TTL of %v is short for round trips of %v (99th percentile)", r.ttl, time.Duration(r.result.P99US)*time.Microsecond),
			"locks are lost when the network is a little slower", fmt.Sprintf("use a TTL of %v or more", least))
	}
}

// verdict is the exit code.
func (d *doctor) verdict(stores, unreachable int, err error) int {
	code := 0
	for _, f := range d.result.Findings {
		switch {
		case f.Accepted:
		case f.Unsafe:
			code = exitUnsafe
		default:
			code = max(code, exitWarnings)
		}
	}
	if stores-unreachable < d.need(stores) && code != exitUnsafe {
		return exitUnavailable
	}
	if err != nil && code != exitUnsafe {
		return exitCode(err)
	}
	return code
}

func (d *doctor) show() {
	for _, s := range d.result.Stores {
		line := s.Store
		if s.Server != "" {
			line += fmt.Sprintf("  %s, clock off by %v", s.Server, (time.Duration(s.SkewUS) * time.Microsecond).Round(time.Microsecond))
		}
		put(d.out, "%s\n", line)
	}
	for _, s := range d.result.Rehearsal {
		word := "ok"
		if !s.OK {
			word = "FAILED: " + s.Error
		}
		put(d.out, "  %-20s %10s  %s\n", s.Step, (time.Duration(s.US) * time.Microsecond).Round(10*time.Microsecond).String(), word)
	}
	if d.result.P99US > 0 {
		put(d.out, "  round trip %v, 99th percentile %v; least sensible TTL %v\n", time.Duration(d.result.P50US)*time.Microsecond,
			time.Duration(d.result.P99US)*time.Microsecond, time.Duration(d.result.LeastTTLMS)*time.Millisecond)
	}
	for _, f := range d.result.Findings {
		word := "warning"
		switch {
		case f.Accepted:
			word = "accepted"
		case f.Unsafe:
			word = "UNSAFE"
		}
		put(d.out, "\n%s  %s%s\n", word, f.Problem, optional("  ", f.Store))
		put(d.out, "%s\n%s\n", wrap("found:   "+f.Found, "  ", 100), wrap("meaning: "+f.Meaning, "  ", 100))
		if f.Remedy != "" {
			put(d.out, "  type:    %s\n", f.Remedy)
		}
	}
	put(d.out, "\n%s\n", map[int]string{0: "fit", exitWarnings: "fit, with warnings", exitUnsafe: "UNSAFE", exitUnavailable: "unreachable"}[d.result.Exit])
}
