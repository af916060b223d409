package goredis_test

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// With its own options go-redis waits for a reply longer than most ctxs last, so the end of the ctx
// or of the wait is all that Lock has.
func TestALockOnASilentServerNamesTheServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	go func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }() // takes everything and answers nothing
		}
	}()
	c := client.NewClient(&client.Options{Addr: silent.Addr().String()})
	defer c.Close()
	locks := locker.New(single.New(goredis.New(c)))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, ended := locks.Lock(ctx, "key")
	_, limited := locks.Lock(t.Context(), "other", locker.WithWait(100*time.Millisecond))
	for _, c := range []struct {
		err, matches error
		want         string
	}{
		{ended, context.DeadlineExceeded, `lockstep: lock "key": context deadline exceeded: `},
		{limited, locker.ErrWaitLimit, `lockstep: lock "other": wait limit reached: `},
	} {
		want := c.want + "no answer from server " + silent.Addr().String() + " to the last attempt; its outcome is unknown, and it is cleaned up in the background"
		if c.err == nil || c.err.Error() != want || !errors.Is(c.err, c.matches) {
			t.Errorf("%v\nwant %s", c.err, want)
		}
	}
}

// TestNothingWaitsForAClientThatIsClosed: neither Lock with WithWait, nor Unlock, nor Drain.
func TestNothingWaitsForAClientThatIsClosed(t *testing.T) {
	server := redistest.Start(t)
	store, c := goredis.Open(&client.Options{Addr: server.Addr()}, redisstore.WithoutQuarantine())
	locks := locker.New(single.New(store))
	held, err := locks.Lock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, lock := locks.Lock(context.Background(), "key", locker.WithWait(time.Hour))
	do := locks.Do(context.Background(), "key", func(context.Context, *locker.Lock) error { return nil }, locker.WithWait(time.Hour))
	const closed = `server ADDR: redis: client is closed; nothing was sent`
	for _, c := range []struct {
		err  error
		want string
	}{
		{lock, `lockstep: acquire "key": ` + closed},
		{do, `lockstep: acquire "key": ` + closed},
		{held.Unlock(context.Background()), `lockstep: release "held": not confirmed; the lease ends by itself at \d\d:\d\d:\d\d: ` + closed},
	} {
		want := regexp.MustCompile("^" + strings.ReplaceAll(c.want, "ADDR", regexp.QuoteMeta(server.Addr())) + "$")
		var permanent interface{ Permanent() bool }
		if c.err == nil || !want.MatchString(c.err.Error()) || !errors.As(c.err, &permanent) || !permanent.Permanent() {
			t.Errorf("%v\nwant %s, permanent", c.err, want)
		}
	}
	if err := locks.Drain(context.Background()); err != nil {
		t.Errorf("Drain = %v", err)
	}
}
