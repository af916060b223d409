// Command peers measures Lockstep beside other lock libraries and raw commands, on redis-servers
// that it starts itself. In one run the contenders of a case take turns in random order, in several
// repetitions. Every figure is the median of the repetitions, with its range. One contender of each
// case runs twice: the distance between the two is the noise. Absolute figures depend on the
// machine: compare only ratios of one run.
//
//	cd bench && go run ./peers                                  # everything, about 70 minutes
//	cd bench && go run ./peers -case a,d -repeat 3              # some of it
//	cd bench && go run ./peers -short -v                        # a short run without meaning, with a line for each turn
//	cd bench && go run ./peers -page ../artefacts/performance.md    # and write the results into that page
//	cd bench && go run ./peers -runs 3 -page ../artefacts/performance.md -headlines ../docs/performance.md
//
// The last one also writes the figures to quote, as ranges of three runs.
//
// Each case is a file that begins with what it measures; contender.go has the rows.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/stamp"
	"github.com/redis/go-redis/v9/logging"
)

func init() { logging.Disable() } // go-redis logs every connection that fails, and some must fail here

func main() {
	lab.Spin()
	beChild()
	log.SetFlags(0)
	var s settings
	flag.BoolVar(&s.short, "short", false, "do everything, and too little of it to mean anything")
	flag.IntVar(&s.repeat, "repeat", 5, "`repetitions` of everything; of what is costly half or a third")
	flag.IntVar(&s.rounds, "rounds", 3000, "`pairs` per contender and repetition, one after the other")
	flag.DurationVar(&s.turn, "turn", time.Second, "how long many goroutines work, per contender and repetition")
	flag.BoolVar(&s.pinned, "pin", true, "give client and servers a CPU each, as if they were on two machines")
	flag.BoolVar(&s.verbose, "v", false, "tell of every turn, on standard error")
	flag.StringVar(&s.page, "page", "", "put the results between the marks of this `file`, and charts in a folder of its name; makes both")
	flag.IntVar(&s.runs, "runs", 1, "`runs` of all of it, each with servers of its own; headline figures are their range")
	flag.StringVar(&s.quoted, "headlines", "", "put the headline figures between the marks of this `file`, and the charts that it shows beside it; needs -page and 3 runs at least")
	only := flag.String("case", "", "the `cases` to run, such as a,d; all by default")
	flag.Parse()
	if *only != "" {
		s.only = strings.Split(*only, ",")
	}
	if s.short {
		s.repeat, s.rounds, s.turn, s.pinned = 1, 20, 50*time.Millisecond, false
	}
	if err := several(s, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// several makes s.runs runs and prints the range of the headline figures. -page writes the last
// run.
func several(s settings, out io.Writer) error {
	if s.quoted != "" && (s.runs < 3 || len(s.only) > 0 || s.page == "") {
		return errors.New("-headlines needs -page, all cases and -runs 3 or more: one run may be the best one")
	}
	made := stamp.Now("..", stamp.Measured...).String() // before the runs, while the tree is what they measure
	var all []map[string]*report
	for n := range s.runs {
		one := s
		if n < s.runs-1 {
			one.page = ""
		}
		reports, err := run(one, out)
		if err != nil {
			return err
		}
		all = append(all, reports)
	}
	text := headlines(all)
	if _, err := fmt.Fprintf(out, "## Headlines\n\n%s\n", text); err != nil {
		return err
	}
	if s.quoted == "" {
		return nil
	}
	server, version, err := redistest.Version()
	if err != nil {
		return err
	}
	made = fmt.Sprintf("%s, with %s, %s %s, %s, by `cd bench && go run ./peers -runs %d -repeat %d`.\n\n",
		made, runtime.Version(), server, version, strings.Join(versions(), ", "), s.runs, s.repeat)
	return publishHeadlines(s.quoted, made+text, s.page)
}

type settings struct {
	short, pinned  bool
	verbose        bool
	repeat, rounds int
	turn           time.Duration
	only           []string
	page           string
	runs           int
	quoted         string
}

// A study is one case.
type study struct {
	id, title string
	run       func(*bench) (*report, error)
}

var studies = []study{
	{"a", "One lock and unlock after the other", sequential},
	{"b", "64 goroutines, each with a key of its own", throughput},
	{"c", "16 goroutines that want one key", contention},
	{"d", "Hand-over", handOver},
	{"e", "Five nodes", fiveNodes},
	{"f", "Many locks that are held", renewal},
	{"g", "Many who wait", waiters},
	{"h", "Over a round trip of 24 ms", distance},
	{"i", "A semaphore that many want", semaphores},
	{"j", "Readers and a writer", readers},
	{"k", "Leader election", elections},
}

// run returns a report for each case.
func run(s settings, out io.Writer) (map[string]*report, error) {
	for _, id := range s.only {
		if !slices.ContainsFunc(studies, func(c study) bool { return c.id == id }) {
			return nil, fmt.Errorf("there is no case %q", id)
		}
	}
	if err := begin(s.page); err != nil {
		return nil, err
	}
	if s.pinned {
		if err := lab.PinSelf(); err != nil {
			return nil, err
		}
	}
	b := &bench{settings: s, out: out}
	defer b.close()
	if err := b.start(1); err != nil {
		return nil, err
	}
	if !s.short {
		defer lab.KeepAwake()()
	}
	intro, err := b.introduction()
	if err != nil {
		return nil, err
	}
	b.print("%s\n", intro)
	reports := map[string]*report{}
	pages, made := map[string]string{"run": intro}, ""
	if len(s.only) > 0 { // the rest of the page is of another run
		pages, made = map[string]string{}, intro+"\n"
	}
	for _, c := range studies {
		if len(s.only) > 0 && !slices.Contains(s.only, c.id) {
			continue
		}
		b.print("## (%s) %s\n\n", c.id, c.title)
		began := time.Now()
		r, err := c.run(b)
		if err != nil {
			return nil, fmt.Errorf("case %s: %w", c.id, err)
		}
		reports[c.id] = r
		pages[c.id] = made + r.markdown()
		b.print("%s\n(%v)\n\n", pages[c.id], time.Since(began).Round(time.Second))
		if s.page == "" {
			continue
		}
		if err := r.draw(s.page); err != nil {
			return nil, err
		}
	}
	if s.page == "" {
		return reports, nil
	}
	return reports, publish(s.page, pages)
}
