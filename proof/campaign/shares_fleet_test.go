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

	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"github.com/redis/go-redis/v9"
)

// A fleet has the processes of one experiment, and what they have told.
type fleet struct {
	t      *testing.T
	share  share
	prefix string // of the keys
	server *redistest.Server
	ships  []*ship
	record *rivals.Record

	phases    rivals.Phases
	takeovers []time.Duration // from the death of a holder that excluded the others

	mu      sync.Mutex
	crowded []rivals.Violation // what the store had
}

// A ship is one process, with the proxy between it and the server.
type ship struct {
	library int
	name    string
	cmd     *exec.Cmd
	proxy   *redistest.Proxy
	ended   chan struct{} // closed when all output of the process is read
}

// A grantOf is a grant to a process that may still live.
type grantOf struct {
	of *ship
	rivals.Tenure
}

// start starts a process, in place of the one with that library.
func (f *fleet) start(library int) {
	s := &ship{library: library, name: fmt.Sprintf("process %d", len(f.ships)), ended: make(chan struct{})}
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
		f.record.Hear(s.name, strings.TrimSuffix(line, "\n"))
	}
}

// employ runs the programs of a fleet in this process, with a strategy that is broken.
func (f *fleet) employ() (dismiss func()) {
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range fleetSize {
		s := &ship{name: fmt.Sprintf("program %d", i)}
		p := &program{
			orders: orders{Work: f.share.work, Addr: f.server.Addr(), Prefix: f.prefix, Broken: true}, over: ctx,
			tell: func(line string) { f.record.Hear(s.name, line) },
		}
		store := libraries[i].dial(f.t, f.server.Addr()).store
		all.Go(func() { p.run(store) })
	}
	return func() {
		end()
		all.Wait()
	}
}

// seen returns what was wrong in the store.
func (f *fleet) seen() []rivals.Violation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.crowded)
}

// endOf is until when the store must keep a tenure. A job that is done is kept for its minimum hold.
func endOf(t rivals.Tenure) int64 {
	if t.Group == "job" && t.Done > 0 {
		return contract.Until(time.Unix(0, t.Asked), minHold).UnixNano()
	}
	return t.End()
}

// died tells whether a process that was killed had not released what all others wait for.
func (f *fleet) died(g grantOf) bool {
	return f.record.Now(g.Tenure).Released == 0 && (g.Group == "write" || g.Group == "lead")
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
			f.crowded = append(f.crowded, rivals.Violation{At: time.Now().UnixNano(), Text: fmt.Sprintf("%q has %d holds of the group %q", key, n, group)})
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
	f.t.Helper()
	t := f.record.Next(f.t, after, func(rivals.Tenure) bool { return true })
	i := slices.IndexFunc(f.ships, func(s *ship) bool { return s.name == t.Who })
	return grantOf{f.ships[i], t}
}

// nextOf returns when key was granted first after an instant.
func (f *fleet) nextOf(key string, after time.Time) time.Time {
	f.t.Helper()
	return time.Unix(0, f.record.Next(f.t, after, func(t rivals.Tenure) bool { return t.Key == key }).Answered)
}

// more waits for n grants from now on.
func (f *fleet) more(n int) {
	f.t.Helper()
	now, seen := time.Now(), 0
	f.record.Next(f.t, now, func(rivals.Tenure) bool { seen++; return seen == n })
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
	terms := slices.DeleteFunc(f.record.Tenures(), func(t rivals.Tenure) bool { return t.Group != "lead" })
	slices.SortFunc(terms, func(a, b rivals.Tenure) int { return int(a.Answered - b.Answered) })
	for i, t := range terms[:max(len(terms)-1, 0)] {
		if t.Released == 0 || t.Released > t.Until {
			continue
		}
		next := terms[i+1].Answered
		times = append(times, time.Duration(next-t.Released))
		for _, at := range f.record.Refused() {
			if t.Released < at && at < next {
				held++
			}
		}
	}
	return times, held
}
