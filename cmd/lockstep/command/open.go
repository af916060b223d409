package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies"
)

// The variables of the environment that name the stores, and what stands before every key.
const (
	storeVariable  = "LOCKSTEP_STORE"
	fileVariable   = "LOCKSTEP_STORE_FILE"
	prefixVariable = "LOCKSTEP_KEY_PREFIX" // as -key-prefix
)

// addresses are the URLs of the stores. There is no default: a job whose environment lacks
// LOCKSTEP_STORE must not run on every host, each with a store of its own.
func (c *cli) addresses() ([]string, error) {
	if slices.ContainsFunc(c.urls, hasPassword) {
		return nil, usage("-store has a password, and everybody who can list processes sees arguments: use %s or -store-file", storeVariable)
	}
	file := c.file
	if len(c.urls) == 0 && file == "" {
		if all := strings.Fields(os.Getenv(storeVariable)); len(all) > 0 {
			return all, nil
		}
		file = os.Getenv(fileVariable)
	}
	if file == "" {
		if len(c.urls) == 0 {
			return nil, usage("no store is given: set %s, for example to %s", storeVariable, c.exampleURL())
		}
		return c.urls, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, usage("the file of the stores: %w", err)
	}
	defer drop(f)
	info, err := f.Stat()
	if err != nil {
		return nil, usage("the file of the stores: %w", err)
	}
	all := slices.Clone([]string(c.urls))
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	switch {
	case len(all) == 0:
		return nil, usage("the file %s names no store: write one URL a line", file)
	case info.Mode()&0o004 != 0 && slices.ContainsFunc(all, hasPassword):
		c.say("everybody can read the password in %s: type chmod 600 %s", file, shellWord(file))
	}
	return all, nil
}

func (c *cli) exampleURL() string {
	for _, f := range c.program.Stores {
		if len(f.Examples) > 0 {
			return f.Examples[0]
		}
	}
	return "a URL"
}

// hasPassword tells whether a URL has a secret. One that can't be parsed may have.
func hasPassword(text string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return false
	}
	user := rest[:max(strings.LastIndexByte(rest, '@'), 0)]
	query := rest[strings.IndexByte(rest+"?", '?'):]
	if text, err := url.QueryUnescape(query); err == nil {
		query = text
	}
	return strings.Contains(user, ":") || user != "" && strings.HasPrefix(scheme, "nats") || // a token, without a name
		strings.Contains(strings.ToLower(query), "password") || hasPassword(query) // the value may be a URL
}

// public is a URL without user, password and parameters.
func public(text string) string {
	scheme, rest, _ := strings.Cut(text, "://")
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	return scheme + "://" + rest[:strings.IndexByte(rest+"?", '?')]
}

// open opens the stores. ttl is the longest that this call uses; 0: it takes no lock, so quarantine
// does not matter.
func (c *cli) open(ctx context.Context, ttl time.Duration) (stores []*Store, err error) {
	all, err := c.addresses()
	if err != nil {
		return nil, err
	}
	return c.openAll(ctx, all, ttl)
}

// openAll opens the stores at the URLs.
func (c *cli) openAll(ctx context.Context, all []string, ttl time.Duration) (stores []*Store, err error) {
	c.opened = all
	defer func() {
		if err != nil {
			shut(stores)
		}
	}()
	switch {
	case c.strategy != "" && !slices.Contains(usable(), c.strategy):
		return nil, usage("there is no strategy %q: choose one of %s", c.strategy, strings.Join(usable(), ", "))
	case c.timeout <= 0:
		return nil, usage("-timeout %v leaves no time for an answer: use 1s or more", c.timeout)
	case c.quorum != 0 && (c.quorum <= len(all)/2 || c.quorum > len(all)):
		return nil, usage("quorum %d of %d nodes is not within %d and %d (see -quorum)", c.quorum, len(all), len(all)/2+1, len(all))
	}
	o := Options{Prefix: c.prefix, MaxTTL: max(c.maxTTL, ttl), Strict: ttl > 0 && (c.quarantine || len(all) > 1)}
	for i, text := range all {
		scheme, _, ok := strings.Cut(text, "://")
		family := slices.IndexFunc(c.program.Stores, func(f Family) bool { return slices.Contains(f.Schemes, scheme) })
		if !ok || family < 0 {
			if !ok { // it may be a password
				return stores, usage("store %d is no URL: give one such as %s", i+1, c.exampleURL())
			}
			return stores, usage("store %d: the scheme %s is not known: this build has %s", i+1, scheme, strings.Join(c.schemes(), ", "))
		}
		if strings.Count(authority(text), "@") > 1 { // a client may take a part of the password for the host, and show it
			return stores, usage("store %d: percent-encode what is special in the name and the password, such as %%40 for @", i+1)
		}
		s, err := c.program.Stores[family].Open(ctx, text, o)
		switch {
		case errors.Is(err, context.DeadlineExceeded): // the client of etcd logs in when it is made
			return stores, &exitError{exitUnavailable, fmt.Errorf("store %d, %s: no answer: %w", i+1, public(text), err)}
		case err != nil:
			if parse := (*url.Error)(nil); errors.As(err, &parse) {
				err = parse.Err // without the URL
			}
			return stores, usage("store %d, %s: %w", i+1, public(text), err)
		}
		s.Name = public(text)
		c.ageless = c.ageless || s.Ageless
		stores = append(stores, s)
	}
	return stores, nil
}

func (c *cli) schemes() (all []string) {
	for _, f := range c.program.Stores {
		all = append(all, f.Schemes...)
	}
	return all
}

func shut(stores []*Store) {
	for _, s := range stores {
		if s.Close != nil {
			s.Close()
		}
	}
}

// ParseURL parses the URL of a store whose host may be a list, as in
// redis+cluster://h1:6379,h2:6379. It returns the URL with the first host, and the others. An error
// shows nothing of the text, which may have a password.
func ParseURL(text string) (u *url.URL, others []string, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	authority := authority(text)
	user, hosts := authority[:strings.LastIndexByte(authority, '@')+1], authority[strings.LastIndexByte(authority, '@')+1:]
	all := strings.Split(hosts, ",")
	if ok {
		u, err = url.Parse(scheme + "://" + user + all[0] + rest[len(authority):])
	}
	if !ok || err != nil {
		return nil, nil, errors.New("it is no URL: percent-encode what is special in the name and the password")
	}
	return u, all[1:], nil
}

// authority is what stands before the path: the user, the password and the hosts.
func authority(text string) string {
	_, rest, _ := strings.Cut(text, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return rest[:end]
	}
	return rest
}

// usable are the names of the strategies that fit a command which renews leases.
func usable() (names []string) {
	for _, name := range strategies.Names() {
		if !strings.HasPrefix(name, "legacy") {
			names = append(names, name)
		}
	}
	return names
}

// locker returns what takes locks in the stores, and the name of the strategy.
func (c *cli) locker(ctx context.Context, stores []*Store) (locker.Locker, string, error) {
	name := c.strategy
	if name == "" {
		name = preferred(stores)
	}
	if name == "semaphore" && c.permits < 1 {
		return nil, "", usage("the strategy semaphore needs -permits: how many may hold the lock at once")
	}
	config := strategies.Config{Strategy: name, Backend: "store", Quorum: c.quorum, Permits: c.permits}
	byName := map[string]backends.Store{}
	for i, s := range stores {
		addr := fmt.Sprintf("%d (%s)", i+1, s.Name)
		config.Addrs, byName[addr] = append(config.Addrs, addr), s.Backend
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	l, _, err := strategies.New(ctx, config, strategies.Backends{
		"store": func(_ context.Context, addr string) (backends.Store, func() error, error) {
			return byName[addr], nil, nil
		},
	})
	if nodes := (*backends.NodesError)(nil); errors.As(err, &nodes) && len(nodes.Unreachable) > 0 {
		return nil, "", &exitError{exitCode(err), err}
	}
	if err != nil {
		return nil, "", usage("%w", err)
	}
	return answered{l, c.timeout}, name, nil
}

// answered limits each attempt. The client library of etcd waits for a member for as long as it may,
// and a cron job would wait with it.
type answered struct {
	locker.Locker
	limit time.Duration
}

func (a answered) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	return a.Locker.Acquire(ctx, req)
}

func (a answered) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	return a.Locker.Transfer(ctx, from, req)
}

// preferred is the strategy with numbers, if the stores have them: then the work has a number to
// show to the resource.
func preferred(stores []*Store) string {
	fenced := true
	for _, s := range stores {
		_, numbers := s.Backend.(backends.NumberedStore)
		_, counts := s.Backend.(backends.FencedStore)
		fenced = fenced && (len(stores) == 1 && numbers || len(stores) > 1 && counts)
	}
	name := "single"
	if len(stores) > 1 {
		name = "redlock"
	}
	switch {
	case fenced && len(stores) == 1:
		return "fenced"
	case fenced:
		return "redlock-fenced"
	}
	return name
}
