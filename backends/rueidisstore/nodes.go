package rueidisstore

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
)

const (
	slots    = 16384
	oldAfter = time.Minute // what is known of the slots
	soonest  = time.Second // after an error, and not before
	asks     = 4           // nodes that are asked for the slots at once
)

// nodes is which node of a cluster has which slot: rueidis does not tell. The store asks beside a call, and no
// call waits for the answer. So it may be out of date. Only the texts of errors depend on it, and which idle
// connection is tested.
type nodes struct {
	born    time.Time
	asked   atomic.Int64 // when, since born
	bySlot  atomic.Pointer[[slots]*node]
	unknown node // stands for all while nothing is known
}

type node struct {
	addr  string
	heard atomic.Int64 // when it answered last, since born
}

func (n *nodes) now() int64 { return int64(time.Since(n.born)) + 1 }

func (n *nodes) at(slot uint16) *node {
	if all := n.bySlot.Load(); all != nil && all[slot] != nil {
		return all[slot]
	}
	return &n.unknown
}

// isIdle tells that a node has answered nothing for so long that it is tested before a grant.
func (n *nodes) isIdle(at *node) bool { return n.now()-at.heard.Load() >= int64(idle) }

// heard notes how a call over the connection that all calls to a node share has ended.
func (e executor) heard(err error) {
	switch {
	case !e.cluster:
	case !isAnswer(err):
		e.learn(soonest)
	case e.slot >= 0:
		e.nodes.at(uint16(e.slot)).heard.Store(e.nodes.now())
	}
}

// learn asks for the slots in the background if what is known of them is older than that.
func (e executor) learn(than time.Duration) {
	last, now := e.nodes.asked.Load(), e.nodes.now()
	if (last == 0 || now-last >= int64(than)) && e.nodes.asked.CompareAndSwap(last, now) {
		go e.ask()
	}
}

func (e executor) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	replies := make(chan *[slots]*node, asks)
	asked := 0
	for addr, c := range e.client.Nodes() {
		if asked++; asked > asks {
			break
		}
		go func() {
			reply, _ := decode(c.Do(pipelined(ctx), command(c, []any{"CLUSTER", "SLOTS"})))
			replies <- e.nodes.read(addr, reply)
		}()
	}
	for range min(asked, asks) {
		if all := <-replies; all != nil {
			e.nodes.bySlot.Store(all)
			return
		}
	}
}

// read returns nil for a reply that tells nothing. The node at asked has sent it.
func (n *nodes) read(asked string, reply any) *[slots]*node {
	ranges, _ := reply.([]any)
	var all [slots]*node
	known := map[string]*node{}
	for _, one := range ranges {
		fields, _ := one.([]any)
		if len(fields) < 3 {
			continue
		}
		first, ok := fields[0].(int64)
		last, isInt := fields[1].(int64)
		master, _ := fields[2].([]any)
		if !ok || !isInt || first < 0 || last >= slots || len(master) < 2 {
			continue
		}
		host, _ := master[0].(string)
		if host == "" {
			host, _, _ = net.SplitHostPort(asked)
		}
		port, _ := master[1].(int64)
		addr := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		for slot := first; slot <= last; slot++ {
			if known[addr] == nil {
				known[addr] = &node{addr: addr}
				if before := n.at(uint16(slot)); before.addr == addr {
					known[addr] = before
				}
			}
			all[slot] = known[addr]
		}
	}
	if len(known) == 0 {
		return nil
	}
	return &all
}

// test asks the node that a grant goes to, which was idle: a load balancer may have forgotten the connection,
// and the grant would end as unknown. The question is sent once more, over the next connection, when rueidis
// has given the first one up.
func (e executor) test(ctx context.Context, key string) (err error) {
	for range 2 {
		err = e.client.Do(pipelined(ctx), command(e.client, []any{"PING"}).SetSlot(key)).NonRedisError()
		if err == nil || driver.Ended(ctx) != nil {
			break
		}
	}
	if err != nil {
		return driver.NotSent(ctx, e.addr(), e.translate(ctx, err))
	}
	return nil
}
