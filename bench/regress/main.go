// Command regress shows whether a change made anything slower. It builds the same small worker
// against this tree and against an older commit. The two take turns in random order on the same
// servers, each in its own process. Every row is the ratio new / old, pair by pair: the median, and
// the interval that contains the true median with a probability of 95 %. The column A/A compares
// the old version with itself: it is the noise.
//
// The place that the linker gives a function can change the CPU time of a pair by 15 %, up or down.
// Any change of the code moves all functions. So each version is linked several times, with its
// functions in random order, and each turn runs one of these programs.
//
//	cd bench && go run ./regress -base v0.1.0                  # 20 turns of each case, about 15 minutes
//	cd bench && go run ./regress -base HEAD~3 -case a,b-ctx    # some of the cases
//
// The cases are the letters of command peers, with a ctx that cannot be cancelled, or one that can
// (-ctx): a, one pair after the other; b, 64 goroutines with a key each; c, 16 goroutines, or 16
// clients, that want one key; d, two clients that hand one key over; e, five nodes.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
)

// cost is the output of the worker.
type cost struct{ P50, Pairs, CPU, Allocations, Commands float64 }

var figures = []struct {
	name string
	of   func(cost) float64
}{
	{"time of a pair, p50", func(c cost) float64 { return c.P50 }},
	{"pairs per second", func(c cost) float64 { return c.Pairs }},
	{"CPU of the client", func(c cost) float64 { return c.CPU }},
	{"allocations", func(c cost) float64 { return c.Allocations }},
	{"commands", func(c cost) float64 { return c.Commands }},
}

var allCases = []string{"a", "a-ctx", "b", "b-ctx", "c", "c-16", "d", "e", "e-64", "e-ctx"}

const (
	nodes   = 5
	layouts = 6 // programs of each version
)

func main() {
	lab.Spin()
	log.SetFlags(0)
	base := flag.String("base", "", "the `commit` to compare with")
	turns := flag.Int("turns", 20, "`number` of turns of each case")
	turn := flag.Duration("turn", time.Second, "how long one turn lasts")
	only := flag.String("case", strings.Join(allCases, ","), "the `cases`")
	flag.Parse()
	if *base == "" || *turns < 1 {
		log.Fatal("regress: -base is missing, or -turns is under 1")
	}
	for _, name := range strings.Split(*only, ",") {
		if !slices.Contains(allCases, name) {
			log.Fatalf("regress: there is no case %q", name)
		}
	}
	if err := compare(os.Stdout, *base, strings.Split(*only, ","), *turns, *turn, layouts); err != nil {
		log.Fatal("regress: ", err)
	}
}

func compare(out io.Writer, base string, cases []string, turns int, turn time.Duration, layouts int) error {
	dir, err := os.MkdirTemp("", "regress")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	older, newer, err := build(dir, base, layouts)
	if err != nil {
		return err
	}
	var addrs []string
	for range nodes {
		s, err := lab.StartServer(false)
		if err != nil {
			return err
		}
		defer s.Kill()
		addrs = append(addrs, s.Addr)
	}
	defer lab.KeepAwake()()
	// an error of out has no other place to go
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
	say("Ratios new / old (%s), pair by pair: median [95 %% interval of the median], %d turns of %v.\n\n", base, turns, turn)
	say("| case | figure | new / old | A/A |\n|---|---|---|---|\n")
	for _, name := range cases {
		changed, noise := make([][]float64, len(figures)), make([][]float64, len(figures))
		for range turns {
			programs := [3]string{anyOf(older), anyOf(newer), anyOf(older)}
			var got [3]cost
			for _, i := range rand.Perm(len(programs)) {
				if got[i], err = measure(programs[i], name, addrs, turn); err != nil {
					return fmt.Errorf("case %s: %w", name, err)
				}
			}
			for i, f := range figures {
				changed[i] = append(changed[i], f.of(got[1])/f.of(got[0]))
				noise[i] = append(noise[i], f.of(got[2])/f.of(got[0]))
			}
		}
		for i, f := range figures {
			say("| %s | %s | %s | %s |\n", name, f.name, interval(changed[i]), interval(noise[i]))
		}
	}
	return nil
}

// build builds the worker for both versions. The older one is this worker in a checkout of base.
func build(dir, base string, layouts int) (older, newer []string, err error) {
	tree := filepath.Join(dir, "tree")
	if err := run(".", "git", "clone", "--quiet", "--shared", "--no-checkout", "..", tree); err != nil {
		return nil, nil, err
	}
	commit, err := exec.Command("git", "rev-parse", base+"^{commit}").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("no commit %q: %w", base, err)
	}
	if err := run(tree, "git", "checkout", "--quiet", strings.TrimSpace(string(commit))); err != nil {
		return nil, nil, err
	}
	if err := os.CopyFS(filepath.Join(tree, "bench", "regress", "worker"), os.DirFS(filepath.Join("regress", "worker"))); err != nil &&
		!os.IsExist(err) { // base has its own worker, with its own cases
		return nil, nil, err
	}
	if older, err = link(filepath.Join(tree, "bench"), filepath.Join(dir, "older"), layouts); err != nil {
		return nil, nil, err
	}
	newer, err = link(".", filepath.Join(dir, "newer"), layouts)
	return older, newer, err
}

// link builds the worker in dir once for each layout.
func link(dir, name string, layouts int) (programs []string, err error) {
	for i := range layouts {
		program := fmt.Sprintf("%s-%d", name, i)
		seed := fmt.Sprintf("-ldflags=-randlayout=%d", rand.Uint32()|1)
		if err := run(dir, "go", "build", seed, "-o", program, "./regress/worker"); err != nil {
			return nil, err
		}
		programs = append(programs, program)
	}
	return programs, nil
}

func anyOf(programs []string) string { return programs[rand.IntN(len(programs))] }

func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

func measure(program, name string, addrs []string, turn time.Duration) (c cost, err error) {
	cmd := exec.Command(program, "-case", name, "-addrs", strings.Join(addrs, ","), "-turn", turn.String())
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(printed, &c)
}

// interval is the median, and the order statistics that contain the true median with a probability
// of 95 %, by the sign test.
func interval(ratios []float64) string {
	slices.Sort(ratios)
	median, least, most := lab.Spread(ratios)
	if k := rank(len(ratios)); k > 0 {
		least, most = ratios[k-1], ratios[len(ratios)-k]
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", median, least, most)
}

// rank is the greatest k such that at most k-1 of n fair coins show heads with a probability of at
// most 2.5 %. It is 0 if n is too small.
func rank(n int) (k int) {
	chance, sum := 1.0, 0.0
	for range n {
		chance /= 2
	}
	for heads := 0; heads < n; heads++ {
		if sum += chance; sum > 0.025 {
			return heads
		}
		chance = chance * float64(n-heads) / float64(heads+1)
	}
	return 0
}
