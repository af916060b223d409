package wiretest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

type class string

const (
	permanent class = "permanent"
	notDone   class = "not done"
	unknown   class = "unknown"
)

func classOf(err error) class {
	switch {
	case backends.Permanent(err):
		return permanent
	case backends.Unsent(err):
		return notDone
	}
	return unknown
}

// refusals are error replies to commands that are not executed.
var refusals = []struct {
	text  string
	class class
}{
	{"LOADING Redis is loading the dataset in memory", notDone},
	{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", notDone},
	{"READONLY You can't write against a read only replica.", notDone},
	{"OOM command not allowed when used memory > 'maxmemory'.", notDone},
	{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", notDone},
	{"NOREPLICAS Not enough good replicas to write.", notDone},
	{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", notDone},
	{"CLUSTERDOWN The cluster is down", notDone},
	{"TRYAGAIN Multiple keys request during rehashing of slot", notDone},
	{"MOVED 3999 127.0.0.1:1", notDone},
	{"ASK 3999 127.0.0.1:1", notDone},
	{"ERR max number of clients reached", notDone},
	{"NOSCRIPT No matching script. Please use EVAL.", notDone},
	{"NOPERM this user has no permissions to run the command", permanent},
	{"WRONGTYPE Operation against a key holding the wrong kind of value", permanent},
	{"ERR that nobody knows", unknown},

	{"OOM command not allowed when used memory > 'maxmemory'. script: 0f1e2d, on @user_script:9.", notDone},
	{"ERR Error running script (call to f_0f1e2d): @user_script:9: @user_script: 9: -READONLY You can't write against a read only replica.", notDone},
	{"BUSY that came from a script script: 0f1e2d, on @user_script:9.", unknown},
}

// replaced are error replies in place of the reply to a command that was executed.
var replaced = []string{
	"-ERR Error running script (call to f_0f1e2d): @user_script:9: Script killed by user with SCRIPT KILL.\r\n",
	"-ERR attempt to compare nil with number script: 0f1e2d, on @user_script:9.\r\n",
	"?what is this\r\n",
	":what is this\r\n",
}

// An operation is one call on its own lock, which is prepared first.
type operation struct {
	name    string
	scripts bool // it needs them
	release bool
	prepare func(c *calls)
	call    func(c *calls) (bool, error)
	keeps   func(c *calls) bool // the prepared lock is still held; nil: none was prepared
}

// calls are the calls of an operation, on its own key.
type calls struct {
	t     *testing.T
	store *redisstore.Store
	clean *redisstore.Store // without faults
	do    func(args ...string) any
	key   string
}

func (c *calls) setNX(s *redisstore.Store) (bool, error) {
	r, err := s.SetNX(c.t.Context(), c.key, "token", short)
	return r.OK, err
}

func (c *calls) enter(s *redisstore.Store, token string) (bool, error) {
	r, err := s.Enter(c.t.Context(), c.key, token, short, backends.Admission{Group: "me"})
	return r.OK, err
}

func (c *calls) must(ok bool, err error) {
	c.t.Helper()
	if !ok || err != nil {
		c.t.Fatalf("%s: preparing = %v, %v", c.key, ok, err)
	}
}

func (c *calls) isStored() bool { return c.do("GET", c.key) == "token" }

func (c *calls) isEntered() bool { return c.do("ZSCORE", c.key, "token") != nil }

func (c *calls) fenced(s *redisstore.Store) (bool, error) {
	r, err := s.SetNXFenced(c.t.Context(), c.key, "token", short)
	return r.OK, err
}

var operations = []operation{
	{name: "SetNX", call: func(c *calls) (bool, error) { return c.setNX(c.store) }},
	{
		name: "SetNX again", prepare: func(c *calls) { c.must(c.setNX(c.clean)) }, keeps: (*calls).isStored,
		call: func(c *calls) (bool, error) { return c.setNX(c.store) },
	},
	{
		name: "SetNXQueued", scripts: true,
		call: func(c *calls) (bool, error) {
			r, err := c.store.SetNXQueued(c.t.Context(), c.key, "token", short, backends.Turn{Waiter: "me", InOrder: true})
			return r.OK, err
		},
	},
	{
		name: "ExpireIf", prepare: func(c *calls) { c.must(c.setNX(c.clean)) }, keeps: (*calls).isStored,
		call: func(c *calls) (bool, error) { return c.store.ExpireIf(c.t.Context(), c.key, "token", long) },
	},
	{
		name: "DeleteIf", release: true, prepare: func(c *calls) { c.must(c.setNX(c.clean)) }, keeps: (*calls).isStored,
		call: func(c *calls) (bool, error) { return c.store.DeleteIf(c.t.Context(), c.key, "token") },
	},
	{name: "SetNXFenced", scripts: true, call: func(c *calls) (bool, error) { return c.fenced(c.store) }},
	{
		name: "RaiseFence", scripts: true, prepare: func(c *calls) { c.must(c.fenced(c.clean)) }, keeps: (*calls).isStored,
		call: func(c *calls) (bool, error) { return c.store.RaiseFence(c.t.Context(), c.key, "token", 1<<40) },
	},
	{name: "Enter", scripts: true, call: func(c *calls) (bool, error) { return c.enter(c.store, "token") }},
	{
		name: "Renew", scripts: true, prepare: func(c *calls) { c.must(c.enter(c.clean, "token")) }, keeps: (*calls).isEntered,
		call: func(c *calls) (bool, error) { return c.store.Renew(c.t.Context(), c.key, "token", long) },
	},
	{
		name: "Leave", scripts: true, release: true, prepare: func(c *calls) { c.must(c.enter(c.clean, "token")) }, keeps: (*calls).isEntered,
		call: func(c *calls) (bool, error) { return c.store.Leave(c.t.Context(), c.key, "token") },
	},
}

// ErrorReplies lets each command of each operation meet each error reply once. The error has the
// right class, unless the call succeeds all the same. A lock that was held stays held, and a lock
// that was not granted is not held. The same call works as soon as the fault has ended.
func ErrorReplies(t *testing.T, open Open) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			b := &bench{
				server: server, proxy: proxy,
				store: open(t, proxy.Addr(), mode.opts...), clean: open(t, server.Addr(), mode.opts...),
			}
			for _, op := range operations {
				if op.scripts && mode.opts != nil {
					continue
				}
				commands := b.commands(t, op)
				if len(commands) == 0 {
					t.Fatalf("%s sends nothing", op.name)
				}
				for nth, name := range commands {
					// Servers refuse it only to users without the permission, which the store
					// finds out before.
					if name == "MULTI" {
						continue
					}
					for _, r := range refusals {
						switch {
						case strings.Contains(r.text, "@user_script") && name != "EVALSHA":
							continue
						case name == "EXEC":
							r.text = "EXECABORT Transaction discarded because of: " + r.text
							if r.class == unknown {
								r.class = notDone
							}
						}
						b.refuse(t, op, commands, nth, r.text, r.class)
					}
					for _, reply := range replaced {
						b.replace(t, op, commands, nth, reply)
					}
				}
			}
			if b.met == 0 || b.met < b.tried*3/4 {
				t.Errorf("%d of %d faults were met", b.met, b.tried)
			}
		})
	}
}

// bench lets operations meet faults.
type bench struct {
	server       *redistest.Server
	proxy        *redistest.Proxy
	store, clean *redisstore.Store
	keys         int
	tried, met   int
}

func (b *bench) on(t *testing.T, op operation) *calls {
	t.Helper()
	b.keys++
	c := &calls{t: t, store: b.store, clean: b.clean, key: fmt.Sprint(op.name, " ", b.keys), do: func(args ...string) any {
		reply, err := b.server.Do(args...)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}}
	if op.prepare != nil {
		op.prepare(c)
	}
	return c
}

// own are commands that a client library sends by itself.
var own = []string{"HELLO", "CLIENT", "PING", "AUTH", "SELECT", "INFO", "QUIT", "UNWATCH", "READONLY"}

// commands returns the commands of an operation without faults.
func (b *bench) commands(t *testing.T, op operation) []string {
	t.Helper()
	b.on(t, op).must(op.call(b.on(t, op))) // opens the connection and loads the scripts
	c := b.on(t, op)
	b.proxy.Forget()
	c.must(op.call(c))
	return slices.DeleteFunc(b.proxy.Seen(), func(name string) bool { return slices.Contains(own, name) })
}

// meets does an operation whose nth command meets a fault.
func (b *bench) meets(c *calls, op operation, commands []string, nth int, rule redistest.Rule) (met, ok bool, err error) {
	rule.Commands, rule.Nth = []string{commands[nth]}, 1
	for _, earlier := range commands[:nth] {
		if earlier == commands[nth] {
			rule.Nth++
		}
	}
	active := b.proxy.Add(rule)
	ok, err = op.call(c)
	active.Remove()
	b.tried++
	select {
	case <-active.Fired():
		b.met++
		met = true
	default: // the operation sent other commands this time
	}
	return met, ok, err
}

func (b *bench) refuse(t *testing.T, op operation, commands []string, nth int, text string, want class) {
	t.Helper()
	c := b.on(t, op)
	what := fmt.Sprintf("%s, whose %s no. %d gets %q,", op.name, commands[nth], nth+1, text)
	met, ok, err := b.meets(c, op, commands, nth, redistest.Rule{Fault: redistest.Refuse, Reply: "-" + text + "\r\n"})
	// A release does as much as it may: the lock is free, though not all waiters are woken.
	mayBeDone := op.release && want == permanent
	switch {
	case ok && err == nil: // it succeeded: a command that was not executed may be repeated
		if met && want == permanent && !mayBeDone {
			t.Errorf("%s is done", what)
		}
	case err == nil:
		t.Errorf("%s is told that the lock is not there, or another's", what)
	case classOf(err) != want:
		t.Errorf("%s = %v, which is %s; want %s", what, err, classOf(err), want)
	case op.keeps != nil && !mayBeDone && !op.keeps(c):
		t.Errorf("%s has lost the lock", what)
	case op.keeps == nil && want != unknown && c.do("EXISTS", c.key) != int64(0):
		t.Errorf("%s = %v, and the lock is there", what, err)
	}
	if op.release && (ok || mayBeDone) {
		return
	}
	if ok, err := op.call(c); !ok || err != nil {
		t.Errorf("after %s it is %v, %v", what, ok, err)
	}
}

func (b *bench) replace(t *testing.T, op operation, commands []string, nth int, reply string) {
	t.Helper()
	c := b.on(t, op)
	what := fmt.Sprintf("%s, whose %s no. %d gets %q after it was carried out,", op.name, commands[nth], nth+1, reply)
	_, ok, err := b.meets(c, op, commands, nth, redistest.Rule{Fault: redistest.Answer, Reply: reply})
	switch {
	case ok && err == nil: // it was repeated, or another reply had the answer
	case err == nil && !op.release:
		t.Errorf("%s is told that the lock is not there, or another's", what)
	case err == nil:
		t.Errorf("%s is told that it has lost the lock", what)
	case classOf(err) != unknown:
		t.Errorf("%s = %v, which is %s; want unknown", what, err, classOf(err))
	case errors.As(err, new(*redisstore.ReplyError)) != strings.HasPrefix(reply, "-"):
		t.Errorf("%s = %v of type %T", what, err, err)
	}
	if op.release {
		return
	}
	if ok, err := op.call(c); !ok || err != nil {
		t.Errorf("after %s it is %v, %v", what, ok, err)
	}
}
