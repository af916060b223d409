package semaphore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9"
)

// BenchmarkAdmission enters and leaves a key that has so many holds, one after the other, on a real
// server. A round trip is in both figures.
func BenchmarkAdmission(b *testing.B) {
	for _, holds := range []int{1, 10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprint(holds, " holds"), func(b *testing.B) {
			client := redis.NewClient(&redis.Options{Addr: redistest.Start(b).Addr()})
			defer client.Close()
			store := goredis.New(client, beneath.Long)
			a := backends.Admission{Limit: holds + 1}
			for i := range holds {
				if r, err := store.Enter(b.Context(), "key", fmt.Sprint("token ", i), beneath.MaxTTL, a); err != nil || !r.OK {
					b.Fatal(r, err)
				}
			}
			for b.Loop() {
				if r, err := store.Enter(b.Context(), "key", "one more", time.Minute, a); err != nil || !r.OK {
					b.Fatal(r, err)
				}
				if ok, err := store.Leave(b.Context(), "key", "one more"); err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
