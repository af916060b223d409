package redigo

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/gomodule/redigo/redis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

func TestASubscriptionTellsItsEventsApart(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.Addr()).Subscribe(t.Context())
	defer s.Close()
	for _, step := range []struct {
		request func() error
		want    driver.Event
	}{
		{s.Ping, driver.Event{Kind: driver.EventPong}}, // the server answers otherwise before anything is subscribed
		{func() error { return s.Subscribe("a") }, driver.Event{Kind: driver.EventSubscribed, Channel: "a"}},
		{func() error { return s.Subscribe("b") }, driver.Event{Kind: driver.EventSubscribed, Channel: "b"}},
		{s.Ping, driver.Event{Kind: driver.EventPong}},
		{func() error { _, err := server.Do("PUBLISH", "b", "text"); return err }, driver.Event{Kind: driver.EventMessage, Channel: "b", Payload: "text"}},
		{func() error { return s.Unsubscribe("a") }, driver.Event{Kind: driver.EventUnsubscribed, Channel: "a"}},
		{func() error { return s.Unsubscribe("b") }, driver.Event{Kind: driver.EventUnsubscribed, Channel: "b"}},
	} {
		if err := step.request(); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Receive(); got != step.want || err != nil {
			t.Errorf("Receive = %+v, %v, want %+v", got, err, step.want)
		}
	}
}

func TestARefusalLeavesTheSubscriptionUsableAndInOrder(t *testing.T) {
	server := redistest.Start(t)
	if _, err := server.Do("ACL", "SETUSER", "locks", "on", "nopass", "+@all", "-ping", "resetchannels", "&a"); err != nil {
		t.Fatal(err)
	}
	s := open(t, server.Addr(), client.DialUsername("locks"), client.DialPassword("any")).Subscribe(t.Context())
	defer s.Close()
	if err := errors.Join(s.Subscribe("b"), s.Subscribe("a"), s.Ping(), s.Unsubscribe("a")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
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
	if !slices.Equal(got, []string{"NOPERM", "a", "NOPERM", "a"}) {
		t.Errorf("events: %v", got)
	}
}

func TestCloseEndsAReceive(t *testing.T) {
	s := open(t, redistest.Start(t).Addr()).Subscribe(t.Context())
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
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	<-received
	_ = s.Close() // again, as the family does
}

func TestADialThatHangsEndsSomeTimeAfterTheLastWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := New(&client.Pool{DialContext: func(ctx context.Context) (client.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := store.Watch(ctx, "a", func() {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch = %v", err)
		}
		time.Sleep(time.Minute) // or the bubble finds a goroutine that nothing can wake
	})
}
