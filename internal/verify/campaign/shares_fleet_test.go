package campaign

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/child"
	"github.com/lockstep-go/lockstep/internal/verify/history"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/redis/go-redis/v9"
)

// A fleet has the processes of one experiment, and what they have told.
type fleet struct {
	t      *testing.T
	share  share
	prefix string // of the keys
	server *redistest.Server
	ships  []*ship
	grants chan grantOf // dropped while nobody receives

	phases    []phase
	takeovers []time.Duration // from the death of a holder that excluded the others

	mu      sync.Mutex
	crowded []violation // what the store had
	told    []*tenure
	refused []int64 // when attempts of candidates were sent that were held
}

// A ship is one process, with the proxy between it and the server.
type ship struct {
	library int
	name    string
	cmd     *exec.Cmd
	proxy   *redistest.Proxy
	ended   chan struct{} // closed when all output of the process is read

	tenures map[int64]*tenure // by ID
}

// A tenure is one hold of something, as its process has told of it.
type tenure struct {
	who, key, group        string
	asked, answered, until int64
	released, done         int64 // 0: not
	number                 uint64
}

// A grantOf is a grant to a process that may still live.
type grantOf struct {
	of *ship
	*tenure
}

// A phase begins with a fault.
type phase struct {
	fault string
	began int64
}

func (f *fleet) phase(fault string) {
	f.phases = append(f.phases, phase{fault, time.Now().UnixNano()})
}

// start starts a process, in place of the one with that library.
func (f *fleet) start(library int) {
	s := &ship{library: library, name: fmt.Sprintf("process %d", len(f.ships)), ended: make(chan struct{}), tenures: map[int64]*tenure{}}
	s.proxy = redistest.NewProxy(f.t, f.server.Addr())
	text, err := json.Marshal(orders{Work: f.share.work, Prefix: f.prefix, Addr: s.proxy.Addr(), Library: library})
	if err != nil {
		f.t.Fatal(err)
	}
	cmd, _, out := child.Start(f.t, programEnv+"="+string(text))
	s.cmd = cmd
	f.ships = append(f.ships, s)
	go func() {
		defer close(s.ended)
		f.listen(s, out)
	}()
}

func (f *fleet) listen(s *ship, out *bufio.Reader) {
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			return
		}
		f.hear(s, strings.TrimSuffix(line, "\n"))
	}
}

// employ runs the programs of a fleet in this process, with a strategy that is broken.
func (f *fleet) employ() (dismiss func()) {
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range fleetSize {
		s := &ship{name: fmt.Sprintf("program %d", i), tenures: map[int64]*tenure{}}
		p := &program{
			orders: orders{Work: f.share.work, Addr: f.server.Addr(), Prefix: f.prefix, Broken: true}, over: ctx,
			tell: func(line string) { f.hear(s, line) },
		}
		store := libraries[i].dial(f.t, f.server.Addr()).store
		all.Go(func() { p.run(store) })
	}
	return func() {
		end()
		all.Wait()
	}
}

func (f *fleet) hear(s *ship, line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var id, at int64
	g := &tenure{who: s.name}
	what, rest, _ := strings.Cut(line, " ")
	switch {
	case what == "error":
		f.t.Errorf("%s: %s", s.name, rest)
	case what == "refused" && scan(rest, "%d", &at):
		f.refused = append(f.refused, at)
	case what == "grant" && scan(rest, "%d %s %d %d %d %d %q", &id, &g.group, &g.asked, &g.answered, &g.until, &g.number, &g.key):
		s.tenures[id] = g
		f.told = append(f.told, g)
		select {
		case f.grants <- grantOf{s, g}:
		default:
		}
	case !scan(rest, "%d %d", &id, &at) || s.tenures[id] == nil: // it is from package testing
	case what == "until":
		s.tenures[id].until = max(s.tenures[id].until, at)
	case what == "release" && s.tenures[id].released == 0:
		s.tenures[id].released = at
	case what == "done":
		s.tenures[id].done = at
	}
}

// seen returns what was wrong in the store.
func (f *fleet) seen() []violation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.crowded)
}

// tenures returns a copy of what the processes have told.
func (f *fleet) tenures() (all []tenure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.told {
		all = append(all, *t)
	}
	return all
}

// end is until when the store must keep a tenure: until its release, or the end of its lease. A job
// that is done is kept for its minimum hold.
func (t tenure) end() int64 {
	if t.group == "job" && t.done > 0 {
		return locker.Until(time.Unix(0, t.asked), minHold).UnixNano()
	}
	if t.released > 0 {
		return min(t.released, t.until)
	}
	return t.until
}

// holdsOf returns the tenures of a group that had not ended when their processes learned of them.
func holdsOf(all []tenure, group string) (holds []history.Hold) {
	for _, t := range all {
		if t.group == group && t.answered < t.end() {
			holds = append(holds, history.Hold{Key: t.key, Who: t.who, Start: t.answered, End: t.end()})
		}
	}
	return holds
}

func (t tenure) grant() history.Grant {
	return history.Grant{Key: t.key, Who: t.who, Asked: t.asked, Answered: t.answered, Fence: t.number, Shared: t.group == "read"}
}

// died tells whether a process that was killed had not released what all others wait for.
func (f *fleet) died(g grantOf) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return g.released == 0 && (g.group == "write" || g.group == "lead")
}

// watch looks at the store until stop is called.
func (f *fleet) watch() (stop func() (looks int)) {
	over, looks := make(chan struct{}), make(chan int)
	go func() { looks <- f.look(over) }()
	return sync.OnceValue(func() int {
		close(over)
		return <-looks
	})
}

// look looks at what the store has until over is closed. It returns how often it had an answer.
func (f *fleet) look(over <-chan struct{}) (looks int) {
	if !f.share.together {
		return 0
	}
	c := redis.NewClient(&redis.Options{Addr: f.server.Addr()})
	defer c.Close()
	for {
		select {
		case <-over:
			return looks
		case <-time.After(10 * time.Millisecond):
		}
		key := keyOf(f.prefix, looks%shareKeys)
		found, err := unexpired.Run(context.Background(), c, []string{key}).Slice()
		if err != nil { // the server may be down
			continue
		}
		looks++
		n, group := found[0].(int64), found[1].(string)
		if group == "" && n > permits || group == "write" && n > 1 {
			f.mu.Lock()
			f.crowded = append(f.crowded, violation{at: time.Now().UnixNano(), text: fmt.Sprintf("%q has %d holds of the group %q", key, n, group)})
			f.mu.Unlock()
		}
	}
}

// unexpired returns how many holds a key has that have not ended, and their group.
var unexpired = redis.NewScript(`
local time = redis.call('TIME')
local n, group = 0, ''
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000), 'inf')) do
  local its = string.match(member, '^%zgroup:(.*)')
  n, group = its and n or n + 1, its or group
end
return {n, group}`)

// next returns the first grant that was answered after an instant.
func (f *fleet) next(after time.Time) grantOf {
	return f.nextThat(func(g grantOf) bool { return g.answered > after.UnixNano() })
}

// nextOf returns when key was granted first after an instant.
func (f *fleet) nextOf(key string, after time.Time) time.Time {
	return time.Unix(0, f.nextThat(func(g grantOf) bool { return g.key == key && g.answered > after.UnixNano() }).answered)
}

func (f *fleet) nextThat(fits func(grantOf) bool) grantOf {
	f.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case g := <-f.grants:
			if fits(g) {
				return g
			}
		case <-deadline:
			f.t.Fatalf("nothing was granted for %v", patience)
		}
	}
}

// more waits for n grants from now on.
func (f *fleet) more(n int) {
	f.t.Helper()
	now := time.Now()
	for range n {
		f.next(now)
	}
}

func (s *ship) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Error(err)
	}
}

func (f *fleet) kill(s *ship) {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.ended                // before Wait, which closes the pipe
	_ = s.cmd.Wait()
}

func (f *fleet) dismiss() {
	for _, s := range f.ships {
		f.kill(s)
	}
}

// String tells how the next one came.
func (f *fleet) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := ""
	if n := len(f.takeovers); n > 0 {
		text = fmt.Sprintf("; from the death of %d that excluded the others to the next grant, with a TTL of %v: p50, p99, max %s", n, leaseTTL, spread(f.takeovers))
	}
	if times, held := f.resignations(); len(times) > 0 {
		text += fmt.Sprintf("; from %d resignations to the next term: %s, with %d attempts that were held", len(times), spread(times), held)
	}
	return text
}

// resignations returns the times from the release of a term to the next one, and how many attempts
// were sent in between that were held.
func (f *fleet) resignations() (times []time.Duration, held int) {
	var terms []*tenure
	for _, t := range f.told {
		if t.group == "lead" {
			terms = append(terms, t)
		}
	}
	slices.SortFunc(terms, func(a, b *tenure) int { return int(a.answered - b.answered) })
	for i, t := range terms[:max(len(terms)-1, 0)] {
		if t.released == 0 || t.released > t.until {
			continue
		}
		next := terms[i+1].answered
		times = append(times, time.Duration(next-t.released))
		for _, at := range f.refused {
			if t.released < at && at < next {
				held++
			}
		}
	}
	return times, held
}
