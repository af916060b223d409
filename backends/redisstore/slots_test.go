package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// The number of a hold is in its score, which has room for MaxSlots of them and no more.
func TestTheLastSlotIsKeptWhenItsHoldIsRenewed(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { keepsTheLastSlot(t, startEmbedded(t)) })
	t.Run("redis", func(t *testing.T) { keepsTheLastSlot(t, redistest.Start(t).Addr()) })
}

// The room for numbers becomes less with the time at which a hold ends: a longer TTL is refused.
func TestHoldsOfTheLongestTTLHaveSlotsOfTheirOwn(t *testing.T) {
	const longest = 10 * 365 * 24 * time.Hour
	s := goredis.New(dial(t, &client.Options{Addr: startEmbedded(t)}), redisstore.WithMaxTTL(longest))
	for slot := range 4 {
		r, err := s.Enter(t.Context(), "key", fmt.Sprint("token", slot), longest, backends.Admission{Limit: 4, Slots: true})
		if err != nil || !r.OK || r.Slot != slot {
			t.Errorf("Enter = %+v, %v; want the slot %d", r, err, slot)
		}
	}
	long := goredis.New(dial(t, &client.Options{Addr: startEmbedded(t)}), redisstore.WithMaxTTL(100*365*24*time.Hour))
	if r, err := long.Enter(t.Context(), "key", "token", longest, backends.Admission{}); !backends.Permanent(err) {
		t.Errorf("Enter = %+v, %v; want a permanent error", r, err)
	}
}

func keepsTheLastSlot(t *testing.T, addr string) {
	c := dial(t, &client.Options{Addr: addr})
	s, ends := goredis.New(c), time.Now().Add(20*time.Second).UnixMilli()
	others := []any{"ZADD", "key"}
	for slot := range backends.MaxSlots - 1 {
		others = append(others, fmt.Sprintf("%d.%015.0f", ends, float64(slot+1)/2048*1e15), fmt.Sprint("hold ", slot))
	}
	for _, args := range [][]any{others, {"PEXPIRE", "key", 20_000}} {
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a := backends.Admission{Limit: backends.MaxSlots, Slots: true}
	for range 3 {
		if r, err := s.Enter(t.Context(), "key", "last", 20*time.Second, a); err != nil || !r.OK || r.Slot != backends.MaxSlots-1 {
			t.Errorf("Enter = %+v, %v; want the slot %d", r, err, backends.MaxSlots-1)
		}
		if ok, err := s.Renew(t.Context(), "key", "last", 25*time.Second); err != nil || !ok {
			t.Errorf("Renew = %v, %v", ok, err)
		}
	}
	if ok, err := s.Leave(t.Context(), "key", "hold 7"); err != nil || !ok {
		t.Fatalf("Leave = %v, %v", ok, err)
	}
	if r, err := s.Enter(t.Context(), "key", "next", 20*time.Second, a); err != nil || !r.OK || r.Slot != 7 {
		t.Errorf("Enter = %+v, %v; want the slot 7", r, err)
	}
}
