//go:build !race

// Without the race detector: the patched program is built without it in any case.

package simulation

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/proof/child"
)

// A defect is one that other lock libraries have had, put into this one. The checkers must find it,
// or their silence elsewhere proves nothing. Each is looked for in a cell where nothing may be
// violated, in up to enoughSeeds schedules.
type defect struct {
	name     string
	strategy string
	fault    Fault
	realTime bool // only a clock with two readings shows it

	// Either a store or a process does something else, or the source is patched.
	below mutant
	patch patch
}

const enoughSeeds = 200

// shortReservation is what a release did before waiters told their round trip.
var shortReservation = patch{
	"backends", "queued.go",
	"	return max(Reservation, min(3*t.RoundTrip",
	"	if DEFECT {\n		return Reservation\n	}\n	return max(Reservation, min(3*t.RoundTrip",
}

var defects = []defect{
	{name: "release by DEL without compare", strategy: "single", fault: Net, below: mutant{commands: deletesAnything}},
	{name: "unconditional PEXPIRE", strategy: "single", fault: Net, below: mutant{commands: extendsAnything}},
	{name: "extension by SET XX", strategy: "single", fault: Net, below: mutant{commands: overwritesAnything}},
	{name: "holds counted by HINCRBY", strategy: "reentrant", fault: Net, below: mutant{commands: countsHolds}},
	{name: "one permit too many", strategy: "semaphore", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"group == h.group && (limit == 0 || n < limit)",
		"group == h.group && (limit == 0 || n < limit || DEFECT && n == limit)",
	}},
	{name: "a renewal brings a permit back", strategy: "semaphore", fault: Pause, patch: patch{
		"backends/memory", "shared.go",
		"	if h == nil || !h.holds.has(token) {\n		return false, err\n	}\n	h.add(",
		"	if h == nil || !h.holds.has(token) && !DEFECT {\n		return false, err\n	}\n	h.add(",
	}},
	{name: "the key ends with the first of its holds", strategy: "semaphore", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"entry{kind: shared, share: h, expires: h.last()}",
		"entry{kind: shared, share: h, expires: map[bool]time.Time{true: h.first, false: h.last()}[DEFECT]}",
	}},
	{name: "readers and writers of one group", strategy: "rwlock", fault: None, patch: patch{
		"strategies/rwlock", "rwlock.go",
		"	a := backends.Admission{Group: group,",
		"	if DEFECT {\n		group = \"\"\n	}\n	a := backends.Admission{Group: group,",
	}},
	{name: "a number for each reader", strategy: "rwlock", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"s.number(key, len(h.holds) > 0, byClock, now)",
		"s.number(key, len(h.holds) > 0 && !DEFECT, byClock, now)",
	}},
	{name: "no new number for a new epoch", strategy: "rwlock", fault: None, patch: patch{
		"backends/memory", "fenced.go",
		"	if !again || f.last == 0 {",
		"	if !again && !DEFECT || f.last == 0 {",
	}},
	{name: "a slot is given twice", strategy: "semaphore", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"		if !slices.Contains(taken, slot) {",
		"		if !slices.Contains(taken, slot) || DEFECT {",
	}},
	{name: "a renewal loses the slot", strategy: "semaphore", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"	h.add(h.holds, token, now.Add(ttl))\n	s.keep(key, h, now)\n	return true, nil",
		"	h.add(h.holds, token, now.Add(ttl))\n	if DEFECT {\n		delete(h.slots, token)\n	}\n	s.keep(key, h, now)\n	return true, nil",
	}},
	{name: "permits that have ended are counted", strategy: "semaphore", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"	return e.share, e.share.purge(now), nil",
		"	return e.share, !DEFECT && e.share.purge(now), nil",
	}},
	{name: "a permit is counted after it is added", strategy: "semaphore", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"	n := h.count()\n	return n == 0",
		"	n := h.count()\n	if n > 0 && DEFECT {\n		n++\n	}\n	return n == 0",
	}},
	{name: "one waiter is woken although several fit", strategy: "rwlock", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"		wakes = append(wakes, t.wake)\n	}",
		"		wakes = append(wakes, t.wake)\n		if DEFECT {\n			break\n		}\n	}",
	}},
	{name: "a reservation without a group", strategy: "rwlock", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"		h.group = t.group\n",
		"		if h.group = t.group; DEFECT {\n			h.group = \"\"\n		}\n",
	}},
	{name: "a reservation that is not counted", strategy: "rwlock", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"{ return len(h.holds) + len(h.reserved) }",
		"{\n	if DEFECT {\n		return len(h.holds)\n	}\n	return len(h.holds) + len(h.reserved)\n}",
	}},
	{name: "a waiter that is refused what is reserved for it", strategy: "semaphore-limits", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"	converts := reserved &&",
		"	converts := !DEFECT && reserved &&",
	}},
	{name: "a call in order that passes the queue", strategy: "semaphore-ordered", fault: None, patch: patch{
		"backends/memory", "shared.go",
		"	if a.InOrder && !admitted {",
		"	if a.InOrder && !admitted && !DEFECT {",
	}},
	{name: "a reader that joined lets others join", strategy: "rwlock", fault: Net, patch: patch{
		"locker", "line.go",
		"e.room != 0 && s.head != following",
		"e.room != 0 && (s.head != following || DEFECT)",
	}},
	{name: "absolute expiry (PXAT) by the client's clock", strategy: "single", fault: None, below: mutant{lasting: byTheClientsClock}},
	{name: "T1 after the replies", strategy: "redlock-5/3", fault: Net, patch: patch{
		"strategies/redlock", "redlock.go",
		"	lease := contract.Lease{\n		Key: req.Key, Token: req.Token, Owner: req.Owner,\n",
		"	if DEFECT {\n		started = time.Now()\n	}\n	lease := contract.Lease{\n		Key: req.Key, Token: req.Token, Owner: req.Owner,\n",
	}},
	{name: "no check of the time that went by", strategy: "redlock-fenced-5/4", fault: Storm, patch: patch{
		"strategies/redlock", "redlock.go",
		"if e.won() && !lease.Ended() && kept {",
		"if e.won() && (!lease.Ended() || DEFECT) && kept {",
	}},
	{name: "a quorum of n/2", strategy: "redlock-5/3", fault: Net, patch: patch{
		"strategies/redlock", "options.go",
		"	return &quorum{config: c, nodes: nodes}, nil",
		"	if DEFECT {\n		c.need = n / 2\n	}\n	return &quorum{config: c, nodes: nodes}, nil",
	}},
	{name: "an extension by some nodes counts", strategy: "redlock-5/3", fault: Net, patch: patch{
		"strategies/redlock", "redlock.go",
		"case b.granted >= q.need:",
		"case b.granted >= q.need || b.granted > 0 && DEFECT:",
	}},
	{name: "cleanup under the caller's ctx", strategy: "single", fault: None, patch: patch{
		"internal/cleanup", "leftovers.go",
		"	e := &entry{Entry: of, ctx: context.WithoutCancel(ctx),",
		"	own := ctx\n	if !DEFECT {\n		own = context.WithoutCancel(ctx)\n	}\n	e := &entry{Entry: of, ctx: own,",
	}},
	{name: "the ghost of one's own attempt is a holder", strategy: "single", fault: Net, patch: patch{
		"strategies/internal/instance", "instance.go",
		"i.cleanups.Settle(ctx, req.Key); ghost != nil {\n			err = &cleanup.GhostError{Err: ghost}\n		} else if found || haunted {",
		"i.cleanups.Settle(ctx, req.Key); ghost != nil && !DEFECT {\n			err = &cleanup.GhostError{Err: ghost}\n		} else if (found || haunted) && !DEFECT {",
	}},
	{name: "a node of a quorum cleans up by itself", strategy: "redlock-5/3", fault: Storm, patch: patch{
		"strategies/internal/instance", "start.go",
		"		then(outcome(req, lease, res, err))\n",
		"		if err != nil && DEFECT {\n			s.cleanups.Add(ctx, s.entry(req, err))\n		}\n		then(outcome(req, lease, res, err))\n",
	}},
	{name: "renewal not joined before the release", strategy: "single", fault: Net, patch: patch{
		"locker", "release.go",
		"	h.client.renewals.remove(h)\n	h.join()\n",
		"	h.client.renewals.remove(h)\n	if !DEFECT {\n		h.join()\n	}\n",
	}},
	{name: "Expires.UTC()", strategy: "single", fault: None, realTime: true, patch: patch{
		"locker/contract", "contract.go",
		"	return started.Add(ttl - (ttl/100 + 2*time.Millisecond))\n",
		"	if DEFECT {\n		started = started.UTC()\n	}\n	return started.Add(ttl - (ttl/100 + 2*time.Millisecond))\n",
	}},
	{name: "a release that wakes nobody, and reserves for ever", strategy: "single", fault: None, patch: patch{
		"backends/memory", "queued.go",
		"entry{value: reservedFor(first), expires: t.late}, now)\n",
		"entry{value: reservedFor(first), expires: t.late}, now)\n" +
			"	if DEFECT {\n		s.entries.put(key, entry{value: reservedFor(first)}, now)\n		return first, nil\n	}\n",
	}},
	{name: "a release that wakes nobody", strategy: "single", fault: None, patch: patch{
		"backends/memory", "queued.go",
		"	return first, []func(){t.wake}\n",
		"	if DEFECT {\n		return first, nil\n	}\n	return first, []func(){t.wake}\n",
	}},
	{name: "a newcomer takes the reservation", strategy: "single", fault: None, patch: patch{
		"backends/memory", "queued.go",
		"e.value == reservedFor(t.Waiter):",
		"(e.value == reservedFor(t.Waiter) || DEFECT && strings.HasPrefix(e.value, reservedFor(\"\"))):",
	}},
	{name: "a numbered grant takes no position", strategy: "fenced", fault: None, patch: patch{
		"backends/memory", "fenced.go",
		"	return s.setInTurn(ctx, key, value, ttl, t, byClock)\n",
		"	if DEFECT {\n		t.Waiter = \"\"\n	}\n	return s.setInTurn(ctx, key, value, ttl, t, byClock)\n",
	}},
	{name: "a numbered grant knows no queue", strategy: "mixed", fault: None, patch: patch{
		"backends/memory", "queued.go",
		"	switch {\n	case found && t.Waiter != \"\" && ",
		"	if DEFECT && n == byClock && found && strings.HasPrefix(e.value, reservedFor(\"\")) {\n" +
			"		delete(s.entries.rows, key)\n		found = false\n	}\n	switch {\n	case found && t.Waiter != \"\" && ",
	}},
	{name: "a grant to a waiter keeps the number of the grant before", strategy: "fenced", fault: None, patch: patch{
		"backends/memory", "queued.go",
		"s.number(key, again, n, now)",
		"s.number(key, again || DEFECT && t.Waiter != \"\", n, now)",
	}},
	{name: "a newcomer passes the queue", strategy: "fair", fault: None, patch: patch{
		"backends/memory", "queued.go",
		"case !found && t.InOrder:",
		"case !found && t.InOrder && !DEFECT:",
	}},
	{name: "a position that serves twice", strategy: "fair", fault: None, patch: patch{
		"backends/memory", "queued.go",
		"		s.dequeue(key, t.Waiter)\n		if n == unnumbered {",
		"		if DEFECT {\n			s.enqueue(key, t.Waiter)\n		} else {\n			s.dequeue(key, t.Waiter)\n		}\n		if n == unnumbered {",
	}},
	{name: "a waiter that does not come gets the reservation again and again", strategy: "fair", fault: Partition, patch: patch{
		"backends/memory", "queued.go",
		"expires: t.late}, now)\n",
		"expires: t.late}, now)\n	if DEFECT {\n		t.late = time.Time{}\n	}\n",
	}},
	{name: "the last waiter of a queue is its head", strategy: "fair", fault: None, patch: patch{
		"backends/memory", "queued.go",
		"	first = s.head(key, now)\n",
		"	first = s.head(key, now)\n	if q := s.queues[key]; DEFECT && first != \"\" {\n		first = q[len(q)-1]\n	}\n",
	}},
	{name: "a reservation is as long for a far waiter, fair", strategy: "fair", fault: Far, patch: shortReservation},
	{name: "a reservation is as long for a far waiter, single", strategy: "single", fault: Far, patch: shortReservation},
	{name: "a reservation is as long for a far waiter, rwlock", strategy: "rwlock", fault: Far, patch: shortReservation},
	{name: "a reservation is as long for a far waiter, semaphore-ordered", strategy: "semaphore-ordered", fault: Far, patch: shortReservation},
	{name: "a late waiter loses its position", strategy: "fair", fault: Partition, patch: patch{
		"backends/memory", "queued.go",
		"		mine.keep, mine.late = t.Reservation(ttl), time.Time{}\n",
		"		if DEFECT && !mine.late.IsZero() && s.now().After(mine.late) {\n			s.dequeue(key, t.Waiter)\n		}\n" +
			"		mine.keep, mine.late = t.Reservation(ttl), time.Time{}\n",
	}},
	{name: "a waiter is late for ever", strategy: "rwlock", fault: Partition, patch: patch{
		"backends/memory", "queued.go",
		"		mine.keep, mine.late = t.Reservation(ttl), time.Time{}\n",
		"		if mine.keep = t.Reservation(ttl); !DEFECT {\n			mine.late = time.Time{}\n		}\n",
	}},
	{name: "a waiter that leaves the queue keeps its reservation", strategy: "fair", fault: None, patch: patch{
		"backends/memory", "queued.go",
		"case found && e.value == reservedFor(p.waiter):",
		"case found && e.value == reservedFor(p.waiter) && !DEFECT:",
	}},
	{name: "a wake for a waiter that has left does not wake the next", strategy: "single", fault: None, patch: patch{
		"locker", "line.go",
		"s.woken, a.signal = true, true // the head",
		"s.woken, a.signal = !DEFECT, !DEFECT // the head",
	}},
	{name: "a waiter keeps its name after an attempt that has an unknown outcome", strategy: "single", fault: Net, patch: patch{
		"locker", "place.go",
		"	if named && isUnknown(err) {\n",
		"	if named && isUnknown(err) && !DEFECT {\n",
	}},
	{name: "a waiter keeps its name after a time-out of the client library", strategy: "fair", fault: Pause, patch: patch{
		"locker", "place.go",
		"		p.w.lines.tell(p.ln, &lineEvent{is: onUnknown})\n",
		"		if !DEFECT || err == errUnderWay || isSilent(err) {\n			p.w.lines.tell(p.ln, &lineEvent{is: onUnknown})\n		}\n",
	}},
	{name: "WithWait ends at the first error", strategy: "single", fault: Reboot, patch: patch{
		"locker", "wait.go",
		"return p.limit > 0 && !outcome.Permanent(err) }",
		"return p.limit > 0 && !outcome.Permanent(err) && !DEFECT }",
	}},
	{name: "a minimum hold ends with Unlock", strategy: "single", fault: None, patch: patch{
		"locker", "ending.go",
		"f.least.After(f.now) && !f.failed //",
		"f.least.After(f.now) && !f.failed && !DEFECT //",
	}},
	{name: "a minimum hold is asked for by Unlock alone", strategy: "single", fault: Storm, patch: patch{
		"locker", "options.go",
		"func (t *terms) asks() time.Duration { return max(t.ttl, t.minHold) }",
		"func (t *terms) asks() time.Duration {\n	if DEFECT {\n		return t.ttl\n	}\n	return max(t.ttl, t.minHold)\n}",
	}},
	{name: "Do keeps the key of a work that has failed", strategy: "redlock-5/3", fault: None, patch: patch{
		"locker", "client.go",
		"		if !done {\n",
		"		if !done && !DEFECT {\n",
	}},
	{name: "several keys are taken in the order given", strategy: "single", fault: None, patch: patch{
		"locker", "doall.go",
		"	return a.do(ctx, slices.Compact(slices.Sorted(slices.Values(keys))))\n",
		"	all := slices.Compact(slices.Sorted(slices.Values(keys)))\n	if DEFECT {\n" +
			"		slices.SortFunc(all, func(a, b string) int { return slices.Index(keys, a) - slices.Index(keys, b) })\n	}\n	return a.do(ctx, all)\n",
	}},
	{name: "the loss of one of several locks does not end the work", strategy: "single", fault: Partition, patch: patch{
		"locker", "doall.go",
		"	return a.do(below(l), keys[1:])\n",
		"	if DEFECT {\n		return a.do(ctx, keys[1:])\n	}\n	return a.do(below(l), keys[1:])\n",
	}},
	{name: "no quarantine", strategy: "single", fault: Quarantine, below: mutant{unguarded: true}},
	{name: "the monotonic clock alone ends a lease", strategy: "single", fault: Ahead, patch: patch{
		"locker", "clock.go",
		" || !now.Round(0)",
		" || !DEFECT && !now.Round(0)",
	}},
}

// patch replaces a text that the source has exactly once. If the source has changed, the test
// fails. DEFECT is whether the program is to have this defect.
type patch struct{ folder, file, old, new string }

// TestEveryDefectIsFound plays schedules with each defect until one violates something. The same
// schedule without the defect must violate nothing, or the finding is not that of the defect.
func TestEveryDefectIsFound(t *testing.T) {
	program := buildWithDefects(t)
	all, looked := make([]finding, len(defects)), make([]bool, len(defects))
	t.Run("defects", func(t *testing.T) {
		for i, d := range defects {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				looked[i] = true // -run may leave it out
				if d.patch.file == "" {
					all[i] = d.find(t)
				} else {
					all[i] = findIn(t, program, d.name)
				}
				d.below = mutant{}
				if all[i].Seed == 0 {
					t.Error(all[i])
				} else if found := d.play(t, all[i].Seed); len(found) > 0 {
					t.Errorf("without the defect schedule %d violates something as well: %s", all[i].Seed, found[0])
				}
			})
		}
	})
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for i, d := range defects {
		if looked[i] {
			fmt.Fprintf(w, "%s\t%s under %s\t%s\n", d.name, d.strategy, d.fault, all[i])
		}
	}
	_ = w.Flush()
	t.Logf("%d defects\n%s", len(defects), table.String())
}

// A finding is what the first schedule violates that violates something.
type finding struct {
	Seed   uint64 // 0: there is no such schedule
	Breaks string
	Says   string
}

func (f finding) String() string {
	if f.Seed == 0 {
		return fmt.Sprintf("NOT FOUND in %d schedules", enoughSeeds)
	}
	return fmt.Sprintf("%s\tin schedule %d of %d\t%s", f.Breaks, f.Seed, enoughSeeds, f.Says)
}

func (d defect) find(t *testing.T) finding {
	for seed := uint64(1); seed <= enoughSeeds; seed++ {
		if found := d.play(t, seed); len(found) > 0 {
			return finding{seed, broken(found), found[0].Says}
		}
	}
	return finding{}
}

func (d defect) play(t *testing.T, seed uint64) []Violation {
	strategy, _ := StrategyNamed(d.strategy)
	s := Schedule{Strategy: strategy, Fault: d.fault, Seed: seed, mutant: d.below}
	if d.realTime {
		return s.RunInRealTime(t).Check()
	}
	return s.Run(t).Check()
}

// broken lists the invariants.
func broken(found []Violation) string {
	var names []string
	for _, v := range found {
		if name := string(v.Invariant); len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// patchedIn names the variable that says which defect the patched program has.
const patchedIn = "LOCKSTEP_SIMULATION_DEFECT"

// TestThePatchedProgram is not a test. It is what the program of buildWithDefects runs.
func TestThePatchedProgram(t *testing.T) {
	name := os.Getenv(patchedIn)
	if name == "" {
		return
	}
	for _, d := range defects {
		if d.name == name {
			text, err := json.Marshal(d.find(t))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println(mark + string(text))
			return
		}
	}
	t.Errorf("no defect %q", name)
}

const mark = "found: "

func findIn(t *testing.T, program, name string) (f finding) {
	t.Helper()
	out, err := child.Program(t, program, "TestThePatchedProgram", patchedIn+"="+name).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, mark); ok {
			err = errors.Join(err, json.Unmarshal([]byte(text), &f))
		}
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return f
}

// buildWithDefects compiles this test once with all patches. A variable of the environment turns
// one of them on. The sources stay as they are: the compiler reads other files in their place.
func buildWithDefects(t *testing.T) (program string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sources := map[string]string{} // by path
	for _, d := range defects {
		if d.patch.file == "" {
			continue
		}
		folder := filepath.Join(root, d.patch.folder)
		path := filepath.Join(folder, d.patch.file)
		if sources[path] == "" {
			sources[path] = read(t, path)
		}
		if n := strings.Count(sources[path], d.patch.old); n != 1 {
			t.Fatalf("%s: %s has the text to replace %d times; want 1: %q", d.name, d.patch.file, n, d.patch.old)
		}
		with := strings.ReplaceAll(d.patch.new, "DEFECT", fmt.Sprintf("hasDefect(%q)", d.name))
		sources[path] = strings.Replace(sources[path], d.patch.old, with, 1)
		sources[filepath.Join(folder, "defect.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nfunc hasDefect(name string) bool { return os.Getenv(%q) == name }\n", filepath.Base(folder), patchedIn)
	}
	replace := map[string]string{}
	for i, path := range sortedKeys(sources) {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		write(t, replace[path], sources[path])
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), string(overlay))
	program = filepath.Join(dir, "patched.test")
	out, err := exec.Command("go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return program
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
