package redigo

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/gomodule/redigo/redis"
)

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
