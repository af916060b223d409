package fence_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/locker/fence"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9"
)

// on runs a test against a miniredis and a real server.
func on(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	for name, start := range map[string]func(t *testing.T) string{
		"embedded": func(t *testing.T) string {
			server, err := embedded.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
			return server.Addr()
		},
		"redis": func(t *testing.T) string { return redistest.Start(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: start(t)})
			t.Cleanup(func() { client.Close() })
			test(t, client)
		})
	}
}

func send(t *testing.T, client *redis.Client, args ...any) (int64, error) {
	return client.Eval(t.Context(), fence.Script, []string{"hash"}, args...).Int64()
}

func TestTheScriptAcceptsAFenceThatIsNotLowerThanTheGreatest(t *testing.T) {
	const greatest = 1<<53 - 1
	on(t, func(t *testing.T, client *redis.Client) {
		for _, c := range []struct {
			args []any
			want int64
			then map[string]string
		}{
			{[]any{5, "total", "10", "paid", "no"}, 1, map[string]string{"fence": "5", "total": "10", "paid": "no"}},
			{[]any{5, "total", "11"}, 1, map[string]string{"fence": "5", "total": "11", "paid": "no"}},
			{[]any{4, "total", "late"}, 0, map[string]string{"fence": "5", "total": "11", "paid": "no"}},
			{[]any{10, "total", "12"}, 1, map[string]string{"fence": "10", "total": "12", "paid": "no"}},
			{[]any{9, "total", "late, also as text"}, 0, map[string]string{"fence": "10", "total": "12", "paid": "no"}},
			{[]any{11}, 1, map[string]string{"fence": "11", "total": "12", "paid": "no"}},
			{[]any{10, "total", "after a claim"}, 0, map[string]string{"fence": "11", "total": "12", "paid": "no"}},
			{[]any{12, "fence", "999"}, 1, map[string]string{"fence": "12", "total": "12", "paid": "no"}},
			{[]any{greatest - 1, "total", "13"}, 1, map[string]string{"fence": strconv.Itoa(greatest - 1), "total": "13", "paid": "no"}},
			{[]any{greatest, "total", "14"}, 1, map[string]string{"fence": strconv.Itoa(greatest), "total": "14", "paid": "no"}},
			{[]any{greatest - 1, "total", "late by one"}, 0, map[string]string{"fence": strconv.Itoa(greatest), "total": "14", "paid": "no"}},
		} {
			got, err := send(t, client, c.args...)
			if err != nil || got != c.want {
				t.Errorf("%v: %d, %v; want %d", c.args, got, err, c.want)
			}
			if has := client.HGetAll(t.Context(), "hash").Val(); !maps.Equal(has, c.then) {
				t.Errorf("after %v the hash is %v; want %v", c.args, has, c.then)
			}
		}
	})
}

func TestTheScriptWritesNothingForBadInput(t *testing.T) {
	on(t, func(t *testing.T, client *redis.Client) {
		if _, err := send(t, client, 5, "total", "10"); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]any{
			{"0", "total", "x"}, {"", "total", "x"}, {"-6", "total", "x"}, {"6.5", "total", "x"}, {"0x10", "total", "x"},
			{"1e3", "total", "x"}, {" 6", "total", "x"}, {"06", "total", "x"}, {"inf", "total", "x"}, {"nan", "total", "x"}, {"token", "total", "x"},
			{strconv.Itoa(1 << 53), "total", "x"}, {strings.Repeat("9", 400), "total", "x"}, {"6", "total"}, {"6", "total", "x", "paid"}, {},
		} {
			if got, err := send(t, client, args...); err == nil {
				t.Errorf("%.40q: %d; want an error", args, got)
			}
			if has := client.HGetAll(t.Context(), "hash").Val(); !maps.Equal(has, map[string]string{"fence": "5", "total": "10"}) {
				t.Errorf("after %.40q the hash is %v", args, has)
			}
		}
		client.HSet(t.Context(), "hash", "fence", "unreadable")
		if got, err := send(t, client, "6", "total", "x"); err == nil || client.HGet(t.Context(), "hash", "total").Val() != "10" {
			t.Errorf("over a fence that is no number: %d, %v", got, err)
		}
		client.Set(t.Context(), "hash", "a string", 0)
		if got, err := send(t, client, "6", "total", "x"); err == nil || client.Get(t.Context(), "hash").Val() != "a string" {
			t.Errorf("over a string: %d, %v", got, err)
		}
	})
}

func TestConcurrentScriptsAreAcceptedInTheOrderOfTheirFencesOnly(t *testing.T) {
	on(t, func(t *testing.T, client *redis.Client) {
		const writers, writes = 8, 100
		var greatest atomic.Int64 // of those that were accepted
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range writes {
					f, before := int64(i*writers+w+1), greatest.Load()
					got, err := send(t, client, f, "writer", fmt.Sprint(f))
					if err != nil || got == 1 && f < before || got == 0 && f >= int64(writers*writes) {
						t.Errorf("%d: %d, %v; %d was accepted before", f, got, err, before)
					}
					for got == 1 && f > before && !greatest.CompareAndSwap(before, f) {
						before = greatest.Load()
					}
				}
			})
		}
		all.Wait()
		last := strconv.Itoa(writers * writes) // the greatest is accepted whenever it comes, and nothing after it
		if has := client.HGetAll(t.Context(), "hash").Val(); has["fence"] != last || has["writer"] != last {
			t.Errorf("the hash is %v; want %s in both", has, last)
		}
	})
}
