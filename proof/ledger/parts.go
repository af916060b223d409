package ledger

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Run has a name: Landing is what must pass for a change, Nightly is everything in full size.
type Run string

// The runs that have tests. The third, release, has none of its own.
const (
	Landing Run = "landing"
	Nightly Run = "nightly"
)

// A Part of a run is what one machine does. Parts can run on machines side by side.
type Part struct {
	Name, Does string
	Tests      []Tests
	Make       []string // then these targets of the Makefile, with their variables
}

// Tests are one `go test`.
type Tests struct {
	Module    string // its folder; empty: the root
	Packages  string // as go test has them; empty: ./...
	Except    string // folders of the module; those below a folder with /... too
	Flags     string
	Run, Skip string
	Args      string // of the tests themselves
	Small     bool   // in nightly: in the size of landing
}

// The go command takes cached results of packages whose code, files and LOCKSTEP_ variables are as
// they were. So nothing in landing is shuffled, which would switch that off; -trimpath makes the
// results hold in other folders, and .ci/versions tells the tests what else they depend on. All
// commands have -json, which is a part of what the cache looks at. -ldflags=-w leaves out what only
// a debugger reads, a third of the time to link. With -short, the contract of a store compares a third
// of all pairs of odd values, and has two of four ways to be in a queue.
const (
	cached   = "-vet=off -trimpath -ldflags=-w -short " // golangci-lint has the analyzers of go vet
	racing   = cached + "-race -parallel 16 -timeout 60m "
	unraced  = cached + "-parallel 16 -timeout 60m "
	uncached = "-vet=off -shuffle=on -timeout 60m " // packages that look at files of other modules
	full     = "-vet=off -race -shuffle=on -parallel 16 -timeout 115m "
	plain    = "-vet=off -shuffle=on -timeout 115m "
)

// These tests run without the race detector, which makes them many times slower: see proof/race.
// The simulation, the campaigns in full size and module bench do too: the first finds nothing more
// with it than the tests of the strategies, the second run with it in small size, and nearly all code
// of the last is from other projects.
const (
	lookAtTheTree = "./proof/release ./proof/repository"
	clients       = "./backends/goredis ./backends/redigo"
	embedded      = "(TestContract|ContractInFakeTime|ContractWithoutQueues|ALock|AReaderExcludes.*)$/embedded|OnEmbedded|AllStates|Refuted|Symmetry|ALostQueue|AQueueThatIsNotLost"
	allStrategies = "./strategies/..."
	legacy        = "./strategies/legacy"
	sqlite        = "(Contract|EveryStrategy)/SQLite"
	rueidis       = "OnEmbedded|InFakeTime"
	allocations   = "^TestWithoutAnSDKTheMiddlewareMakesFewAllocations$" // the detector makes some
)

// Landing runs these packages of the root without the race detector. Of the strategies only legacy has a
// mutex of its own; what the others share is in package locker and strategies/internal/instance, which run
// with it themselves and through single, fair and redlock. The rest are suites, models and programs.
// Nightly runs them with it, but for proof/release and proof/repository, and for the simulation, of which it
// runs Fresh.
const raceless = "backends/backendtest examples/... proof/... " +
	"strategies strategies/fenced strategies/legacy strategies/reentrant strategies/rwlock strategies/semaphore"

// These tests need the CPU soon, in full size: many Clients wait for each other, or for an answer within
// a limit. They run apart from others.
const soon = "^(TestFarClientsTakeTurns|TestTheCostOfAFaultyNodeIsBounded|TestManyLossesAreReportedInTime)$"

// Landing leaves these tests out.
const (
	released = "^TestThisRepositoryCanBeReleased$"
	killed   = "UnderKills|ForgetsEverySecond"                                       // they need many kills of servers to show anything
	measured = "^(TestTheShortFormHasEveryRow|TestAVersionCanBeComparedWithItself)$" // each measures everything
)

// The tests foreign look at files of other modules, which the go command does not see. benchCached are
// the packages of module bench whose other tests take cached results.
const (
	foreign     = "^(TestTheCommandsOfOperations|TestHeadlinesAreWrittenInto.*|TestTheDocumented.*)$"
	benchCached = "./internal/... ./interop ./peers"
)

// campaigns are those of the modules of stores. The guarded counters are short, and landing has them,
// too. It leaves out the large ones.
const campaigns, large = "Campaign|GuardedCounter", "Campaign"

// These campaigns take longest.
const cuts, soak = "^(TestPowerCuts|TestFailovers|TestReshardings)$", "^TestSoak$"

// Runs are all runs and their parts.
var Runs = map[Run][]Part{
	// Each has a target test-… in the Makefile, where test-servers stands, too.
	Landing: {
		{Name: "root", Tests: []Tests{
			// Tests with real servers wait for much of their time, so three packages at once keep
			// two CPUs busy.
			{Flags: racing + "-p 3", Skip: killed, Except: raceless},
			{Flags: unraced + "-p 3", Skip: killed, Packages: raceless, Except: "proof/campaign proof/simulation proof/release proof/repository"},
		}},
		// etcd is busy also if nobody calls it.
		{Name: "etcd", Tests: []Tests{{Module: "backends/etcd", Flags: cached + "-race -parallel 6 -timeout 60m ", Skip: large}}},
		{Name: "pgx", Tests: []Tests{{Module: "backends/pgxstore", Flags: racing, Skip: large}}},
		{Name: "nats", Tests: []Tests{{Module: "backends/natsstore", Flags: racing, Skip: large}}},
		{Name: "tree", Tests: []Tests{{Flags: uncached + "-p 1", Packages: lookAtTheTree, Skip: released}}},
		{Name: "apart", Tests: []Tests{
			{Module: "proof/differential", Flags: racing},
			{Module: "middleware/otellocker", Flags: racing},
			// It looks at a page, which the cache does not see, as the page is in another module.
			{Module: "middleware/otellocker", Flags: racing + "-count=1", Packages: ".", Run: "TheTablesOfThePage"},
			{Module: "middleware/otellocker", Flags: cached, Packages: ".", Run: allocations},
			{Module: "examples/otel", Flags: racing},
		}},
		{Name: "dialects", Tests: []Tests{
			{Module: "backends/sqlstore/dialects", Flags: racing, Skip: large},
			{Module: "backends/sqlstore/dialects", Flags: cached, Packages: ".", Run: sqlite},
		}},
		{Name: "rueidis", Tests: []Tests{
			{Module: "backends/rueidisstore", Flags: racing},
			{Module: "backends/rueidisstore", Flags: cached, Packages: ".", Run: rueidis},
		}},
		{Name: "command", Tests: []Tests{
			{Module: "cmd/lockstep", Flags: cached + "-parallel 8 -timeout 60m ", Packages: ".", Skip: foreign},
			{Module: "cmd/lockstep", Flags: uncached, Packages: ".", Run: foreign},
			{Module: "cmd/lockstep", Flags: uncached, Packages: "./command ./stores"},
		}},
		{Name: "bench", Tests: []Tests{
			{Module: "bench", Flags: cached + "-timeout 60m ", Packages: benchCached, Skip: foreign + "|" + measured},
			{Module: "bench", Flags: uncached, Packages: benchCached, Run: foreign},
			{Module: "bench", Flags: uncached, Packages: "./observe ./regress ./stores", Skip: measured},
		}},
		{Name: "again", Tests: []Tests{
			{Flags: cached + "-timeout 60m ", Packages: "./proof/simulation", Skip: "Fresh"},
			{Flags: cached, Packages: clients, Run: "OnEmbedded"},
			{Flags: cached, Packages: allStrategies, Except: raceless, Run: embedded},
		}},
	},

	Nightly: {
		{Name: "core", Does: "all packages of the root but those of other parts", Tests: []Tests{
			{Flags: full, Except: "strategies/... proof/campaign proof/simulation proof/release proof/repository"},
			{Flags: plain + "-p 1", Packages: lookAtTheTree},
			{Flags: plain, Packages: clients, Run: "OnEmbedded"},
		}},
		{Name: "strategies", Does: "the strategies, with all states of redlock", Tests: []Tests{
			{Flags: full, Packages: allStrategies, Skip: soon},
			{Flags: plain + "-p 1 -parallel 4", Packages: "./strategies ./strategies/redlock ./strategies/single", Run: soon},
			{Flags: plain, Packages: allStrategies, Except: legacy, Run: embedded},
			{Flags: plain, Packages: legacy, Run: "Contract//embedded"},
		}},
		{Name: "stores", Does: "the modules of stores, without campaigns", Tests: []Tests{
			{Module: "backends/rueidisstore", Flags: full},
			{Module: "backends/rueidisstore", Flags: plain, Packages: ".", Run: rueidis},
			{Module: "backends/pgxstore", Flags: full, Skip: campaigns + "|" + soon},
			{Module: "backends/pgxstore", Flags: plain + "-parallel 4", Packages: ".", Run: soon},
			{Module: "backends/etcd", Flags: full, Skip: campaigns},
			{Module: "backends/natsstore", Flags: full, Skip: campaigns},
			{Module: "backends/sqlstore/dialects", Flags: full, Skip: campaigns},
			{Module: "backends/sqlstore/dialects", Flags: plain, Packages: ".", Run: sqlite},
		}},
		{Name: "programs", Does: "the stores beside each other, OpenTelemetry, the command, and the tests beside programs of others", Tests: []Tests{
			{Module: "proof/differential", Flags: full},
			{Module: "middleware/otellocker", Flags: full},
			{Module: "middleware/otellocker", Flags: plain, Packages: ".", Run: allocations},
			{Module: "examples/otel", Flags: full},
			{Module: "cmd/lockstep", Flags: plain},
			{Module: "bench", Flags: plain},
		}},
		{Name: "campaigns", Does: "clocks, crashes, messages, waiters, a million locks: on redis-server", Tests: []Tests{
			{Flags: plain + "-parallel 8", Packages: "./proof/campaign", Skip: cuts + "|" + soak},
			{Flags: full, Packages: "./proof/campaign", Small: true},
		}},
		{Name: "cuts", Does: "power cuts, failovers and moved slots: on redis-server", Tests: []Tests{
			{Flags: plain + "-parallel 8", Packages: "./proof/campaign", Run: cuts},
		}},
		{Name: "soak", Does: "an hour of faults in which nothing may grow", Tests: []Tests{
			{Flags: plain, Packages: "./proof/campaign", Run: soak},
		}},
		{Name: "postgresql", Does: "its campaigns, with clocks and controls", Tests: []Tests{
			{Module: "backends/pgxstore", Flags: plain + "-parallel 16", Run: campaigns},
			{Module: "backends/pgxstore", Flags: full, Run: large, Small: true},
		}},
		{Name: "mariadb", Does: "its campaigns and those of SQLite, with clocks and controls", Tests: []Tests{
			{Module: "backends/sqlstore/dialects", Flags: plain + "-parallel 16", Run: campaigns},
			{Module: "backends/sqlstore/dialects", Flags: full, Run: large, Small: true},
		}},
		{Name: "mysql", Does: "the tests and campaigns of MariaDB on MySQL", Make: []string{
			"mysql", "matrix MYSQL=yes ONLY=Campaign STORES=backends/sqlstore/dialects",
		}},
		{Name: "clusters", Does: "the campaigns of etcd and NATS, with clocks and power cuts", Tests: []Tests{
			{Module: "backends/etcd", Flags: plain + "-parallel 16", Run: campaigns},
			{Module: "backends/natsstore", Flags: plain + "-parallel 16", Run: campaigns},
			{Module: "backends/etcd", Flags: full, Run: large, Small: true},
			{Module: "backends/natsstore", Flags: full, Run: large, Small: true},
		}},
		{Name: "simulation", Does: "2,000 schedules of each cell", Tests: []Tests{
			{Flags: plain, Packages: "./proof/simulation", Run: "Promises", Args: "-schedules 2000"},
		}},
		{Name: "fresh", Does: "schedules that nobody has played, and the planted defects", Tests: []Tests{
			{Flags: plain, Packages: "./proof/simulation", Run: "Fresh", Args: "-fresh 200"},
			{Flags: full, Packages: "./proof/simulation", Run: "Fresh"},
			{Flags: plain, Packages: "./proof/simulation", Skip: "Promises|Fresh"},
		}},
		{Name: "servers", Does: "the suites on Redis and Valkey of several versions", Make: []string{"servers CHECK=yes"}},
		{Name: "fuzz", Does: "each fuzz target for two minutes", Make: []string{"fuzz TIME=2m"}},
		{Name: "speed", Does: "beside the commit of the day before, and beside other libraries", Make: []string{
			"regress BASE=yesterday", "bench-peers", "figures",
		}},
		{Name: "checks", Does: "lint, known vulnerabilities, and statements that no test runs", Make: []string{
			"lint", "cover", "vulnerabilities",
		}},
	},
}

// Command returns the arguments of go test.
func (c Tests) Command(packages []Package) []string {
	args := []string{}
	if c.Module != "" {
		args = append(args, "-C", c.Module)
	}
	args = append(args, strings.Fields(c.Flags)...)
	if c.Run != "" {
		args = append(args, "-run", c.Run)
	}
	if c.Skip != "" {
		args = append(args, "-skip", c.Skip)
	}
	switch {
	case c.Except != "":
		for _, p := range packages {
			if c.has(p) {
				args = append(args, "./"+p.Folder)
			}
		}
	case c.Packages != "":
		args = append(args, strings.Fields(c.Packages)...)
	default:
		args = append(args, "./...")
	}
	return append(args, strings.Fields(c.Args)...)
}

// has tells whether a package is one of those that are tested.
func (c Tests) has(p Package) bool {
	module := path.Clean(c.Module)
	if p.Module != module {
		return false
	}
	folder := p.Folder
	if module != "." {
		folder = strings.TrimPrefix(strings.TrimPrefix(folder, module), "/")
	}
	within := func(pattern string) bool {
		pattern = strings.TrimPrefix(pattern, "./")
		if below, ok := strings.CutSuffix(pattern, "..."); ok {
			return strings.HasPrefix(folder+"/", below)
		}
		return path.Clean(pattern) == path.Clean(folder)
	}
	patterns := strings.Fields(c.Packages)
	return (len(patterns) == 0 || slices.ContainsFunc(patterns, within)) && !slices.ContainsFunc(strings.Fields(c.Except), within)
}

// Selects tells whether a test runs, and whether only subtests of it do.
func (c Tests) Selects(p Package, test string) (runs, subtests bool) {
	if !c.has(p) || c.race() && slices.Contains(p.Plain, test) {
		return false, false
	}
	matches := func(patterns string) (whole, subtests bool) {
		for pattern := range alternatives(patterns) {
			first, rest, _ := strings.Cut(pattern, "/")
			if regexp.MustCompile(first).MatchString(test) {
				whole, subtests = whole || rest == "", subtests || rest != ""
			}
		}
		return whole, subtests
	}
	whole := c.Run == ""
	if !whole {
		whole, subtests = matches(c.Run)
	}
	skipped := false
	if c.Skip != "" {
		skipped, _ = matches(c.Skip)
	}
	return (whole || subtests) && !skipped, subtests && !whole
}

// alternatives splits a pattern at each | that stands outside of parentheses, as go test does.
func alternatives(pattern string) func(func(string) bool) {
	return func(yield func(string) bool) {
		depth, begin := 0, 0
		for i, r := range pattern {
			switch r {
			case '(':
				depth++
			case ')':
				depth--
			case '|':
				if depth == 0 {
					if !yield(pattern[begin:i]) {
						return
					}
					begin = i + 1
				}
			}
		}
		yield(pattern[begin:])
	}
}

func (c Tests) race() bool { return slices.Contains(strings.Fields(c.Flags), "-race") }
