package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

const counter = "{a}:\x00fence"

// hour is for tests whose values must outlive a slow machine.
var hour = redisstore.WithMaxTTL(time.Hour)

// onBoth runs a test on a real server and on an embedded one.
func onBoth(t *testing.T, test func(t *testing.T, s *redisstore.Store, c *client.Client)) {
	for name, addr := range map[string]func(*testing.T) string{
		"redis":    func(t *testing.T) string { return redistest.Start(t).Addr() },
		"embedded": startEmbedded,
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, &client.Options{Addr: addr(t)})
			test(t, goredis.New(c, hour), c)
		})
	}
}

// numbering is one of the calls that number a grant.
type numbering func(s *redisstore.Store) func(ctx context.Context, key, token string, ttl time.Duration) (backends.Result, error)

func count(s *redisstore.Store) func(context.Context, string, string, time.Duration) (backends.Result, error) {
	return s.SetNXFenced
}

func clock(s *redisstore.Store) func(context.Context, string, string, time.Duration) (backends.Result, error) {
	return func(ctx context.Context, key, token string, ttl time.Duration) (backends.Result, error) {
		return s.SetNXNumbered(ctx, key, token, ttl, backends.Turn{})
	}
}

func mustNumber(t *testing.T, s *redisstore.Store, token string, n numbering) uint64 {
	t.Helper()
	r, err := n(s)(t.Context(), "a", token, 20*time.Second)
	if err != nil || !r.OK || r.Fence == 0 {
		t.Fatalf("SetNXFenced = %+v, %v", r, err)
	}
	return r.Fence
}

func mustDelete(t *testing.T, s *redisstore.Store, key, token string) {
	t.Helper()
	if ok, err := s.DeleteIf(t.Context(), key, token); err != nil || !ok {
		t.Fatalf("DeleteIf = %v, %v", ok, err)
	}
}

func TestTheCounterExpiresUnderClockAndNotUnderCount(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		lives := func() time.Duration {
			left, err := c.PTTL(t.Context(), counter).Result()
			if err != nil {
				t.Fatal(err)
			}
			return left
		}
		for range 2 {
			mustNumber(t, s, "mine", count)
			if got := lives(); got != -1 {
				t.Errorf("under Count the counter lives for %v", got)
			}
			mustDelete(t, s, "a", "mine")
			mustNumber(t, s, "mine", clock)
			if got := lives(); got > backends.FenceRetention || got < backends.FenceRetention-time.Hour {
				t.Errorf("under Clock the counter lives for %v", got)
			}
			mustDelete(t, s, "a", "mine")
		}
		// Whoever is granted again, or raises the number, changes that too.
		mustNumber(t, s, "mine", clock)
		mustNumber(t, s, "mine", count)
		if got := lives(); got != -1 {
			t.Errorf("granted again under Count: %v", got)
		}
		number := mustNumber(t, s, "mine", clock)
		if landed, err := s.RaiseFence(t.Context(), "a", "mine", number+uint64(time.Hour/time.Microsecond)); !landed || err != nil {
			t.Fatalf("RaiseFence = %v, %v", landed, err)
		}
		if got := lives(); got != -1 {
			t.Errorf("raised: %v", got)
		}
		mustDelete(t, s, "a", "mine")
		mustNumber(t, s, "mine", clock)
		if got := lives(); got <= backends.FenceRetention || got > backends.FenceRetention+time.Hour {
			t.Errorf("an hour ahead of the clock: %v", got)
		}
	})
}

func TestACounterThatIsNoneGrantsNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		for _, text := range []string{"", "x", "-1", "1.5", "1e3", "0x10", " 1", "1 ", "nan", "inf", "9007199254740992", strings.Repeat("9", 400)} {
			if err := c.Set(t.Context(), counter, text, 0).Err(); err != nil {
				t.Fatal(err)
			}
			for _, n := range []numbering{count, clock} {
				r, err := n(s)(t.Context(), "a", "mine", 20*time.Second)
				wantLockstep(t, fmt.Sprintf("SetNXFenced with the counter %.20q = %+v", text, r), err)
			}
			if n := c.Exists(t.Context(), "a").Val(); n != 0 {
				t.Fatalf("with the counter %.20q it was granted", text)
			}
			if err := c.Set(t.Context(), "a", "mine", 20*time.Second).Err(); err != nil {
				t.Fatal(err)
			}
			landed, err := s.RaiseFence(t.Context(), "a", "mine", 7)
			wantLockstep(t, fmt.Sprintf("RaiseFence with the counter %.20q = %v", text, landed), err)
			if got := c.Get(t.Context(), counter).Val(); got != text {
				t.Errorf("the counter %.20q is now %.20q", text, got)
			}
			mustDelete(t, s, "a", "mine")
		}
		if err := c.Del(t.Context(), counter).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.RPush(t.Context(), counter, "element").Err(); err != nil {
			t.Fatal(err)
		}
		if r, err := s.SetNXNumbered(t.Context(), "a", "mine", 20*time.Second, backends.Turn{}); r.OK || !errors.Is(err, backends.ErrWrongType) {
			t.Errorf("SetNXFenced with a list for a counter = %+v, %v", r, err)
		}
		if n := c.Exists(t.Context(), "a").Val(); n != 0 {
			t.Error("with a list for a counter it was granted")
		}
		if r, err := s.SetNX(t.Context(), "a", "theirs", 20*time.Second); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		if r, err := s.SetNXNumbered(t.Context(), "a", "mine", 20*time.Second, backends.Turn{}); r.OK || r.Left <= 0 || err != nil {
			t.Errorf("of a key that is held, whatever its counter: %+v, %v", r, err)
		}
	})
}

func wantLockstep(t *testing.T, what string, err error) {
	t.Helper()
	if refused := (*redisstore.ReplyError)(nil); !errors.As(err, &refused) || refused.Code() != "LOCKSTEP" || !refused.Permanent() {
		t.Errorf("%s, %v; want a refusal", what, err)
	}
}

func TestNumbersEndBelow2To53(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		const last = 1<<53 - 1
		mustNumber(t, s, "mine", count)
		for _, to := range []uint64{1 << 53, 1<<64 - 1} {
			if landed, err := s.RaiseFence(t.Context(), "a", "mine", to); landed || err == nil || !strings.Contains(err.Error(), strconv.FormatUint(to, 10)) {
				t.Errorf("RaiseFence to %d = %v, %v", to, landed, err)
			}
		}
		if landed, err := s.RaiseFence(t.Context(), "a", "mine", last-1); !landed || err != nil {
			t.Fatalf("RaiseFence = %v, %v", landed, err)
		}
		mustDelete(t, s, "a", "mine")
		if got := mustNumber(t, s, "mine", count); got != last {
			t.Errorf("the last number is %d", got)
		}
		if got := mustNumber(t, s, "mine", clock); got != last {
			t.Errorf("granted again it is %d", got)
		}
		mustDelete(t, s, "a", "mine")
		for _, n := range []numbering{count, clock} {
			r, err := n(s)(t.Context(), "a", "mine", 20*time.Second)
			wantLockstep(t, fmt.Sprintf("SetNXFenced after the last number = %+v", r), err)
			if c.Exists(t.Context(), "a").Val() != 0 {
				t.Error("it was granted")
			}
		}
	})
}

func TestANumberedGrantIsOneCommand(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := goredis.New(dial(t, &client.Options{Addr: proxy.Addr()}))
	mustNumber(t, s, "mine", clock) // the server learns the script
	mustDelete(t, s, "a", "mine")
	before := len(proxy.Seen())
	mustNumber(t, s, "mine", clock)
	if sent := proxy.Seen()[before:]; !slices.Equal(sent, []string{"EVALSHA"}) {
		t.Errorf("sent %v", sent)
	}
}
