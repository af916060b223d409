// Package pagelocker is a page for people: which locks are held, by whom and for how long, and who
// waits for them. It follows the locks of this process, and asks a store about those of others.
//
//	p := pagelocker.New(pagelocker.WithStore(store, "billing/"))
//	locks := locker.New(single.New(store),
//		locker.WithHolder("api-7f9c/4711"), locker.WithMiddleware(p.Middleware))
//	mux.Handle("/debug/locks/", p)
//	server.RegisterOnShutdown(p.Close)
//
// Without [WithStore] it shows what this process holds and waits for. Without the middleware it
// shows what the store knows. Paths:
//
//	…/                    the locks; ?q= finds a text in keys and holders, ?sort= is waiters, key,
//	                      age or left, ?page= is from 1
//	…/?key=NAME           one lock: its holders, its queue and its history
//	…/?format=json        the same as JSON, with or without ?key=; also with Accept: application/json
//	…/?view=store         how the store answers, and what its check has found
//	…/metrics             the format of Prometheus
//
// All links are relative, so any prefix works, also behind a proxy and with http.StripPrefix. The
// path must end with a slash. A browser gets changes as server-sent events. Without script the
// page loads itself again every few seconds.
//
// # What it shows
//
// Holds of this process are exact. Those of others are what [backends.Lister] said when it was last
// asked, so a hold that is shorter than the interval may be missed, and its begin is when it was
// first seen. If the number of its grant is a time, that is the earliest begin. The history of others
// begins when somebody looks. It is in memory, and bounded: the last 40 holds of a key, and the last
// 1,000 keys that nobody holds. What the store has not told is shown as not known, never as free.
//
// Holders have names if their Client has locker.WithHolder. A token never reaches this package's
// memory: it keeps the label in front of it, and a Print (see [backends.Hold]).
//
// # What it costs
//
// The store is asked once per interval for all viewers, and only while somebody looks or metrics
// are read. A Lock and Unlock cost two or three short critical sections more: BenchmarkLockUnlock
// has the figures.
//
// # Who may look
//
// The page shows keys and labels to everybody who can reach it. It has no login: wrap it in the
// middleware of your service, or listen on the loopback. It changes nothing, unless [WithRelease]
// says who may.
package pagelocker

import (
	"context"
	"crypto/rand"
	"errors"
	"html/template"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A Page is an http.Handler, and the middleware that feeds it. It needs no Close: it runs nothing
// while nobody looks. Safe for concurrent use.
type Page struct {
	config
	registry registry
	colors   colors
	polls    polls
	merged   merged
	streams  streams
	dirty    chan struct{} // has room for one: something may have changed
	looking  atomic.Bool   // a stream is open
	boot     string        // names this Page in the ids of events
	crossing *http.CrossOriginProtection
	wrong    error // of WithTrustedOrigins
	template *template.Template
	close    sync.Once
	closed   chan struct{}
}

// New returns a Page that shows nothing yet.
func New(opts ...Option) *Page {
	p := &Page{
		config: config{interval: 2 * time.Second, maxStreams: 50},
		dirty:  make(chan struct{}, 1), closed: make(chan struct{}),
		boot: rand.Text()[:8], crossing: http.NewCrossOriginProtection(),
	}
	for _, opt := range opts {
		if opt != nil {
			opt(&p.config)
		}
	}
	for _, origin := range p.origins {
		if err := p.crossing.AddTrustedOrigin(origin); err != nil {
			p.wrong = errors.Join(p.wrong, err)
		}
	}
	p.colors.known = map[string]int{}
	p.template = parsed(p.colors.of)
	p.registry.byKey = map[string]*keyed{}
	p.registry.prints, p.registry.lapse = p.store != nil, lapse(p.interval)
	p.registry.changed = p.changed
	p.polls.inspections = map[string]*inspection{}
	p.streams.views = map[query]*view{}
	return p
}

// Close ends all streams, so that http.Server.Shutdown need not wait for them. The page itself
// still answers.
func (p *Page) Close() { p.close.Do(func() { close(p.closed) }) }

// changed wakes the loop of the streams, if there is one.
func (p *Page) changed() {
	if p.looking.Load() {
		select {
		case p.dirty <- struct{}{}:
		default:
		}
	}
}

// Middleware is for locker.WithMiddleware, of any number of Clients. It sees a Lock with its wait.
// With [contract.Wrap] it would see each attempt instead.
func (p *Page) Middleware(next locker.Locker) locker.Locker {
	return &followed{Locker: next, registry: &p.registry, begin: p.registry.begin}
}

type followed struct {
	locker.Locker
	registry *registry
	begin    func(context.Context, contract.Lease) (context.Context, func(time.Time, error))
}

// Acquire is a wait until it returns.
func (f *followed) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	w := f.registry.wait(req)
	defer f.registry.waited(w) // deferred in case the Locker panics
	lease, err := f.Locker.Acquire(ctx, req)
	f.follow(ctx, err)
	return lease, err
}

// Transfer is a wait, too.
func (f *followed) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	w := f.registry.wait(req)
	defer f.registry.waited(w)
	lease, err := f.Locker.Transfer(ctx, from, req)
	f.follow(ctx, err)
	return lease, err
}

func (f *followed) follow(ctx context.Context, err error) {
	if err == nil {
		contract.CallOf(ctx).OnHold(f.begin)
	}
}

// Extend moves the end of a hold.
func (f *followed) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	extended, err := f.Locker.Extend(ctx, lease, ttl)
	f.registry.extended(lease, extended.Expires, ttl, err == nil, contract.CallOf(ctx).Abandoned())
	return extended, err
}
