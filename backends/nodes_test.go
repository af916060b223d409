package backends_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

type node struct {
	server, role string
	err          error
}

func (n node) Identify(context.Context) (backends.Identity, error) {
	return backends.Identity{Server: n.server, Role: n.role}, n.err
}

func check(nodes ...backends.Identifier) *backends.NodesError {
	var found *backends.NodesError
	errors.As(backends.CheckNodes(context.Background(), nodes...), &found)
	return found
}

func TestDistinctMastersAreAQuorum(t *testing.T) {
	for _, nodes := range [][]backends.Identifier{
		nil,
		{node{server: "a", role: "master"}},
		{node{server: "a", role: "master"}, node{server: "b"}, node{server: "c", role: "master"}},
	} {
		if err := check(nodes...); err != nil {
			t.Errorf("CheckNodes(%v) = %v", nodes, err)
		}
	}
}

func TestCheckNodesNamesWhatIsNoNode(t *testing.T) {
	down := errors.New("connection refused")
	err := check(
		node{server: "a", role: "master"},
		node{server: "b", role: "slave"},
		node{server: "a", role: "master"},
		node{err: down},
		node{server: "a", role: "master"},
		node{server: "a", err: down},
	)
	if err == nil {
		t.Fatal("CheckNodes = nil")
	}
	if want := [][2]int{{0, 2}, {0, 4}}; !reflect.DeepEqual(err.Same, want) {
		t.Errorf("Same = %v, want %v", err.Same, want)
	}
	if want := []int{1}; !reflect.DeepEqual(err.Followers, want) {
		t.Errorf("Followers = %v, want %v", err.Followers, want)
	}
	if len(err.Unreachable) != 2 || err.Unreachable[3] == nil || err.Unreachable[5] == nil || !errors.Is(err, down) {
		t.Errorf("Unreachable = %v", err.Unreachable)
	}
	for _, part := range []string{"nodes 1 and 3 are the same server", "nodes 1 and 5", "node 2 is a replica", "node 4: connection refused", "node 6: "} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "node 1:") {
		t.Errorf("%q names a good node", err)
	}
}

// together answers when all its nodes have been asked.
type together struct {
	node
	asked chan<- struct{}
	all   <-chan struct{}
}

func (n together) Identify(ctx context.Context) (backends.Identity, error) {
	n.asked <- struct{}{}
	select {
	case <-n.all:
		return n.node.Identify(ctx)
	case <-ctx.Done():
		return backends.Identity{}, ctx.Err()
	}
}

func TestNodesAreAskedAtOnceAndWithTheCtx(t *testing.T) {
	asked, all := make(chan struct{}), make(chan struct{})
	nodes := []backends.Identifier{
		together{node{server: "a"}, asked, all}, together{node{server: "b"}, asked, all}, together{node{server: "c"}, asked, all},
	}
	go func() {
		for range nodes {
			<-asked
		}
		close(all)
	}()
	if err := backends.CheckNodes(t.Context(), nodes...); err != nil {
		t.Errorf("CheckNodes = %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	silent := together{node{server: "a"}, make(chan struct{}, 1), nil}
	cancel()
	if err := backends.CheckNodes(ctx, silent); !errors.Is(err, context.Canceled) {
		t.Errorf("CheckNodes with a ctx that is done = %v", err)
	}
}

func TestANodesErrorThatDoesNotSayWhyNamesTheNode(t *testing.T) {
	down := errors.New("connection refused")
	err := &backends.NodesError{Unreachable: map[int]error{4: down, 1: nil}}
	if want := "lockstep: check nodes: node 2: unreachable; node 5: connection refused"; err.Error() != want {
		t.Errorf("%q; want %q", err, want)
	}
	if !errors.Is(err, down) || len(err.Unwrap()) != 1 {
		t.Errorf("Unwrap = %v", err.Unwrap())
	}
}

type sleeper struct{}

func (sleeper) Identify(context.Context) (backends.Identity, error) {
	time.Sleep(time.Minute)
	return backends.Identity{}, errors.New("x")
}

func TestCheckNodesReturnsWithItsCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := backends.CheckNodes(ctx, sleeper{}, sleeper{})
		var found *backends.NodesError
		if took := time.Since(began); took != time.Second || !errors.As(err, &found) || len(found.Unreachable) != 2 {
			t.Errorf("CheckNodes = %v after %v", err, took)
		}
		time.Sleep(time.Hour)
	})
}
