package pagelocker

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Option changes what [New] returns.
type Option func(*config)

type config struct {
	store      Store
	prefixes   []string
	interval   time.Duration
	maxStreams int
	watched    []string
	check      func(context.Context) (Check, error)
	evictor    backends.Evictor
	authorize  func(*http.Request) (by string, ok bool)
	origins    []string
	logger     *slog.Logger
}

// A Store tells who holds which keys.
type Store interface {
	backends.Inspector
	backends.Lister
}

// WithStore shows all keys of a store that begin with one of the prefixes, whoever holds them.
// Without a prefix it shows all keys; most stores on a server refuse that, see [backends.Lister].
// Other keys of the store are not asked for, unless this process holds them or waits for them, or has
// done so lately.
func WithStore(store Store, prefixes ...string) Option {
	if len(prefixes) == 0 {
		prefixes = []string{""}
	}
	return func(c *config) { c.store, c.prefixes = store, prefixes }
}

// WithCheck shows what a check of the store finds, what that means for locks, and what to do about it:
//
//	pagelocker.WithCheck(func(ctx context.Context) (pagelocker.Check, error) {
//		r, err := store.Check(ctx)
//		return pagelocker.Check{Server: r.Version, Findings: r.Findings, ClockSkew: r.ClockSkew}, err
//	})
//
// It is called once a minute while somebody looks at the locks, the store or the metrics.
func WithCheck(check func(context.Context) (Check, error)) Option {
	return func(c *config) { c.check = check }
}

// Check is what a store says of itself.
type Check struct {
	Server    string // kind and version
	Findings  backends.Findings
	ClockSkew time.Duration                 // of its wall clock; 0 if it does not tell
	Remedy    func(backends.Finding) string // what to do about a finding; nil: nothing is known
}

// WithInterval is how often the store is asked while somebody looks: 2 s by default. Zero and less
// change nothing.
func WithInterval(d time.Duration) Option {
	return func(c *config) {
		if d > 0 {
			c.interval = d
		}
	}
}

// WithMaxStreams is how many browsers get changes as events at a time: 50 by default. More browsers
// load the page again instead.
func WithMaxStreams(n int) Option { return func(c *config) { c.maxStreams = n } }

// WithRelease lets a person end a hold by force, if authorize returns true for the request. The
// page then has a button, which sends the Print of the hold that the person has seen. See
// [backends.Evictor] for what happens to the hold. A request from another origin is refused before
// authorize is called: see [WithTrustedOrigins].
//
// authorize must know the person, by a session or a proxy that sets a header. A function that
// always returns true lets everybody who can reach the page end every hold. by names the person: it is
// the label under which the key stays closed, and stands in the log. In the label, "@" is " at ". If
// it is no label all the same ([backends.ValidHolder]), "the page of locks" takes its place.
func WithRelease(e backends.Evictor, authorize func(*http.Request) (by string, ok bool)) Option {
	return func(c *config) { c.evictor, c.authorize = e, authorize }
}

// WithTrustedOrigins accepts a release from pages at these origins, such as "https://locks.example.com".
// It is needed behind a proxy that does not pass the name of the host on, as nginx without
// `proxy_set_header Host $host`: the browser then names an origin that the request is not for. An origin
// has a scheme and a host, with a port unless it is that of the scheme.
func WithTrustedOrigins(origins ...string) Option {
	return func(c *config) { c.origins = append(c.origins, origins...) }
}

// WithLogger logs each release by force that authorize has accepted, and what became of it, at Warn.
func WithLogger(logger *slog.Logger) Option { return func(c *config) { c.logger = logger } }

// WithKeyMetrics adds metrics with these keys as a label. Without it no metric has a key.
func WithKeyMetrics(keys ...string) Option { return func(c *config) { c.watched = keys } }
