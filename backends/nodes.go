package backends

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An Identifier is a store that knows which server it is on.
type Identifier interface {
	Identify(ctx context.Context) (Identity, error)
}

// Identity shows whether a server is an independent node.
type Identity struct {
	Server string // the same for one running server, whatever its address; never empty
	Role   string // "master" takes writes; any other follows another server; empty: unknown
}

// CheckNodes asks all nodes of a quorum at once for their identity. A quorum needs nodes that are
// distinct servers, and none that follows another. The error is a [*NodesError]. A caller that can
// do with fewer nodes looks at its Unreachable.
func CheckNodes(ctx context.Context, nodes ...Identifier) error {
	type answer struct {
		node int
		Identity
		err error
	}
	answers := make(chan answer, len(nodes))
	for i, n := range nodes {
		go func() {
			id, err := n.Identify(ctx)
			answers <- answer{i, id, err}
		}()
	}
	e := &NodesError{Unreachable: map[int]error{}}
	found := make([]answer, len(nodes))
	silent := make(map[int]bool)
	for i := range found {
		silent[i] = true
	}
	for heard := 0; heard < len(nodes) && ctx.Err() == nil; heard++ {
		select {
		case a := <-answers:
			found[a.node] = a
			delete(silent, a.node)
		case <-ctx.Done(): // a client library may not obey ctx
		}
	}
	for i := range silent {
		found[i] = answer{node: i, err: fmt.Errorf("no answer: %w", ctx.Err())}
	}
	first := map[string]int{}
	for i, a := range found {
		if a.err != nil {
			e.Unreachable[i] = a.err
			continue
		}
		if other, twice := first[a.Server]; twice {
			e.Same = append(e.Same, [2]int{other, i})
		} else {
			first[a.Server] = i
		}
		if a.Role != "master" && a.Role != "" {
			e.Followers = append(e.Followers, i)
		}
	}
	if len(e.Same)+len(e.Followers)+len(e.Unreachable) == 0 {
		return nil
	}
	return e
}

// NodesError lists, by index, the nodes that are not independent or can't be reached.
type NodesError struct {
	Same        [][2]int // pairs that are one server, which would count twice
	Followers   []int    // replicas of another server
	Unreachable map[int]error
}

func (e *NodesError) Error() string {
	var parts []string
	for _, pair := range e.Same {
		parts = append(parts, fmt.Sprintf("nodes %d and %d are the same server", pair[0]+1, pair[1]+1))
	}
	for _, i := range e.Followers {
		parts = append(parts, fmt.Sprintf("node %d is a replica", i+1))
	}
	for _, i := range slices.Sorted(maps.Keys(e.Unreachable)) {
		why := "unreachable"
		if err := e.Unreachable[i]; err != nil {
			why = err.Error()
		}
		parts = append(parts, fmt.Sprintf("node %d: %s", i+1, why))
	}
	return "lockstep: check nodes: " + strings.Join(parts, "; ")
}

// Unwrap returns the errors of the unreachable nodes.
func (e *NodesError) Unwrap() []error {
	errs := make([]error, 0, len(e.Unreachable))
	for _, i := range slices.Sorted(maps.Keys(e.Unreachable)) {
		if err := e.Unreachable[i]; err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
