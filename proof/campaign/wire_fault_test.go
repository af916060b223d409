package campaign

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

// A fault is a fault of the network between a client and a server.
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
	// callLimit is how long the caller waits for the operation under the fault. A quorum gives its
	// nodes half of that.
	callLimit = time.Second
	// latest: a late message comes after callLimit, when nobody waits for it any more, and no later
	// than this after it. A cleanup was answered by then, and looks again for two and a half
	// seconds (see internal/cleanup). A token that came even later would stay for its TTL.
	latest = time.Second
)

func (f fault) alwaysLasts() bool { return f.wire == 0 }

// isLate tells whether messages are still under way when the fault ends.
func (f fault) isLate() bool {
	return f.wire == redistest.DelayRequest || f.wire == redistest.DelayReply
}

// strike begins the fault on the proxies, for all messages about the key. heal waits until it has
// happened on each of them, ends it, and returns when the network worked again: no late message is
// then under way. On a very busy machine a caller may stop before its command is sent. Then the
// fault did not happen on each proxy, and the case shows nothing.
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
		if rule.Delay > 0 { // the last message of the rule is under way for so long
			time.Sleep(rule.Delay)
		}
		return time.Now(), happened
	}
}

// fires waits until the rule has fired, or nothing more is sent.
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

// concerns tells whether key is an argument of a command.
func concerns(args []string, key string) bool { return slices.Contains(args[1:], key) }
