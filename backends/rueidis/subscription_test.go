package rueidis

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

func TestASubscriptionTellsItsEventsApart(t *testing.T) {
	server := redistest.Start(t)
	resp2 := at(server.Addr())
	resp2.AlwaysRESP2 = true
	for protocol, e := range map[string]executor{"RESP2": open(t, resp2), "RESP3": open(t, at(server.Addr()))} {
		s := e.Subscribe(t.Context())
		for _, step := range []struct {
			request func() error
			want    driver.Event
		}{
			{s.Ping, driver.Event{Kind: driver.EventPong}}, // before anything is subscribed
			{func() error { return s.Subscribe("a") }, driver.Event{Kind: driver.EventSubscribed, Channel: "a"}},
			{func() error { return s.Subscribe("b") }, driver.Event{Kind: driver.EventSubscribed, Channel: "b"}},
			{s.Ping, driver.Event{Kind: driver.EventPong}},
			{func() error { _, err := server.Do("PUBLISH", "b", "text"); return err }, driver.Event{Kind: driver.EventMessage, Channel: "b", Payload: "text"}},
			{func() error { return s.Unsubscribe("a") }, driver.Event{Kind: driver.EventUnsubscribed, Channel: "a"}},
			{func() error { return s.Unsubscribe("b") }, driver.Event{Kind: driver.EventUnsubscribed, Channel: "b"}},
			{func() error { return s.Unsubscribe("b") }, driver.Event{Kind: driver.EventUnsubscribed, Channel: "b"}}, // once more
		} {
			if err := step.request(); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Receive(); got != step.want || err != nil {
				t.Errorf("%s: Receive = %+v, %v, want %+v", protocol, got, err, step.want)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
}

func TestARefusalLeavesTheSubscriptionUsableAndInOrder(t *testing.T) {
	server := redistest.Start(t)
	if _, err := server.Do("ACL", "SETUSER", "locks", "on", ">any", "+@all", "-ping", "-unsubscribe", "resetchannels", "&a", "&c*"); err != nil {
		t.Fatal(err)
	}
	for _, resp2 := range []bool{false, true} {
		o := at(server.Addr())
		o.Username, o.Password, o.AlwaysRESP2 = "locks", "any", resp2
		refuses(t, open(t, o).Subscribe(t.Context()))
	}
}

func refuses(t *testing.T, s driver.Subscription) {
	t.Helper()
	defer s.Close()
	var want []string
	ask := func(answer string, err error) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, answer)
	}
	for i := range 100 { // some of them together, as it happens
		ask("NOPERM", s.Subscribe("b"))
		ask("a", s.Subscribe("a"))
		ask("NOPERM", s.Ping())
		channel := fmt.Sprint("c", i)
		ask(channel, s.Subscribe(channel))
		ask("NOPERM", s.Unsubscribe("a"))
	}
	var got []string
	for range want {
		event, err := s.Receive()
		if refused := (*redisstore.ReplyError)(nil); errors.As(err, &refused) {
			got = append(got, refused.Code())
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Channel)
	}
	if !slices.Equal(got, want) {
		t.Errorf("events: %v", got)
	}
}

func TestCloseEndsAReceive(t *testing.T) {
	server := redistest.Start(t)
	for _, paused := range []bool{false, true} {
		s := open(t, at(server.Addr())).Subscribe(t.Context())
		if err := s.Close(); err != nil {
			t.Errorf("Close before anything = %v", err)
		}
		if err := s.Subscribe("a"); err != nil {
			t.Fatal(err)
		}
		received := make(chan error)
		go func() {
			for {
				if _, err := s.Receive(); err != nil {
					received <- err
					return
				}
			}
		}()
		if paused {
			server.Pause()
			if err := s.Ping(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		<-received
		if err := s.Subscribe("b"); err == nil {
			t.Error("Subscribe after Close = nil")
		}
		_ = s.Close() // again, as the family does
		if paused {
			server.Resume()
		}
	}
}

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

// TestARefusedConnectionIsToldOnce: a Receive that returned it for ever would be taken for the answers to all requests there
// may be.
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
