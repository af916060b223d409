package otellocker_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// setup is what a scene plays with. The zero value is one store in memory, strategy single, and the middleware around the wait.
type setup struct {
	nodes   int                                       // of a quorum; 0: one store, and no quorum
	numbers bool                                      // strategy fenced
	shared  func(backends.OrderedStore) locker.Locker // nil: single, or fenced

	notOutside     bool // no middleware around the wait
	aroundAttempts bool
	aroundNodes    bool
	elects         bool // there is a hook for terms
	forgotten      bool // the first extension says so: the garbage collector does not run in fake time

	watched   []otellocker.Option
	noMetrics bool // by what is in watched
	client    []locker.ClientOption
}

// scene is a Client with the middleware, its stores and faults, and another Client.
type scene struct {
	*testing.T
	*sdk
	ctx    context.Context // has the span "caller"
	caller trace.Span
	client *locker.Client
	other  *locker.Client // stands for another process; without middleware
	stores []*memory.Store
	faults []*backendtest.Faults // of each store; not for the other Client
	tokens tokens
	blind  bool // there are no metrics
	terms  func(context.Context, election.Term) func(election.End)

	mu   sync.Mutex
	kept []*locker.Lock // every Lock: one that became garbage would be counted as abandoned
}

const (
	key = "invoice/42"
	ttl = 30 * time.Second

	everSoLong = time.Hour // fake time
)

// play runs a scene in fake time until nothing goes on in the background, and checks rules for all
// scenes.
func play(t *testing.T, s setup, run func(x *scene), check ...func(x *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := newScene(t, s)
		stuck := time.AfterFunc(24*everSoLong, func() { panic("the scene does not end") })
		defer stuck.Stop()
		run(x)
		x.end()
		for _, c := range check {
			c(x)
		}
	})
}

func newScene(t *testing.T, s setup) *scene {
	x := &scene{T: t, sdk: newSDK(), blind: s.noMetrics}
	x.ctx, x.caller = x.app().Start(t.Context(), "caller")
	watch := otellocker.New(x.options(s.watched...)...)

	seen, unseen := make([]locker.Locker, max(s.nodes, 1)), make([]locker.Locker, max(s.nodes, 1))
	for i := range seen {
		store := memory.New(memory.WithMaxTTL(everSoLong))
		faults := new(backendtest.Faults)
		x.stores, x.faults = append(x.stores, store), append(x.faults, faults)
		switch {
		case s.shared != nil:
			seen[i], unseen[i] = s.shared(faults.Ordered(store)), s.shared(store)
		case s.numbers:
			seen[i], unseen[i] = fenced.New(faults.Numbered(store)), fenced.New(store)
		default:
			seen[i], unseen[i] = single.New(faults.Store(store)), single.New(store)
		}
		seen[i] = noting{seen[i], &x.tokens}
		if s.aroundNodes {
			address := otellocker.WithAttributes(attribute.String("server.address", fmt.Sprint("node", i+1)))
			seen[i] = contract.Wrap(seen[i], otellocker.New(x.options(append(slices.Clip(s.watched), address)...)...))
		}
	}
	inner, outside := seen[0], unseen[0]
	if s.nodes > 0 {
		inner, outside = x.quorum(seen), x.quorum(unseen)
	}
	if s.aroundAttempts {
		inner = contract.Wrap(inner, watch)
	}
	// A waiter sleeps until it is woken, so the number of its attempts is always the same.
	opts := []locker.ClientOption{locker.WithTTL(ttl), locker.WithBackoff(func(int, float64) time.Duration { return everSoLong })}
	x.other = locker.New(outside, opts...)
	if s.forgotten {
		opts = append(opts, locker.WithMiddleware(func(next locker.Locker) locker.Locker { return &forgetful{Locker: next} }))
	}
	if !s.notOutside {
		opts = append(opts, locker.WithMiddleware(watch))
	}
	x.client = locker.New(inner, append(opts, s.client...)...)
	if s.elects {
		x.terms = otellocker.Terms(x.options(s.watched...)...)
	}
	return x
}

func (x *scene) quorum(nodes []locker.Locker) locker.Locker {
	l, err := redlock.New(nodes)
	if err != nil {
		x.Fatal(err)
	}
	return l
}

// end waits until nothing goes on, and checks that no secret was emitted.
func (x *scene) end() {
	x.caller.End()
	time.Sleep(everSoLong)
	synctest.Wait()
	x.wantSound(x.T)
	x.wantNone(x.T, &x.tokens)
	if series := strings.Join(points(x.collect()), "\n"); strings.Contains(series, key) {
		x.Errorf("the key is on a metric:\n%s", series)
	}
}

// everything is all that was emitted, as one text.
func (s *sdk) everything() string {
	var text strings.Builder
	for _, span := range s.exported.GetSpans() {
		fmt.Fprintln(&text, line(span, nil))
		for _, e := range span.Events {
			fmt.Fprintln(&text, e.Name, e.Attributes)
		}
		for _, l := range span.Links {
			fmt.Fprintln(&text, l.SpanContext.TraceState().String(), l.Attributes)
		}
	}
	fmt.Fprintln(&text, strings.Join(points(s.collect()), "\n"))
	return text.String()
}

// wantNone checks that none of the tokens was emitted.
func (s *sdk) wantNone(t *testing.T, tokens *tokens) {
	t.Helper()
	if found := tokens.in(s.everything()); found != "" {
		t.Errorf("the token %s was emitted", found)
	}
}

// store is the only store.
func (x *scene) store() *memory.Store { return x.stores[0] }

// fault is the fault of all further calls of the first store.
func (x *scene) fault(op backendtest.Op, f backendtest.Fault) { x.faults[0].Set(op, f) }

// faultOnce are the faults of the next calls of the first store.
func (x *scene) faultOnce(op backendtest.Op, f ...backendtest.Fault) { x.faults[0].Once(op, f...) }

// held makes another Client hold the lock for d.
func (x *scene) held(d time.Duration) {
	x.Helper()
	l, err := x.other.Lock(x.Context(), key)
	if err != nil {
		x.Fatal(err)
	}
	synctest.Wait() // until all nodes of a quorum have the lease
	time.AfterFunc(d, func() {
		if err := l.Unlock(context.WithoutCancel(x.Context())); err != nil {
			x.Error(err)
		}
	})
}

func (x *scene) lock(opts ...locker.Option) *locker.Lock {
	x.Helper()
	l, err := x.client.Lock(x.ctx, key, opts...)
	if err != nil {
		x.Fatalf("Lock: %v", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.kept = append(x.kept, l)
	return l
}

func (x *scene) unlock(l *locker.Lock) {
	x.Helper()
	if err := l.Unlock(x.ctx); err != nil {
		x.Fatalf("Unlock: %v", err)
	}
}

// now checks the values of lock.waiting and lock.held at this moment.
func (x *scene) now(waiting, held int64) {
	x.Helper()
	synctest.Wait()
	if w, h := x.level("lock.waiting"), x.level("lock.held"); !x.blind && (w != waiting || h != held) {
		x.Errorf("%d wait and %d are held; want %d and %d", w, h, waiting, held)
	}
}

// level is the value of a counter, whatever its attributes are.
func (s *sdk) level(name string) (sum int64) {
	for _, m := range s.collect().Metrics {
		if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
			for _, p := range data.DataPoints {
				sum += p.Value
			}
		}
	}
	return sum
}

// tokens are all tokens of the scene.
type tokens struct {
	mu  sync.Mutex
	all map[string]bool
}

func (s *tokens) note(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]bool{}
	}
	s.all[token] = true
}

// drawn matches tokens of NewToken. Some tests use other tokens.
var drawn = regexp.MustCompile(`[A-Z2-7]{26,}`)

// in returns a token that is in text, or nothing.
func (s *tokens) in(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, run := range drawn.FindAllString(text, -1) {
		for from := range run {
			for to := from + 26; to <= len(run); to++ {
				if s.all[run[from:to]] {
					return run[from:to]
				}
			}
		}
	}
	return ""
}

// noting is a Locker that notes the tokens of its calls.
type noting struct {
	locker.Locker
	tokens *tokens
}

func (n noting) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	n.tokens.note(req.Token)
	return n.Locker.Acquire(ctx, req)
}

func (n noting) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	n.tokens.note(lease.Token)
	return n.Locker.Extend(ctx, lease, ttl)
}

func (n noting) Release(ctx context.Context, lease contract.Lease) error {
	n.tokens.note(lease.Token)
	return n.Locker.Release(ctx, lease)
}

// forgetful stands for a Client whose Lock became garbage.
type forgetful struct {
	locker.Locker
	told bool
}

func (f *forgetful) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if !f.told {
		ctx, f.told = calls.With(ctx, calls.Abandoned), true
	}
	return f.Locker.Extend(ctx, lease, ttl)
}
