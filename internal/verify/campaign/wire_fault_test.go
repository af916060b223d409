package campaign

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

// A fault is what happens between a client and a server.
type fault struct {
	name string
	wire redistest.Fault // 0: nothing passes, in either direction
}

var faults = []fault{
	{"request lost", redistest.LoseRequest},
	{"reply lost", redistest.LoseReply},
	{"request late", redistest.DelayRequest},
	{"reply late", redistest.DelayReply},
	{"reset before the server", redistest.CutRequest},
	{"reset behind the server", redistest.CutReply},
	{"black hole", 0},
}

const (
	// callLimit is the time that a caller gives the operation under the fault. A quorum gives its nodes half of that.
	callLimit = time.Second
	// What is late comes between callLimit and this after that, when nobody waits for it any more. A clean-up has been
	// answered by then, and looks again two and a half seconds long (see internal/cleanup). What comes later than that finds
	// nobody who looks, and stays for its TTL.
	latest = time.Second
)

func (f fault) alwaysLasts() bool { return f.wire == 0 }

// isLate: something is still under way when the fault is over.
func (f fault) isLate() bool {
	return f.wire == redistest.DelayRequest || f.wire == redistest.DelayReply
}

// strike lets the fault happen behind the proxies from now on, to what concerns the key. It returns what ends it, when it has
// happened to all of them, and tells at what time the network was well again: nothing of before is under way any more. On a
// machine that is very busy a command may never be sent, since its caller has given up before. Then the fault has not happened
// everywhere, and the case shows nothing.
func (c wireCase) strike(proxies []*redistest.Proxy, key string) (heal func() (well time.Time, happened bool)) {
	if c.fault.wire == 0 {
		for _, p := range proxies {
			p.BlackHole(true)
		}
		return func() (time.Time, bool) {
			for _, p := range proxies {
				p.BlackHole(false)
			}
			return time.Now(), true
		}
	}
	rule := redistest.Rule{Fault: c.fault.wire, Match: func(args []string) bool { return c.strategy.strikes(args, key) }}
	if c.lasting {
		rule.Times = -1
	}
	if c.fault.isLate() {
		dice := rand.New(rand.NewPCG(seed, uint64(c.number)))
		rule.Delay = callLimit + time.Duration(dice.Int64N(int64(latest)))
	}
	active := make([]*redistest.ActiveRule, len(proxies))
	for i, p := range proxies {
		active[i] = p.Add(rule)
	}
	return func() (time.Time, bool) {
		happened := true
		for i, rule := range active {
			happened = fires(rule, proxies[i]) && happened
			rule.Remove()
		}
		if rule.Delay > 0 { // what the rule took last is under way for so long
			time.Sleep(rule.Delay)
		}
		return time.Now(), happened
	}
}

// fires waits until the rule has fired, or nothing is sent any more.
func fires(rule *redistest.ActiveRule, p *redistest.Proxy) bool {
	for sent := -1; sent != len(p.Seen()); {
		sent = len(p.Seen())
		select {
		case <-rule.Fired():
			return true
		case <-time.After(still):
		}
	}
	return false
}

// concerns tells whether a command is about key: it has it among its arguments.
func concerns(args []string, key string) bool { return slices.Contains(args[1:], key) }
