package goredis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/go-redis/v9"
)

// What an Executor promises and no Store shows.

// replyError is an error reply, as go-redis gives it.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// demoted is a client whose first connections lead to a replica.
type demoted struct {
	Client
	replicas int
	calls    int
}

func (d *demoted) Process(_ context.Context, cmd client.Cmder) error {
	if d.calls++; d.calls <= d.replicas {
		return replyError("READONLY You can't write against a read only replica.")
	}
	cmd.(interface{ SetVal(any) }).SetVal("OK")
	return nil
}

// pooled tells how many connections are idle.
type pooled struct {
	*demoted
	idle uint32
}

func (p pooled) PoolStats() *client.PoolStats {
	return &client.PoolStats{IdleConns: p.idle, TotalConns: 100}
}

func TestWhatMeetsAReplicaIsSentAgainUntilAConnectionLeadsToAMaster(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int
		idle     uint32
		calls    int
		granted  bool
	}{
		"the next connection is a new one":    {1, 0, 2, true},
		"three idle ones lead to the replica": {4, 3, 5, true},
		"all connections lead to the replica": {100, 3, 5, false},
	} {
		for by, call := range map[string]func(e executor, ctx context.Context, args ...any) (any, error){"Do": executor.Do, "Once": executor.Once} {
			d := &demoted{replicas: c.replicas}
			got, err := call(newExecutor(pooled{d, c.idle}), t.Context(), "SET", "a", "1")
			if d.calls != c.calls || (err == nil && got == "OK") != c.granted || !c.granted && !driver.IsDemoted(err) {
				t.Errorf("%s, by %s: %v, %v after %d calls", name, by, got, err, d.calls)
			}
		}
	}
}

// Nobody knows then how many connections there are.
func TestWithAClientThatDoesNotTellItsIdleConnectionsNothingIsSentAgain(t *testing.T) {
	d := &demoted{replicas: 1}
	if _, err := newExecutor(d).Do(t.Context(), "SET", "a", "1"); !driver.IsDemoted(err) || d.calls != 1 {
		t.Errorf("Do = %v after %d calls", err, d.calls)
	}
}

func TestOnlyAClientOfOneServerHasAnEndpoint(t *testing.T) {
	one := client.NewClient(&client.Options{Addr: "10.0.0.7:6379"})
	defer one.Close()
	many := client.NewClusterClient(&client.ClusterOptions{Addrs: []string{"10.0.0.7:6379"}})
	defer many.Close()
	sentinel := client.NewFailoverClient(&client.FailoverOptions{MasterName: "locks", SentinelAddrs: []string{"10.0.0.7:26379"}})
	defer sentinel.Close()
	for c, want := range map[Client]string{one: "10.0.0.7:6379", many: "", sentinel: "", &demoted{}: ""} {
		if got := New(c).Endpoint(); got != want {
			t.Errorf("%T: Endpoint = %q; want %q", c, got, want)
		}
	}
}

func TestSentinelsThatCannotBeReachedAreAKindOfTheirOwn(t *testing.T) {
	c := client.NewFailoverClient(&client.FailoverOptions{MasterName: "locks", SentinelAddrs: []string{"127.0.0.1:1"}, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	_, err := New(c).SetNX(t.Context(), "key", "token", time.Second)
	wire := (*redisstore.WireError)(nil)
	if !errors.As(err, &wire) || wire.ErrorType() != "sentinels_unreachable" || !backends.Unsent(err) {
		t.Errorf("SetNX = %v", err)
	}
}

// show tells q of a server at a:1 that has been up for long.
func show(q *driver.Quarantine, run string) {
	_ = q.Saw("a:1", fmt.Sprintf("run_id:%s\r\nuptime_in_seconds:1000000\r\nrole:master\r\nmaster_replid:%s\r\n", run, run), nil)
}

// watched is a hook of a node that has shown a server, and does not refuse grants.
func watched() (*driver.Quarantine, node) {
	q := driver.NewQuarantine()
	q.PerNode()
	redisstore.New(driver.Refuse(errUnanswered), redisstore.Observed("", q))
	show(q, "A")
	return q, node{q, "a:1"}
}

func TestANodeInQuarantineRefusesGrantsAndSendsTheRest(t *testing.T) {
	grant, other := []any{"SET", "a", "1"}, []any{"GET", "a"}
	for name, c := range map[string]struct {
		commands [][]any
		sent     int
		during   bool // quarantine begins when they are on their way
	}{
		"a grant and another command":     {[][]any{grant, other}, 1, false},
		"a grant alone":                   {[][]any{grant}, 0, false},
		"both, already sent":              {[][]any{grant, other}, 2, true},
		"a grant alone, and already sent": {[][]any{grant}, 1, true},
	} {
		q, hook := watched()
		if !c.during {
			show(q, "B")
		}
		var sent []client.Cmder
		answer := func(cmds ...client.Cmder) {
			if len(cmds) == 0 {
				t.Errorf("%s: a pipeline of nothing is sent", name)
			}
			sent = append(sent, cmds...)
			if c.during {
				show(q, "B")
			}
		}
		var cmds []client.Cmder
		for _, args := range c.commands {
			cmds = append(cmds, once{newCommand(t.Context(), args)})
		}
		check := func(way string, err error) {
			refused := (*redisstore.QuarantineError)(nil)
			if !errors.As(err, &refused) || refused.Unsent() == c.during || len(sent) != c.sent {
				t.Errorf("%s, %s: %v; %d sent", name, way, err, len(sent))
			}
			if first := cmds[0].Err(); !reflect.DeepEqual(first, err) {
				t.Errorf("%s, %s: the grant itself says %v", name, way, first)
			}
			if len(cmds) > 1 && cmds[1].Err() != nil {
				t.Errorf("%s, %s: the other command says %v", name, way, cmds[1].Err())
			}
		}
		check("in a pipeline", hook.ProcessPipelineHook(func(_ context.Context, cmds []client.Cmder) error {
			answer(cmds...)
			return nil
		})(t.Context(), cmds))
		if len(cmds) == 1 {
			q, hook = watched()
			if !c.during {
				show(q, "B")
			}
			sent, cmds = nil, []client.Cmder{once{newCommand(t.Context(), grant)}}
			check("by itself", hook.ProcessHook(func(_ context.Context, cmd client.Cmder) error {
				answer(cmd)
				return nil
			})(t.Context(), cmds[0]))
		}
	}
}
