package rueidisstore

import (
	"errors"
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestAConnectionThatBreaksEndsAReceiveForGood(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := open(t, at(proxy.Addr())).Subscribe(t.Context())
	defer s.Close()
	if err := s.Subscribe("a"); err != nil {
		t.Fatal(err)
	}
	if event, err := s.Receive(); err != nil || event.Kind != driver.EventSubscribed {
		t.Fatalf("Receive = %v, %v", event, err)
	}
	proxy.CutAll()
	for range 2 {
		if event, err := s.Receive(); err == nil || errors.As(err, new(*redisstore.ReplyError)) {
			t.Errorf("Receive = %v, %v", event, err)
		}
	}
}

// TestARefusedConnectionIsToldOnce: a Receive that returned it for ever would be taken for the
// answers to all requests there may be.
func TestARefusedConnectionIsToldOnce(t *testing.T) {
	s := &subscription{news: make(chan struct{}, 1)}
	s.fail(&redisstore.ReplyError{Text: "WRONGPASS no"})
	s.fail(errors.New("later"))
	if _, err := s.Receive(); !errors.As(err, new(*redisstore.ReplyError)) {
		t.Errorf("Receive = %v", err)
	}
	for range 2 {
		if _, err := s.Receive(); !errors.Is(err, errOpening) {
			t.Errorf("Receive = %v", err)
		}
	}
}
