package drivertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/internal/starting"
	"github.com/lockstep-go/lockstep/proof/full"
)

// Mode is a way to make a store that has contracts of its own.
type Mode struct {
	Name string
	// Bubble runs the contracts in fake time, with a client for each sentence.
	Bubble bool
	// Brief leaves all but the contract of a Store to the nightly run.
	Brief bool

	nightly    bool
	opts       []redisstore.Option
	prefix     string
	polls      bool
	scriptless bool
	replicated bool
}

// The modes.
var (
	Plain      = Mode{Name: "plain"}
	Prefixed   = Mode{Name: "with prefix", opts: []redisstore.Option{redisstore.WithPrefix("app {1}:")}, prefix: "app {1}:"}
	Polling    = Mode{Name: "without wakes", opts: []redisstore.Option{redisstore.WithPrefix("polling:"), redisstore.WithoutWakes()}, prefix: "polling:", polls: true}
	Scriptless = Mode{Name: "without scripts", opts: []redisstore.Option{redisstore.WithPrefix("optimistic:"), redisstore.WithoutScripts()}, prefix: "optimistic:", scriptless: true}
	Replicated = Mode{Name: "with replicas", opts: []redisstore.Option{redisstore.WithPrefix("replicated:"), redisstore.WithReplicas(1, 2*time.Second)}, prefix: "replicated:", replicated: true}
)

// Nightly is m for the nightly run alone.
func (m Mode) Nightly() Mode {
	m.nightly = true
	return m
}

// Run runs all contracts of package backendtest for the stores of a client. In a bubble it connects
// for each sentence, otherwise connect may return the same client each time.
func (m Mode) Run(t *testing.T, connect func(t *testing.T) Client) {
	t.Run(m.Name, func(t *testing.T) {
		if m.nightly {
			full.Only(t)
		}
		m.run(t, contracts{m, connect})
	})
}

func (m Mode) run(t *testing.T, c contracts) {
	t.Run("Store", func(t *testing.T) {
		backendtest.Run(t, harness(c, func(s *redisstore.Store, o Outside) (backends.Store, backendtest.Outside) { return s, o }))
	})
	t.Run("started", func(t *testing.T) {
		backendtest.Run(t, harness(c, func(s *redisstore.Store, o Outside) (backends.Store, backendtest.Outside) {
			return starting.Awaited(s), o
		}))
	})
	t.Run("others", func(t *testing.T) {
		if m.Brief {
			full.Only(t)
		}
		m.others(t, c)
	})
}

// others runs the contracts of what some strategies need beside a Store.
func (m Mode) others(t *testing.T, c contracts) {
	t.Run("LegacyStore", func(t *testing.T) {
		backendtest.RunLegacy(t, harness(c, func(s *redisstore.Store, o Outside) (backends.LegacyStore, backendtest.Outside) { return s, o }))
	})
	if m.scriptless {
		return
	}
	queues := !m.polls && !m.replicated
	if queues {
		t.Run("QueuedStore", func(t *testing.T) {
			backendtest.RunQueued(t, harness(c, func(s *redisstore.Store, o Outside) (backends.QueuedStore, backendtest.Outside) { return s, o }))
		})
	}
	t.Run("NumberedStore", func(t *testing.T) {
		h := harness(c, func(s *redisstore.Store, o Outside) (backends.NumberedStore, backendtest.Outside) { return s, o })
		h.NoQueue = !queues
		backendtest.RunNumbered(t, h)
	})
	t.Run("FencedStore", func(t *testing.T) {
		h := harness(c, func(s *redisstore.Store, o Outside) (backends.FencedStore, backendtest.Outside) { return s, o })
		h.NoQueue = !queues
		backendtest.RunFenced(t, h)
	})
	t.Run("TransferStore", func(t *testing.T) {
		backendtest.RunTransfer(t, harness(c, func(s *redisstore.Store, o Outside) (backends.TransferStore, backendtest.SharedOutside) { return s, o }))
	})
	if !queues {
		t.Run("SharedStore", func(t *testing.T) {
			backendtest.RunShared(t, harness(c, func(s *redisstore.Store, o Outside) (backends.SharedStore, backendtest.SharedOutside) { return s, o }))
		})
		return
	}
	t.Run("OrderedStore", func(t *testing.T) {
		backendtest.RunOrdered(t, harness(c, func(s *redisstore.Store, o Outside) (backends.OrderedStore, backendtest.SharedOutside) { return s, o }))
	})
	t.Run("Inspector", func(t *testing.T) {
		backendtest.RunInspector(t, harness(c, func(s *redisstore.Store, o Outside) (backendtest.InspectedStore, backendtest.SharedOutside) {
			return s, o
		}))
	})
}

// OnOpen runs the contract of a Store for the store of Open.
func OnOpen(t *testing.T, store *redisstore.Store, exec driver.Executor) {
	backendtest.Run(t, backendtest.Harness{MaxTTL: time.Hour, New: func(t *testing.T) (backends.Store, backendtest.Outside) {
		return store, Outside{t, exec, ""}
	}})
}

type contracts struct {
	Mode
	connect func(t *testing.T) Client
}

func harness[S, O any](c contracts, as func(*redisstore.Store, Outside) (S, O)) backendtest.HarnessFor[S, O] {
	opts, maxTTL := c.opts, time.Duration(0) // a store as it comes
	if !c.Bubble {                           // no machine is too slow for an hour
		opts, maxTTL = append(opts, redisstore.WithMaxTTL(time.Hour)), time.Hour
	}
	return backendtest.HarnessFor[S, O]{
		Clock: true, Bubble: c.Bubble, MaxTTL: maxTTL, NoWatch: c.polls, Beside: besides,
		New: func(t *testing.T) (S, O) {
			client := c.connect(t)
			return as(client.New(opts...), Outside{t, client.Executor, c.prefix})
		},
	}
}

// besides lists the counter and the queue of key, except where their name is a number in the slot.
func besides(key string) []string {
	switch open := strings.Index(key, "{"); {
	case !strings.ContainsAny(key, "{}"):
		return []string{"{" + key + "}:\x00fence", "{" + key + "}:\x00queue"}
	case open >= 0 && strings.Index(key[open:], "}") > 1:
		return []string{key + "#\x00fence", key + "#\x00queue"}
	}
	return nil
}

// Outside works on the plain keys, below the prefix of the store.
type Outside struct {
	T      *testing.T
	Exec   driver.Executor
	Prefix string
}

// Get implements [backendtest.Outside].
func (o Outside) Get(key string) (string, time.Duration, bool) {
	o.T.Helper()
	left, _ := o.Do("PTTL", o.Prefix+key).(int64)
	if left == -2 {
		return "", 0, false
	}
	ttl := max(time.Duration(left)*time.Millisecond, 0)
	value, err := o.Exec.Do(context.Background(), "GET", o.Prefix+key)
	if reply := (*driver.ReplyError)(nil); errors.As(err, &reply) && reply.Code() == "WRONGTYPE" {
		return "", ttl, true
	}
	o.must(err)
	text, ok := value.(string) // or it expired in between
	return text, ttl, ok
}

// Set implements [backendtest.Outside].
func (o Outside) Set(key, value string, ttl time.Duration) {
	o.T.Helper()
	if ttl > 0 {
		o.Do("SET", o.Prefix+key, value, "PX", ttl.Milliseconds())
		return
	}
	o.Do("SET", o.Prefix+key, value)
}

// SetOther implements [backendtest.Outside].
func (o Outside) SetOther(key string) { o.replace(key, "RPUSH", "element") }

// SetShared implements [backendtest.SharedOutside]. The set is what is due in a queue of jobs: its scores
// are times, as those of holds that have ended.
func (o Outside) SetShared(key string) {
	o.replace(key, "ZADD", "1600000000000", "job", "1700000000000", "other")
}

// Delete implements [backendtest.Outside].
func (o Outside) Delete(key string) {
	o.T.Helper()
	o.Do("DEL", o.Prefix+key)
}

func (o Outside) replace(key, command string, args ...any) {
	o.T.Helper()
	o.Delete(key)
	o.Do(append([]any{command, o.Prefix + key}, args...)...)
}

// Do sends a command. Sentences look once more after their own ctx has ended.
func (o Outside) Do(args ...any) any {
	o.T.Helper()
	reply, err := o.Exec.Do(context.Background(), args...)
	o.must(err)
	return reply
}

func (o Outside) must(err error) {
	o.T.Helper()
	if err != nil {
		o.T.Fatal(err)
	}
}
