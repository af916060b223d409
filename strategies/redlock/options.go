package redlock

import (
	"reflect"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// Defaults of the options.
const (
	DefaultNodeLimit = 500 * time.Millisecond
	DefaultDrift     = 0.01
)

// Option changes what [New] and [NewFenced] return.
type Option func(*config)

type config struct {
	need  int
	drift float64
	limit time.Duration
}

// WithQuorum sets how many nodes must hold the lock, from n/2+1, the default, to n. The package
// comment says what each choice tolerates.
func WithQuorum(w int) Option { return func(c *config) { c.need = w } }

// WithDrift sets how far the clocks of nodes and holder may drift apart, as a part of the TTL. The
// lease ends earlier for the holder by that part, and by 2 ms for the rounding of expiries. The
// default is [DefaultDrift]. It can't be less, since the nodes' own leases have this margin.
func WithDrift(factor float64) Option { return func(c *config) { c.drift = factor } }

// WithNodeLimit sets how long Acquire, Extend and Release wait for a node. The default is
// [DefaultNodeLimit]. The wait is never longer than the TTL, or than what is left of the lease. The
// limit need not be small: a node that does not answer costs time only if the others do not make a
// quorum.
func WithNodeLimit(d time.Duration) Option { return func(c *config) { c.limit = d } }

func invalidf(format string, args ...any) error {
	return backends.Invalidf("lockstep: redlock: "+format, args...)
}

func build(nodes []*node, opts []Option) (locker.Locker, error) {
	n := len(nodes)
	c := config{need: n/2 + 1, drift: DefaultDrift, limit: DefaultNodeLimit}
	for i, opt := range opts {
		if opt == nil {
			return nil, invalidf("option %d is nil", i+1)
		}
		opt(&c)
	}
	switch {
	case n == 0:
		return nil, invalidf("no nodes: pass one Locker or store for each server")
	case c.need < n/2+1 || c.need > n:
		return nil, invalidf("quorum %d of %d nodes is not within %d and %d (see redlock.WithQuorum)", c.need, n, n/2+1, n)
	case !(c.drift >= DefaultDrift && c.drift < 1):
		return nil, invalidf("drift %v is not within %v and 1 (see redlock.WithDrift)", c.drift, DefaultDrift)
	case c.limit < time.Millisecond:
		return nil, invalidf("node limit %v is under the minimum of %v (see redlock.WithNodeLimit)", c.limit, time.Millisecond)
	}
	for i, node := range nodes {
		node.index = i
	}
	return &quorum{config: c, nodes: nodes}, nil
}

// distinct checks that no node is nil or occurs twice.
func distinct[N any](nodes []N) error {
	for i, n := range nodes {
		if instance.IsNil(n) {
			return invalidf("node %d is nil", i+1)
		}
		for j := range i {
			if same(n, nodes[j]) {
				return invalidf("nodes %d and %d are the same, and would count twice: use a server for each", j+1, i+1)
			}
		}
	}
	return nil
}

// same reports whether a and b are equal; values that can't be compared are not.
func same(a, b any) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}
