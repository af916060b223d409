package redistest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/daemon"
)

// A Cluster is a Redis Cluster on loopback ports. Only the goroutine of the test may call its
// methods.
type Cluster struct {
	tb      testing.TB
	servers []*Server // the masters first, as it was at the start
	ids     map[*Server]string
}

const (
	slots = 16384

	// Node timeouts in ms. News spreads through the cluster in half of one.
	calm   = "15000" // long enough for a busy machine, since nothing is to fail over
	lively = "3000"  // at the start
	alert  = "1000"  // once a master was killed
)

// StartCluster runs a cluster with some replicas for each master, and returns when every server
// says that the cluster is complete. The slots are divided evenly. Redis needs two seconds for
// this.
func StartCluster(tb testing.TB, masters, replicas int) *Cluster {
	tb.Helper()
	Require(tb)
	c := &Cluster{tb: tb, servers: make([]*Server, masters*(1+replicas)), ids: map[*Server]string{}}
	errs := make([]error, len(c.servers))
	var starts sync.WaitGroup
	for i := range c.servers {
		dir := tb.TempDir()
		starts.Go(func() { c.servers[i], errs[i] = launchNode(tb, dir) })
	}
	starts.Wait()
	for _, err := range errs {
		if err != nil {
			tb.Fatalf("redistest: %v", err)
		}
	}
	for i, s := range c.servers {
		c.ids[s] = must(s, "CLUSTER", "MYID").(string)
		// otherwise they must first agree on epochs
		must(s, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < masters {
			first, last := i*slots/masters, (i+1)*slots/masters-1
			must(s, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		}
	}
	c.meet()
	for i, s := range c.servers[masters:] {
		until(tb, "a replica knows its master", func() bool {
			_, err := s.Do("CLUSTER", "REPLICATE", c.ids[c.servers[i%masters]])
			return err == nil
		})
	}
	until(tb, "the cluster is complete", func() bool { return c.complete(masters, 1+replicas) })
	c.patience(calm)
	return c
}

// launchNode starts a server with a second port for the other nodes.
func launchNode(tb testing.TB, dir string) (*Server, error) {
	for attempt := 1; ; attempt++ {
		bus, err := daemon.ReservePort()
		if err != nil {
			return nil, err
		}
		s, err := launch(tb, dir, config{args: []string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus.Number), "--cluster-announce-ip", "127.0.0.1",
			"--cluster-node-timeout", lively, "--cluster-replica-validity-factor", "0",
			// a replica with offset 0 is not listed
			"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
		}})
		if err == nil {
			tb.Cleanup(bus.Close)
			return s, nil
		}
		bus.Close()
		if !daemon.IsPortTaken(err) || attempt == 3 {
			return nil, err
		}
	}
}

// meet introduces each server to each other, which is faster than gossip.
func (c *Cluster) meet() {
	for _, s := range c.servers {
		for _, other := range c.servers {
			if other != s {
				host, port, _ := net.SplitHostPort(other.Addr())
				bus := must(other, "CONFIG", "GET", "cluster-port").([]any)
				must(s, "CLUSTER", "MEET", host, port, bus[1].(string))
			}
		}
	}
}

// complete tells whether every living server knows so many masters, each with at least so many
// servers.
func (c *Cluster) complete(masters, each int) bool {
	for _, s := range c.living() {
		ranges := view(s)
		if len(ranges) == 0 || field(s, "cluster_state", "CLUSTER", "INFO") != "ok" {
			return false
		}
		found := map[string]bool{}
		for _, r := range ranges {
			found[r.addrs[0]] = true
			if len(r.addrs) < each {
				return false
			}
		}
		if len(found) != masters || !following(s) {
			return false
		}
	}
	return true
}

// Servers returns all servers. Those that were masters at the start come first.
func (c *Cluster) Servers() []*Server { return slices.Clone(c.servers) }

// Addrs returns their addresses.
func (c *Cluster) Addrs() []string { return addrs(c.servers) }

// Masters returns the servers that have slots now.
func (c *Cluster) Masters() []*Server {
	c.tb.Helper()
	var masters []*Server
	for _, r := range c.ranges() {
		if m := c.at(r.addrs[0]); m != nil && !slices.Contains(masters, m) {
			masters = append(masters, m)
		}
	}
	return masters
}

// Master returns the server that has the slot of key.
func (c *Cluster) Master(key string) *Server {
	c.tb.Helper()
	m := c.master(c.ranges(), c.slot(key))
	if m == nil {
		c.tb.Fatalf("redistest: no server has the slot of %q", key)
	}
	return m
}

// KeyOn returns a key that m has. The key is format with a number.
func (c *Cluster) KeyOn(m *Server, format string) string {
	c.tb.Helper()
	for i := range 1000 {
		if key := fmt.Sprintf(format, i); c.Master(key) == m {
			return key
		}
	}
	c.tb.Fatalf("redistest: no key like %q is on %s", format, m.Addr())
	return ""
}

// MoveSlot moves the slot of key, with all keys in it, to another master, and returns when all
// servers know it.
func (c *Cluster) MoveSlot(key string, to *Server) {
	c.tb.Helper()
	c.BeginMove(key, to).Finish()
}

// A Move is a slot that is moving. For a key that the old master does not have, it sends the client
// to the new one with ASK.
type Move struct {
	c        *Cluster
	slot     int64
	from, to *Server
}

// BeginMove prepares both masters to move the slot of key.
func (c *Cluster) BeginMove(key string, to *Server) *Move {
	c.tb.Helper()
	m := &Move{c: c, slot: c.slot(key), from: c.Master(key), to: to}
	m.set(to, "IMPORTING", m.from)
	m.set(m.from, "MIGRATING", to)
	return m
}

// Keys moves the keys of the slot.
func (m *Move) Keys() {
	m.c.tb.Helper()
	slot := strconv.FormatInt(m.slot, 10)
	host, port, _ := net.SplitHostPort(m.to.Addr())
	for {
		keys := must(m.from, "CLUSTER", "GETKEYSINSLOT", slot, "100").([]any)
		if len(keys) == 0 {
			return
		}
		migrate := []string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}
		for _, key := range keys {
			migrate = append(migrate, key.(string))
		}
		must(m.from, migrate...) // NOKEY if they have expired meanwhile
	}
}

// Finish moves the keys that are left, and gives the slot to the new master.
func (m *Move) Finish() {
	m.c.tb.Helper()
	m.Keys()
	m.set(m.to, "NODE", m.to)
	m.set(m.from, "NODE", m.to)
	until(m.c.tb, "all servers know where the slot is", func() bool { return m.c.agreed(m.slot) == m.to })
}

func (m *Move) set(on *Server, state string, of *Server) {
	m.c.tb.Helper()
	must(on, "CLUSTER", "SETSLOT", strconv.FormatInt(m.slot, 10), state, m.c.ids[of])
}

// KillMaster kills the server that has key, and makes the others notice within a second or two.
func (c *Cluster) KillMaster(key string) *Server {
	c.tb.Helper()
	c.patience(alert)
	dead := c.Master(key)
	dead.Kill()
	return dead
}

// Replace kills the master of key and starts it again at another address, without its keys, as a pod comes
// back. It returns when all nodes know the new address.
func (c *Cluster) Replace(key string) {
	c.tb.Helper()
	old := c.Master(key)
	old.Kill()
	s, err := launchNode(c.tb, old.dir)
	if err != nil {
		c.tb.Fatalf("redistest: %v", err)
	}
	c.servers[slices.Index(c.servers, old)], c.ids[s] = s, c.ids[old]
	until(c.tb, "all nodes know the new address", func() bool { return c.agreed(c.slot(key)) == s })
}

// AwaitFailover waits until all servers agree that another one than dead has key, and that the
// cluster is complete.
func (c *Cluster) AwaitFailover(key string, dead *Server) *Server {
	c.tb.Helper()
	slot := c.slot(key)
	masters := len(c.Masters())
	until(c.tb, "a replica has taken over", func() bool {
		m := c.agreed(slot)
		return m != nil && m != dead && c.complete(masters, 1)
	})
	c.patience(calm)
	return c.agreed(slot)
}

func (c *Cluster) patience(ms string) {
	c.tb.Helper()
	for _, s := range c.living() {
		must(s, "CONFIG", "SET", "cluster-node-timeout", ms)
	}
}

func (c *Cluster) living() []*Server { return living(c.servers) }

func (c *Cluster) slot(key string) int64 {
	c.tb.Helper()
	return must(c.living()[0], "CLUSTER", "KEYSLOT", key).(int64)
}

func (c *Cluster) at(addr string) *Server { return at(c.servers, addr) }

// masterBy returns the server that has a slot, as s sees it, or nil.
func (c *Cluster) masterBy(s *Server, slot int64) *Server { return c.master(view(s), slot) }

// ranges returns how the first living server sees the cluster. On a busy machine it may not answer
// at once.
func (c *Cluster) ranges() (ranges []slotRange) {
	c.tb.Helper()
	until(c.tb, "a server says which master has which slots", func() bool {
		ranges = view(c.living()[0])
		return len(ranges) > 0
	})
	return ranges
}

func (c *Cluster) master(ranges []slotRange, slot int64) *Server {
	for _, r := range ranges {
		if r.first <= slot && slot <= r.last {
			return c.at(r.addrs[0])
		}
	}
	return nil
}

// agreed returns the server that has a slot for all servers, or nil if they differ.
func (c *Cluster) agreed(slot int64) *Server {
	var m *Server
	for i, s := range c.living() {
		sees := c.masterBy(s, slot)
		if i > 0 && sees != m {
			return nil
		}
		m = sees
	}
	return m
}

// slotRange is a line of CLUSTER SLOTS: the master's address comes first.
type slotRange struct {
	first, last int64
	addrs       []string
}

// view returns how s sees the cluster. It is empty if s does not answer.
func view(s *Server) []slotRange {
	reply, _ := s.call(time.Second, "CLUSTER", "SLOTS")
	lines, _ := reply.([]any)
	var ranges []slotRange
	for _, line := range lines {
		fields := line.([]any)
		r := slotRange{first: fields[0].(int64), last: fields[1].(int64)}
		for _, node := range fields[2:] {
			n := node.([]any)
			r.addrs = append(r.addrs, net.JoinHostPort(n[0].(string), fmt.Sprint(n[1])))
		}
		ranges = append(ranges, r)
	}
	return ranges
}
