package goredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// What a Pipeliner promises and no Store shows.

func pipelinerAt(t *testing.T, o *client.Options) pipeliner {
	t.Helper()
	c := client.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return pipeliner{newExecutor(c), c}
}

func commandsOf(lines ...[]any) (commands []*driver.Command) {
	for _, args := range lines {
		commands = append(commands, &driver.Command{Args: args})
	}
	return commands
}

func increments(n int) (commands []*driver.Command) {
	for i := range n {
		commands = append(commands, &driver.Command{Args: []any{"INCR", fmt.Sprint("n", i)}})
	}
	return commands
}

// hook keeps pipelines from being sent.
type hook struct{ err error }

func (h hook) DialHook(next client.DialHook) client.DialHook          { return next }
func (h hook) ProcessHook(next client.ProcessHook) client.ProcessHook { return next }
func (h hook) ProcessPipelineHook(client.ProcessPipelineHook) client.ProcessPipelineHook {
	return func(context.Context, []client.Cmder) error { return h.err }
}

// A nil reply to SET NX means that the lock is held.
func TestACommandThatWasNotAnsweredIsNotTakenForOneAnsweredWithNil(t *testing.T) {
	broken := errors.New("broken")
	for want, err := range map[error]error{errUnanswered: nil, broken: broken} {
		c := client.NewClient(&client.Options{Addr: redistest.Start(t).Addr()})
		defer c.Close()
		c.AddHook(hook{err})
		commands := increments(2)
		pipeliner{newExecutor(c), c}.OnceAll(t.Context(), commands)
		for _, command := range commands {
			if !errors.Is(command.Err, want) {
				t.Errorf("%v, %v; want %v", command.Reply, command.Err, want)
			}
		}
		err := newExecutor(c).Pinned(t.Context(), "a", func(cn driver.Conn) error {
			replies, err := cn.Pipeline(t.Context(), []any{"GET", "a"})
			if replies != nil {
				t.Errorf("Pipeline = %v, %v", replies, err)
			}
			return err
		})
		if !errors.Is(err, want) {
			t.Errorf("Pinned = %v; want %v", err, want)
		}
	}
}

func TestALaneIsANodeOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	c := client.NewClusterClient(&client.ClusterOptions{Addrs: cluster.Addrs()})
	defer c.Close()
	e := pipeliner{newExecutor(c), c}
	lanes := map[any]bool{}
	for _, m := range cluster.Masters() {
		key := cluster.KeyOn(m, "k%d")
		lane := e.Lane(t.Context(), []any{"SET", key, "x"})
		for _, args := range [][]any{{"EVALSHA", "digest", 1, key}, {"EVAL", "source", 2, key, "other"}, {"GET", key}} {
			if other := e.Lane(t.Context(), args); other != lane || lane == nil {
				t.Errorf("%v goes to %v, SET to %v", args, other, lane)
			}
		}
		if lane != m.Addr() {
			t.Errorf("the lane of the node at %s is %v; a client in its place would stay in memory", m.Addr(), lane)
		}
		lanes[lane] = true
	}
	if len(lanes) != 3 {
		t.Errorf("%d lanes to 3 nodes", len(lanes))
	}
	if lane := e.Lane(t.Context(), []any{"PING"}); lane != nil {
		t.Errorf("a command without a key goes to %v", lane)
	}
	if lane := pipelinerAt(t, &client.Options{}).Lane(t.Context(), []any{"SET", "a"}); lane != nil {
		t.Errorf("a single server is %v", lane)
	}
}

func TestWhatIsLedElsewhereIsSentByItself(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	c := client.NewClusterClient(&client.ClusterOptions{Addrs: cluster.Addrs()})
	defer c.Close()
	e := pipeliner{newExecutor(c), c}
	from, to := cluster.Masters()[0], cluster.Masters()[1]
	stays, leaves := cluster.KeyOn(from, "stays%d"), cluster.KeyOn(from, "leaves%d")
	for name, all := range map[string]func(context.Context, []*driver.Command){"DoAll": e.DoAll, "OnceAll": e.OnceAll} {
		commands := commandsOf([]any{"SET", stays, "1"}, []any{"SET", leaves, "1"}, []any{"SET", stays, "2"})
		all(t.Context(), commands)
		for i, c := range commands {
			if c.Alone || c.Err != nil {
				t.Errorf("%s: %d, which is at home: %+v", name, i, c)
			}
		}
	}
	move := cluster.BeginMove(leaves, to)
	move.Keys()
	for _, stage := range []string{"ASK", "MOVED"} {
		for name, all := range map[string]func(context.Context, []*driver.Command){"DoAll": e.DoAll, "OnceAll": e.OnceAll} {
			commands := commandsOf([]any{"SET", stays, "1"}, []any{"SET", leaves, "1"}, []any{"SET", stays, "2"})
			all(t.Context(), commands)
			for i, c := range commands {
				if c.Alone != (i == 1) || (c.Err == nil) == c.Alone {
					t.Errorf("%s: %d, after %s: %+v", name, i, stage, c)
				}
			}
		}
		if stage == "ASK" {
			move.Finish()
		}
	}
}

// The slot of half the locks is on its way from one node to another and back again.
func TestCallsThatShareRoundTripsFollowASlot(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	c := client.NewClusterClient(&client.ClusterOptions{Addrs: cluster.Addrs()})
	defer c.Close()
	s := New(c)
	const tag = "{moving}"
	stop := make(chan struct{})
	var goroutines sync.WaitGroup
	for g := range 32 {
		key := fmt.Sprintf("%s%d", tag, g)
		if g%2 == 0 {
			key = fmt.Sprint("stays", g)
		}
		goroutines.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				token := fmt.Sprint(n)
				for i, call := range []func() (string, error){
					func() (string, error) {
						r, err := s.SetNX(t.Context(), key, token, 20*time.Second)
						return fmt.Sprint(r.OK), err
					},
					func() (string, error) {
						r, err := s.SetNX(t.Context(), key, "other", 20*time.Second)
						return fmt.Sprint(!r.OK && r.Left > 0), err
					},
					func() (string, error) {
						ok, err := s.ExpireIf(t.Context(), key, token, 30*time.Second)
						return fmt.Sprint(ok), err
					},
					func() (string, error) {
						ok, err := s.DeleteIf(t.Context(), key, token)
						return fmt.Sprint(ok), err
					},
				} {
					right, err := call()
					for driver.IsMoving(err) { // to and fro, more often than go-redis follows
						right, err = call()
					}
					if err != nil || right != "true" {
						t.Errorf("call %d on %s = %v, %v", i, key, right, err)
						return
					}
				}
			}
		})
	}
	for range 4 {
		from := cluster.Master(tag)
		for _, to := range cluster.Masters() {
			if to != from {
				cluster.MoveSlot(tag, to)
			}
		}
	}
	close(stop)
	goroutines.Wait()
}
