package rivals

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies"
)

// A Strategy is one that rivals use.
type Strategy struct {
	Name    string   // in the matrix
	Configs []string // names of package strategies; rivals take them in turn
	Permits int      // of a semaphore
	Order   bool
}

// The strategies over one store.
var (
	Single            = Strategy{Name: "single", Configs: []string{"single"}}
	Fair              = Strategy{Name: "fair", Configs: []string{"fair"}}
	Fenced            = Strategy{Name: "fenced", Configs: []string{"fenced"}}
	Reentrant         = Strategy{Name: "reentrant", Configs: []string{"reentrant"}}
	Semaphore         = Strategy{Name: "semaphore of 2", Configs: []string{"semaphore"}, Permits: 2}
	SemaphoreInOrder  = Strategy{Name: "semaphore of 2, in order", Configs: []string{"semaphore"}, Permits: 2, Order: true}
	ReadersAndWriters = Strategy{Name: "rwlock", Configs: []string{"rw-writers", "rw-readers"}}
)

// All are the strategies over one store. [Campaign.Strategies] has those that the store carries.
func All() []Strategy {
	return []Strategy{Single, Fair, Fenced, Reentrant, Semaphore, SemaphoreInOrder, ReadersAndWriters}
}

// group is what its witnesses call the holds of a strategy by one of its names.
func (s Strategy) group(config string) string {
	switch config {
	case "rw-writers":
		return "write"
	case "rw-readers":
		return "read"
	}
	return "hold"
}

// judge returns what the tenures of one strategy prove.
func (s Strategy) judge(all []Tenure) (found []Violation) {
	switch {
	case slices.Contains(s.Configs, "rw-writers"):
		found = Mixtures(all)
	case s.Permits > 0:
		found = Crowds(all, "hold", s.Permits)
	case s.Name == Reentrant.Name:
		found = OverlapsOfOwners(all, "hold")
	default:
		found = Overlaps(all, "hold")
	}
	if slices.ContainsFunc(all, func(t Tenure) bool { return t.Number > 0 }) {
		found = append(found, Inversions(all)...)
	}
	return found
}

// orders are those of a rival.
type orders struct {
	Rival      int
	Addr       string
	TTL        time.Duration
	Kept       bool
	Strategies []Strategy
}

// hands is how many goroutines of a rival want the lock of each strategy.
const hands = 2

// run opens the store and wants the locks of all strategies until over has ended.
func (o orders) run(over context.Context, open strategies.Open, tell func(line string)) error {
	store, closeStore, err := open(over, o.Addr)
	if err != nil {
		return err
	}
	if closeStore != nil {
		defer func() { _ = closeStore() }()
	}
	opened := strategies.Backends{"store": func(context.Context, string) (backends.Store, func() error, error) { return store, nil, nil }}
	var all sync.WaitGroup
	defer all.Wait()
	for _, s := range o.Strategies {
		name := s.Configs[o.Rival%len(s.Configs)]
		l, _, err := strategies.New(over, strategies.Config{
			Strategy: name, Backend: "store", Addrs: []string{o.Addr}, Permits: s.Permits, Order: s.Order,
		}, opened)
		if err != nil {
			return err
		}
		opts := []locker.ClientOption{locker.WithTTL(o.TTL)}
		if o.Kept {
			opts = append(opts, locker.WithoutRenewal())
		}
		locks := locker.New(Witness{l, s.group(name), tell}, opts...)
		for hand := range hands {
			// a process that takes the place of one that was killed is another owner
			ctx := locker.ContextWithOwner(over, fmt.Sprintf("hand %d of rival %d, %s", hand, o.Rival, crand.Text()))
			all.Go(func() {
				Want(ctx, locks, Wants{Key: func() string { return s.Name }, Work: o.work, Wait: max(time.Second, o.TTL), Tell: tell})
			})
		}
	}
	return nil
}

// work is how long a hold lasts: a moment, or in one of three cases from half a TTL to two.
func (o orders) work() time.Duration {
	switch {
	case o.Kept:
		return o.TTL/2 + rand.N(o.TTL/2)
	case rand.IntN(3) > 0:
		return rand.N(o.TTL / 50)
	}
	return o.TTL/2 + rand.N(3*o.TTL/2)
}

// Wants say what [Want] wants.
type Wants struct {
	Key  func() string
	Work func() time.Duration // how long a hold lasts
	Wait time.Duration        // for one lock
	Tell func(line string)
}

// Want holds locks again and again until over has ended.
func Want(over context.Context, locks *locker.Client, w Wants) {
	for over.Err() == nil {
		l, err := locks.Lock(over, w.Key(), locker.WithWait(w.Wait))
		if err != nil {
			if errors.Is(err, locker.ErrLost) {
				w.Tell(fmt.Sprint("error lost, before it was granted: ", err))
			}
			Rest(over, rand.N(10*time.Millisecond)) // the server may be down
			continue
		}
		Rest(l.Context(), w.Work())
		_ = l.Unlock(context.Background()) // if it fails, the hold ends with its lease
	}
}

// Rest sleeps, but not after the end of ctx.
func Rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

const ordersEnv = "LOCKSTEP_RIVAL"

// Process does the work of a rival if this process was started for it, and returns whether it was.
// It is for TestProcess of a module: see [Campaign.Processes].
func Process(t *testing.T, open strategies.Open) bool {
	text := os.Getenv(ordersEnv)
	if text == "" {
		return false
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	EndWithParent()
	if err := o.run(context.Background(), open, func(line string) { fmt.Println(line) }); err != nil {
		fmt.Println("error", err)
	}
	return true
}

// EndWithParent ends this process when the test that started it ends.
func EndWithParent() {
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(1)
	}()
}
