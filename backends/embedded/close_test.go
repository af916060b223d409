package embedded

import (
	"errors"
	"net"
	"sync"
	"testing"
)

// A pool of a client library dials by itself, also while the server is closed. Run it with -race.
func TestADialBesideCloseStartsNothing(t *testing.T) {
	s := New()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				c, err := s.Dial(t.Context(), "", "")
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.Close()
			}
		})
	}
	s.Close()
	all.Wait()
	if c, err := s.Dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial after Close = %v, %v", c, err)
	}
}

func TestTheAddressOutlivesTheServer(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	before := s.Addr()
	s.Close()
	if after := s.Addr(); after != before || before == "" {
		t.Errorf("Addr = %q, and after Close %q", before, after)
	}
	unreachable := New()
	defer unreachable.Close()
	if addr := unreachable.Addr(); addr != "" {
		t.Errorf("Addr of a server that only Dial reaches = %q", addr)
	}
}
