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
