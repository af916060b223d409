package goredis_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

func openPlain(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store {
	return goredis.New(dial(t, &client.Options{Addr: addr}), append(opts, hour)...)
}

func TestAURLIsNoAddress(t *testing.T) {
	for name, store := range map[string]*redisstore.Store{
		"Open": openedAt(t, "redis://:S3CRET@localhost:6379"), "New": openPlain(t, "redis://:S3CRET@localhost:6379"),
	} {
		_, err := store.SetNX(t.Context(), "a", "token", 20*time.Second)
		if want := "address redis://:xxxxx@localhost:6379 is a URL, and host:port is needed: use redis.ParseURL (go-redis)"; err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func openedAt(t *testing.T, addr string) *redisstore.Store {
	store, c := goredis.Open(&client.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return store
}

// An answer is an answer also if the deadline has passed by the time that it is read.
func TestAnAnswerOutlivesTheDeadline(t *testing.T) {
	store := goredis.New(answersLate{dial(t, &client.Options{Addr: redistest.Start(t).Addr()})})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for i := range 20 { // most of which share a round trip
		all.Go(func() {
			if r, err := store.SetNX(ctx, fmt.Sprint("a", i), "token", 20*time.Second); !r.OK || err != nil {
				if !backends.Unsent(err) {
					t.Errorf("SetNX = %+v, %v", r, err)
				}
			}
		})
	}
	all.Wait()
}

// answersLate gives its answers when the ctx of the call has ended.
type answersLate struct{ *client.Client }

func (a answersLate) Process(ctx context.Context, cmd client.Cmder) error {
	err := a.Client.Process(ctx, cmd)
	<-ctx.Done()
	return err
}

func (a answersLate) Pipeline() client.Pipeliner { return latePipeline{a.Client.Pipeline()} }

type latePipeline struct{ client.Pipeliner }

func (p latePipeline) Exec(ctx context.Context) ([]client.Cmder, error) {
	cmds, err := p.Pipeliner.Exec(ctx)
	<-ctx.Done()
	return cmds, err
}
