package legacy_test

import (
	"os"
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// TestProcess is not a test. It is the code of the process that the test below starts.
func TestProcess(t *testing.T) {
	addr := os.Getenv("LOCKSTEP_TEST_REDIS")
	if addr == "" {
		return
	}
	client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: -1})
	_, err := legacy.Expire(goredis.New(client, beneath.Long)).Acquire(t.Context(), request(long))
	t.Errorf("Acquire returned: %v", err)
}

// TestAnomalyExpireKilledBetweenByTheKernel is TestAnomalyExpireKilledBetween with a process that is really killed.
func TestAnomalyExpireKilledBetweenByTheKernel(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	between := proxy.Add(redistest.Rule{Fault: redistest.LoseRequest, Commands: []string{"PEXPIRE"}})
	cmd, _, _ := child.Start(t, "LOCKSTEP_TEST_REDIS="+proxy.Addr())
	<-between.Fired()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	if ttl, err := server.Do("TTL", "key"); ttl != int64(-1) || err != nil {
		t.Fatalf("TTL = %v, %v; want -1, for ever", ttl, err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	store := goredis.New(client, beneath.Long)
	if held := wantHeld(t, "single", single.New(store), brief); !held.Foreign {
		t.Errorf("single: %v, want it to be foreign", held)
	}
	gets(t, "the repairer", legacy.Expire(store), brief)
}
