package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
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
			{"69", "no server that can be used, or too few nodes of a quorum"}, {"64", "bad flags, or no store is given"},
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
				return d.run(ctx, allowed)
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

// What an error of a store is a finding of.
const (
	problemUnreachable backends.Problem = "unreachable" // nothing has answered
	problemUnable      backends.Problem = "unable"      // the server has answered that it can't, at the moment or as it is set up
	problemRefused     backends.Problem = "refused"     // the store refuses the user, or what the user asks for, for good
)

// The findings of doctor itself.
var ownProblems = []backends.Problem{problemRefused, problemUnable, problemUnreachable, "role", "unchecked", "identity", "same", "follower", "rehearsal", "wake-ups", "ttl"}

// allow accepts kinds of findings. A kind that no store knows is a slip of the pen, and would accept
// nothing.
func (d *doctor) allow(list string, stores []*Store) error {
	for _, text := range fields(list) {
		p := backends.Problem(text)
		known := slices.Contains(ownProblems, p) || slices.ContainsFunc(stores, func(s *Store) bool {
			return s.Remedy == nil || s.Remedy(backends.Finding{Problem: p}) != ""
		})
		if !known {
			return usage("-allow %s: there is no such kind of finding", text)
		}
		d.allowed = append(d.allowed, p)
	}
	return nil
}

func (d *doctor) run(ctx context.Context, allowed string) error {
	stores, err := d.open(ctx, d.ttl)
	if err != nil {
		return err
	}
	defer shut(stores)
	if err := d.allow(allowed, stores); err != nil {
		return err
	}
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
		err = errors.New("too few stores can be used")
	}
	return &exitError{d.result.Exit, err}
}

func (d *doctor) find(store string, unsafe bool, problem, found, meaning, remedy string) {
	d.result.Findings = append(d.result.Findings, finding{
		Store: store, Problem: problem, Unsafe: unsafe, Accepted: slices.Contains(d.allowed, backends.Problem(problem)),
		Found: d.reworded(found), Meaning: d.reworded(meaning), Remedy: remedy,
	})
}

// examine calls the check of each store, and returns how many can't be used.
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
			x.Error = d.reworded(errs[i].Error())
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
			problem, remedy := s.advise(errs[i])
			d.find(s.Name, false, string(problem), errs[i].Error(), "no lock can be taken or renewed there", remedy)
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

// advise says what an error of the store is a finding of, and what to do.
func (s *Store) advise(err error) (problem backends.Problem, remedy string) {
	answered := false
	if s.Advise != nil {
		remedy, answered = s.Advise(err)
	}
	switch {
	case exitCode(err) == exitNoPerm:
		return problemRefused, cmp.Or(remedy, "look at user and password, and at the permissions of the user in docs/security.md")
	case answered:
		return problemUnable, cmp.Or(remedy, "look at the log of the server")
	}
	return problemUnreachable, cmp.Or(remedy, "start the server; look at address and firewall")
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
		put(d.out, "  found:   %s\n  meaning: %s\n", strings.TrimLeft(wrap(f.Found, "           ", 100), " "), strings.TrimLeft(wrap(f.Meaning, "           ", 100), " "))
		if f.Remedy != "" {
			put(d.out, "  type:    %s\n", f.Remedy)
		}
	}
	put(d.out, "\n%s\n", map[int]string{0: "fit", exitWarnings: "fit, with warnings", exitUnsafe: "UNSAFE", exitUnavailable: "NOT USABLE"}[d.result.Exit])
}
