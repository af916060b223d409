//go:build unix

package single_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// TestProcess is not a test. It is the code of the processes that the tests below start.
func TestProcess(t *testing.T) {
	role, addr := os.Getenv("LOCKSTEP_TEST_ROLE"), os.Getenv("LOCKSTEP_TEST_REDIS")
	if role == "" {
		return
	}
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 20})
	defer client.Close()
	locks := func(ttl time.Duration) *locker.Client {
		return locker.New(single.New(goredis.New(client, beneath.Long)), locker.WithTTL(ttl))
	}
	switch role {
	case "holder":
		holdAndReport(t, locks(time.Second))
	case "counter":
		count(t, locks(time.Minute), os.Getenv("LOCKSTEP_TEST_FILE")) // longer than a busy machine stands still
	}
}

// process starts a process in a role.
func process(t *testing.T, role string, server *redistest.Server, env ...string) (*exec.Cmd, io.Writer, *bufio.Reader) {
	t.Helper()
	return child.Start(t, append(env, "LOCKSTEP_TEST_ROLE="+role, "LOCKSTEP_TEST_REDIS="+server.Addr())...)
}

// A holder that was paused beyond its TTL must learn of it when it next looks, and must not touch
// the lock of the next holder.

func holdAndReport(t *testing.T, locks *locker.Client) {
	l, err := locks.Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("held")
	var line string
	_, _ = fmt.Scanln(&line)  // the process is stopped here, longer than its TTL
	lost := l.Context().Err() // its next look
	unlocked := l.Unlock(t.Context())
	fmt.Println(lost != nil, errors.Is(context.Cause(l.Context()), locker.ErrLost), errors.Is(unlocked, locker.ErrLost))
}

func TestAHolderThatWasPausedFindsItsLockLostAndLeavesTheNextOneAlone(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locks := locker.New(single.New(goredis.New(client, beneath.Long)), locker.WithTTL(time.Minute))

	cmd, in, out := process(t, "holder", server)
	if line, err := out.ReadString('\n'); line != "held\n" {
		t.Fatal(line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next, err := locks.Lock(t.Context(), "key") // when the lease of the paused process has ended
	if err != nil {
		t.Fatal(err)
	}
	// The process reads the line as soon as it goes on, before any timer of its own can fire.
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if line, err := out.ReadString('\n'); line != "true true true\n" {
		t.Errorf("context ended, with ErrLost, Unlock with ErrLost: %q, %v", line, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !exists(t, server, "key") {
		t.Error("the next holder's key is gone")
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Errorf("the next holder's Unlock = %v", err)
	}
}

// Four processes of sixteen goroutines each increment a number in a file, with one read and one
// write each.

const (
	counters   = 4
	goroutines = 16
	increments = 25 // by each goroutine
)

func count(t *testing.T, locks *locker.Client, file string) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for g := range goroutines {
		all.Go(func() {
			for range increments {
				err := locks.Do(t.Context(), "counter", func(context.Context, *locker.Lock) error {
					start := time.Now().UnixNano()
					text, err := os.ReadFile(file)
					if err != nil {
						return err
					}
					n, err := strconv.Atoi(string(text))
					if err != nil {
						return err
					}
					if err := os.WriteFile(file, strconv.AppendInt(nil, int64(n+1), 10), 0o600); err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					fmt.Println("hold", g, start, time.Now().UnixNano())
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestFourProcessesOfSixteenGoroutinesLoseNoUpdate(t *testing.T) {
	server := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var holds []history.Hold
	var all sync.WaitGroup
	for p := range counters {
		cmd, _, out := process(t, "counter", server, "LOCKSTEP_TEST_FILE="+file)
		all.Go(func() {
			for {
				line, err := out.ReadString('\n')
				if err != nil {
					break
				}
				h := history.Hold{Key: "counter"}
				var g int
				if n, _ := fmt.Sscanf(line, "hold %d %d %d", &g, &h.Start, &h.End); n == 3 {
					h.Who = fmt.Sprintf("process %d, goroutine %d", p, g)
					mu.Lock()
					holds = append(holds, h)
					mu.Unlock()
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", p, err)
			}
		})
	}
	all.Wait()
	const want = counters * goroutines * increments
	text, err := os.ReadFile(file)
	if got := strings.TrimSpace(string(text)); got != strconv.Itoa(want) || err != nil {
		t.Errorf("the counter is %s, want %d; %v", got, want, err)
	}
	if len(holds) != want {
		t.Errorf("%d holds were logged, want %d", len(holds), want)
	}
	if overlaps := history.Overlaps(holds); len(overlaps) > 0 {
		t.Errorf("%d overlaps, the first: %v", len(overlaps), overlaps[0])
	}
}
