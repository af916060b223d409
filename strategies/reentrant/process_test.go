package reentrant_test

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/redis/go-redis/v9"
)

// TestProcess is not a test. It is the code of the process that the test below starts.
func TestProcess(t *testing.T) {
	addr := os.Getenv("LOCKSTEP_TEST_REDIS")
	if addr == "" {
		return
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	l, err := locker.New(reentrant.New(goredis.New(client, beneath.Long)), locker.WithTTL(long)).TryLock(as(t.Context(), "job"), "key")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("hold", l.Lease().Holds)
	var line string
	_, _ = fmt.Scanln(&line)
	fmt.Println("unlock", l.Unlock(t.Context()))
}

func TestProcessesThatShareAnOwnerNameHoldTogether(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	c := locker.New(reentrant.New(goredis.New(client, beneath.Long)), locker.WithTTL(long), locker.WithBackoff(hardlyEver))
	ours := lock(as(t.Context(), "job"), t, c, 1)

	_, in, says := child.Start(t, "LOCKSTEP_TEST_REDIS="+server.Addr())
	if line, err := says.ReadString('\n'); line != "hold 2\n" {
		t.Fatalf("the other process says %q, %v; want hold 2", line, err)
	}

	waiting := locking(as(t.Context(), "another job"), c)
	unlock(t, ours)
	wantHeld(as(t.Context(), "another job"), t, c)
	unlock(t, lock(as(t.Context(), "job"), t, c, 2)) // 2 holds: this one and that of the other process
	select {
	case l := <-waiting:
		t.Fatalf("another owner has the lock beside the other process: %v", l.err)
	default:
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := says.ReadString('\n'); line != "unlock <nil>\n" {
		t.Errorf("the other process says %q, %v", line, err)
	}
	unlock(t, answer(t, waiting))
}
