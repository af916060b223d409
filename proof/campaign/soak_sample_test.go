package campaign

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

// A sample says what is in use at a moment of rest.
type sample struct {
	at time.Duration
	of [6]int // by the constants below
}

const (
	heap = iota
	running
	files
	clientsOfServers
	keysInServers
	memoryOfServers
)

// measures have a name, and the growth that is allowed: pools have more or fewer idle connections,
// each with some memory.
var measures = [len(sample{}.of)]struct {
	name  string
	slack int
}{
	heap:             {"heap in KB", 1024}, // after a collection
	running:          {"goroutines", 8},    // without those of servers and proxies
	files:            {"open files", 60},   // of this process, with those of proxies
	clientsOfServers: {"clients of servers", 20},
	keysInServers:    {"keys", 0}, // only the counters of numbered locks, since no lock is left
	memoryOfServers:  {"memory of servers in KB", 2048},
}

func (s *soak) measure(t *testing.T) sample {
	t.Helper()
	var memory runtime.MemStats
	runtime.GC()
	runtime.GC() // for what the first one has finalized
	runtime.ReadMemStats(&memory)
	var now sample
	now.of[heap], now.of[running], now.of[files] = int(memory.HeapAlloc>>10), goroutines(), openFiles()
	if !s.began.IsZero() {
		now.at = time.Since(s.began)
	}
	for _, site := range s.sites() {
		of := info(t, site.server)
		now.of[clientsOfServers] += int(of["connected_clients"]) - 1 // without this connection
		now.of[keysInServers] += int(of["keys"])
		now.of[memoryOfServers] += int(of["used_memory"]) >> 10
	}
	return now
}

// goroutines counts the goroutines that the test beds have not started.
func goroutines() (n int) {
	buf := make([]byte, 64<<20)
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !strings.Contains(stack, "proof/redistest") {
			n++
		}
	}
	return n
}

// openFiles is 0 where the system does not say.
func openFiles() int {
	files, _ := os.ReadDir("/proc/self/fd")
	return len(files)
}

// info returns the numbers in INFO.
func info(t *testing.T, server *redistest.Server) map[string]float64 {
	t.Helper()
	reply, err := server.Do("INFO")
	if err != nil {
		t.Errorf("looking at a server: %v", err)
	}
	text, _ := reply.(string)
	of := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if keys, is := strings.CutPrefix(value, "keys="); is { // db0:keys=3,expires=1
			name, value = "keys", keys[:strings.IndexByte(keys, ',')]
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			of[name] = n
		}
	}
	return of
}

// trend names the measures that are greater in the last quarter of the samples than in the second
// one. The first is left out: pools fill, and keys are used for the first time. A few samples have
// no trend.
func trend(samples []sample) []string {
	n := len(samples)
	if n < 16 {
		return nil
	}
	return grown(samples[n/4:n/2], samples[n-n/4:])
}

// grown names the measures whose median is greater by more than a fifth and the slack.
func grown(before, after []sample) (all []string) {
	for i, m := range measures {
		if was, is := median(before, i), median(after, i); is > was+was/5+m.slack {
			all = append(all, fmt.Sprintf("%s: from %d to %d", m.name, was, is))
		}
	}
	return all
}

func median(samples []sample, measure int) int {
	var all []int
	for _, s := range samples {
		all = append(all, s.of[measure])
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func (s sample) String() string {
	text := fmt.Sprintf("%9v", s.at.Round(time.Second))
	for i, m := range measures {
		text += fmt.Sprintf("  %*d", len(m.name), s.of[i])
	}
	return text
}

// printed has about as many lines as fit on a page.
func printed(before sample, samples []sample, after sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9s", "")
	for _, m := range measures {
		fmt.Fprintf(&b, "  %s", m.name)
	}
	fmt.Fprintf(&b, "\n%v  before there are clients\n", before)
	every := len(samples)/20 + 1
	for i := 0; i < len(samples); i += every {
		fmt.Fprintf(&b, "%v\n", samples[i])
	}
	fmt.Fprintf(&b, "%v  when they are closed", after)
	return b.String()
}

// TestATrendIsSeenAndNoiseIsNone asks whether TestSoak finds a leak, and none where there is none.
func TestATrendIsSeenAndNoiseIsNone(t *testing.T) {
	dice := rand.New(rand.NewPCG(seed, 0))
	for run := range 200 {
		level := make([]sample, 60)
		for i := range level {
			for m := range measures {
				base := []int{2000, 8, 200, 50, 50, 15_000}[m]
				level[i].of[m] = base + dice.IntN(base/10+1)
				if dice.IntN(10) == 0 {
					level[i].of[m] *= 3 // noise
				}
			}
		}
		if found := trend(level); len(found) > 0 {
			t.Fatalf("run %d: %q, but it is noise", run, found)
		}
		for m, perSample := range []int{100, 1, 10, 4, 2, 400} {
			leaky := slices.Clone(level)
			for i := range leaky {
				leaky[i].of[m] += i * perSample
			}
			if found := trend(leaky); len(found) != 1 || !strings.HasPrefix(found[0], measures[m].name) {
				t.Fatalf("run %d: %d more of %s in each sample; found %q", run, perSample, measures[m].name, found)
			}
		}
	}
}
