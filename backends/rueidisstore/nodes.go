package rueidisstore

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	client "github.com/redis/rueidis"
)

const (
	slots    = 16384
	oldAfter = time.Minute // what is known of the slots
	soonest  = time.Second // after an error, and not before
	asks     = 4           // nodes that are asked for the slots at once
)

// nodes is which node of a cluster has which slot: rueidis does not tell. The store asks when it is made and
// beside a call, and no call waits for the answer. So it may be out of date. Only the texts of errors depend on
// it, and which connection is in doubt.
type nodes struct {
	born   time.Time
	asked  atomic.Int64 // when, since born
	bySlot atomic.Pointer[[slots]*first]
}

// at returns nil if the node is not known.
func (n *nodes) at(slot int) *first {
	if all := n.bySlot.Load(); all != nil && slot >= 0 {
		return all[slot]
	}
	return nil
}

// byAddr are the nodes that are known.
func (n *nodes) byAddr() map[string]*first {
	known := map[string]*first{}
	if all := n.bySlot.Load(); all != nil {
		for _, f := range all {
			if f != nil {
				known[f.addr()] = f
			}
		}
	}
	return known
}

// firstConn is nil if the node is not known.
func (e executor) firstConn() *first {
	if e.cluster {
		return e.nodes.at(e.slot)
	}
	return e.first
}

// learn asks for the slots in the background if what is known of them is older than that.
func (e executor) learn(than time.Duration) {
	last, now := e.nodes.asked.Load(), int64(time.Since(e.nodes.born))+1
	if (last == 0 || now-last >= int64(than)) && e.nodes.asked.CompareAndSwap(last, now) {
		go e.ask()
	}
}

func (e executor) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	replies := make(chan *[slots]*first, asks)
	asked := 0
	for addr, c := range e.client.Nodes() {
		if asked++; asked > asks {
			break
		}
		go func() {
			reply, _ := decode(c.Do(pipelined(ctx), command(c, []any{"CLUSTER", "SLOTS"})))
			replies <- e.read(addr, reply)
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
func (e executor) read(asked string, reply any) *[slots]*first {
	ranges, _ := reply.([]any)
	var all [slots]*first
	known, before := map[string]*first{}, e.nodes.byAddr()
	for _, one := range ranges {
		fields, _ := one.([]any)
		if len(fields) < 3 {
			continue
		}
		from, ok := fields[0].(int64)
		to, isInt := fields[1].(int64)
		master, _ := fields[2].([]any)
		if !ok || !isInt || from < 0 || to >= slots || len(master) < 2 {
			continue
		}
		host, _ := master[0].(string)
		if host == "" {
			host, _, _ = net.SplitHostPort(asked)
		}
		port, _ := master[1].(int64)
		addr := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		for slot := from; slot <= to; slot++ {
			if known[addr] == nil {
				if known[addr] = before[addr]; known[addr] == nil {
					known[addr] = newFirst(func() client.Client { return e.client.Nodes()[addr] }, func() string { return addr }, e.left)
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
