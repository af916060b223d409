package redisstore_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/internal/scripts"
	"github.com/lockstep-go/lockstep/proof/trial"
	client "github.com/redis/go-redis/v9"
)

func TestNoTokenLeavesTheServerForInspect(t *testing.T) {
	c := dial(t, &client.Options{Addr: startEmbedded(t)})
	s := goredis.New(c)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const ann, bob, col = "ann ANNANNANNANNANNANNANNANNAN", "bob BOBBOBBOBBOBBOBBOBBOBBOBBO", "COLCOLCOLCOLCOLCOLCOLCOLCO"
	if r, err := s.SetNX(ctx, "text", ann, 20*time.Second); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
	if err := s.WatchQueued(ctx, "text", bob, func() {}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.SetNXQueued(ctx, "text", col, 20*time.Second, backends.Turn{Waiter: bob}); err != nil || r.Position != 1 {
		t.Fatalf("SetNXQueued = %+v, %v", r, err)
	}
	for _, token := range []string{ann, col} {
		if r, err := s.Enter(ctx, "shared", token, 20*time.Second, backends.Admission{}); err != nil || !r.OK {
			t.Fatalf("Enter = %+v, %v", r, err)
		}
	}
	seen, labels := "", 0
	for _, key := range []string{"text", "shared"} {
		reply, err := c.Do(ctx, scripts.Inspect.Full(scripts.Inspect.Call([]any{
			key, "{" + key + "}:\x00queue", "{" + key + "}:\x00reserved", "{" + key + "}:\x00fence", backends.MaxListed,
		}))...).Result()
		if err != nil {
			t.Fatal(err)
		}
		seen += fmt.Sprint(reply)
	}
	for _, token := range []string{ann, bob, col} {
		if secret := token[strings.LastIndex(token, " ")+1:]; strings.Contains(seen, secret) {
			t.Errorf("the server replies %s, which has the token %s", seen, token)
		}
	}
	for _, label := range []string{"ann", "bob"} {
		labels += strings.Count(seen, label)
	}
	if labels != 3 {
		t.Errorf("the server replies %s; want the label of ann twice, and that of bob", seen)
	}
}

// The end of the last hold and that of its key are a millisecond apart.
func TestAGroupWithoutAHoldIsNotTold(t *testing.T) {
	c := dial(t, &client.Options{Addr: startEmbedded(t)})
	for _, args := range [][]any{
		{"ZADD", "key", fmt.Sprint(time.Now().Add(-time.Minute).UnixMilli()), "token", "inf", "\x00group:readers"}, {"PEXPIRE", "key", 60_000},
	} {
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if state, err := goredis.New(c).Inspect(trial.Patient(t), "key"); err != nil || !reflect.DeepEqual(state, backends.State{}) {
		t.Errorf("Inspect = %+v, %v; want no holds and no group", state, err)
	}
}

func TestASortedSetOfOtherSoftwareIsForeign(t *testing.T) {
	c := dial(t, &client.Options{Addr: startEmbedded(t)})
	for _, args := range [][]any{{"ZADD", "key", "7", "member", "9e12", "another"}, {"PEXPIRE", "key", 60_000}} {
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if state, err := goredis.New(c).Inspect(trial.Patient(t), "key"); err != nil || !reflect.DeepEqual(state, backends.State{Foreign: true}) {
		t.Errorf("Inspect = %+v, %v; want Foreign, and no holds", state, err)
	}
}

// A store that polls takes no position in a queue. So an empty queue says nothing of its waiters.
func TestHowManyWaitIsNotKnownWithoutWakes(t *testing.T) {
	c := dial(t, &client.Options{Addr: startEmbedded(t)})
	for want, opt := range map[int][]redisstore.Option{
		0:                 nil,
		backends.NotKnown: {redisstore.WithoutWakes()},
	} {
		s := goredis.New(c, opt...)
		if state, err := s.Inspect(trial.Patient(t), "key"); err != nil || state.Waiting != want {
			t.Errorf("Inspect = %+v, %v; want %d waiting", state, err, want)
		}
	}
}
