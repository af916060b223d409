// Package command is the lockstep command, for programs that build it with stores of their own. See
// the file main.go beside it.
package command

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A Program is a build of the command.
type Program struct {
	Stores []Family

	// Page makes the page that `lockstep serve` shows. If it is nil, there is no such command.
	Page func(Page) (http.Handler, error)
}

// A Page says what Program.Page shows.
type Page struct {
	Stores       []Store  // one, or the nodes of a quorum
	Prefix       string   // of the keys to show
	AllowRelease bool     // those who see the page may release locks by force
	By           string   // the label of the person, for a release by force
	Origins      []string // where a proxy shows the page, such as "https://locks.example.com"
}

// A Family is a kind of store.
type Family struct {
	Schemes  []string                                                               // of its URLs, such as "redis"
	Examples []string                                                               // URLs, for the help
	Open     func(ctx context.Context, url string, options Options) (*Store, error) // connects when the store is first used

	// Terms are pairs: what the errors of the store tell a programmer, such as an option of its package, and
	// what a user of the command can type for it. The first of two that begin alike counts.
	Terms []string
}

// Words replaces in a text what the terms of all families have.
func (p Program) Words() *strings.Replacer {
	all := []string{"redlock.WithQuorum", "-quorum", "locker.WithHolder", "-holder"}
	for _, f := range p.Stores {
		all = append(all, f.Terms...)
	}
	return strings.NewReplacer(all...)
}

// Options are what the flags say about a store.
type Options struct {
	Prefix string        // before every key
	MaxTTL time.Duration // the longest TTL of all programs that lock in the store
	Strict bool          // a server that has been up for less than MaxTTL grants nothing, if the store can do that
}

// A Store is a store that is open. What else it can do is up to the interfaces of package backends
// that Backend has: NumberedStore, FencedStore, Identifier, Inspector, Lister and Evictor.
type Store struct {
	Name    string // its URL without secrets
	Backend backends.Store
	// ListOwn lists all keys that have the form of a lock, of a store whose List refuses an empty prefix, and
	// counts those that it has passed over; nil: List lists all.
	ListOwn func(ctx context.Context, after string, limit int) (page backends.Page, others int, err error)
	Check   func(ctx context.Context) (Report, error) // nil: the store has no check
	Remedy  func(backends.Finding) string             // what to type against a finding; nil: nothing is known
	// Advise says what to do against an error of the store, and whether the server, or what is at its address,
	// has answered; nil: nothing is known.
	Advise  func(err error) (remedy string, answered bool)
	Install func(ctx context.Context) error // creates what the store needs, such as tables; nil: it needs nothing
	Schema  string                          // the SQL of Install; empty: there is none
	Grants  func(role string) string        // the SQL that lets a role lock; nil: it is not known
	Ageless bool                            // its numbers look like times in µs, and are none
	Close   func()
}

// A Report is what a store says of itself.
type Report struct {
	Server    string // kind and version
	Findings  backends.Findings
	ClockSkew time.Duration // of the server's wall clock; 0 if the store does not tell
}

// Main runs the command with the arguments of the process, and ends the process.
func Main(p Program) {
	switch filepath.Base(os.Args[0]) {
	case guardName:
		os.Exit(guardMain())
	case starterName:
		os.Exit(starterMain())
	case keeperName:
		os.Exit(keeperMain(p))
	}
	c := &cli{program: p, in: os.Stdin, out: os.Stdout, err: os.Stderr}
	os.Exit(c.main(os.Args[1:]))
}
