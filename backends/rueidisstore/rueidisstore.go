// Package rueidisstore keeps locks in Redis through github.com/redis/rueidis. What is sent and
// promised is the same for all client libraries: see package backends/redisstore. Below, client is
// rueidis. It is a module of its own:
//
//	go get github.com/lockstep-go/lockstep/backends/rueidisstore    once there is a release; until then with a replace of both modules
//
// # What waits for what
//
// Calls that are made at the same time share a connection. They also share round trips, but not on a
// ClusterClient: the store sends the commands that come while others are under way together, since
// rueidis by itself sends nearly each command alone. A call that was sent alone returns as soon as its ctx is done. One
// that was sent with others returns with the answer, or when all their ctxs are done, or any of
// them and a second has passed. What was sent is carried out nevertheless. On a client for one
// server, or for the master of a Sentinel, all commands of a store go over the same one of its
// connections, in the order of the calls, unless BlockingPipeline is 100 or less; so what is sent
// to clean up after an abandoned command is behind it. How far a command has got that was on a
// connection which broke, nobody knows. A ClusterClient has a connection to each node, unless
// PipelineMultiplex is over 0: then those of one key may overtake one another.
//
// Three things outlast a ctx: while the connection is being made, calls wait for it, up to
// Dialer.Timeout for each phase; when 1024 calls wait for a server that does not answer (2 to the
// power of RingScaleEachConn), further ones wait for those; and calls that need a connection of
// their own (redisstore.WithReplicas, redisstore.WithoutScripts, the transactions of
// backends.LegacyStore) heed the deadline of a ctx while they wait for a reply, and not its
// cancellation. A server that does not answer is given up after Dialer.KeepAlive and
// ConnWriteTimeout, and then all that waited get an error.
//
// Those calls take their connection from the pool for blocking commands. If the application uses up
// all of BlockingPoolSize, they wait for one until their ctx is done (in a cluster, its deadline), and so do
// the renewals among them: a held lock may be lost. With one of these two options, give the locks a client of
// their own.
//
// When the connection of all calls has left a call without an answer for a second, further calls share
// one more connection, from the pool for blocking commands, until the first one answers or is given up:
// leave room for it in BlockingPoolSize. What is sent to clean up may overtake the abandoned command, and
// is sent again when the first connection has answered or is given up. After a pause of seven seconds the
// connection is tested before it is used.
//
// On a ClusterClient this holds for each node. To know them, and for the address in an error, the store sends
// CLUSTER SLOTS when it is made, beside a call once a minute, and after an error. A call whose node is not
// known goes over the first connection, and so do calls of a node that has lost a slot since a second one was
// opened to it. With WithReplicas or WithoutScripts no connection is tested.
//
// # What is sent twice
//
// Nothing, with options that rueidis has by default: after a fault it repeats commands that are
// known to only read, and ours are not marked as such. With a ConnLifetime it does repeat what had
// not been answered when the lifetime was over and a second had passed since. Then a grant may come
// late, when nobody expects it any more: leave ConnLifetime at 0. With Standalone.EnableRedirect it
// repeats all that was sent together when one of them was redirected: leave it off. A cluster's
// client repeats what was answered by MOVED or ASK, since nothing had been done.
package rueidisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	client "github.com/redis/rueidis"
)

// New returns a store that uses c, with the options, the TLS and the credentials that c has. The
// caller closes c. There is no quarantine for servers that may have forgotten locks, unless the
// options of c went through [Quarantine].
//
// With the options that rueidis has by default, a server that does not answer is given up after 11
// s; Open sets shorter ones. While only the connection is silent, and not the server, further calls
// get through after a second. SendToReplicas must be false for all commands but those that
// IsReadOnly. Wake-ups have one connection more, from the first waiter to the last.
//
// If a connection ends under a grant, the outcome is unknown, and the Client makes another attempt
// at once only if the store had not used the connection for a tenth of a second. Open and
// [Quarantine] wrap the connections of a client, so they know that too if the application uses
// them.
//
// A PING precedes the first call, and the next call after one without an answer. Without it, an error of rueidis
// would not tell a connection that was never opened from one whose credentials could not be refreshed: a grant
// that was sent on it may have been done. For a client of Open, this is so only with an AuthCredentialsFn.
//
// In a cluster, calls that need a connection of their own fail with MOVED or ASK after their slot
// has moved, until the client has asked the cluster anew.
func New(c client.Client, opts ...redisstore.Option) *redisstore.Store {
	if e := driver.RefuseNil(c); e != nil {
		return redisstore.New(e, opts...)
	}
	return newStore(newExecutor(c), opts)
}

func newStore(e executor, opts []redisstore.Option) *redisstore.Store {
	if e.cluster {
		return redisstore.New(e, opts...)
	}
	return redisstore.New(pipeliner{e}, opts...)
}

// Open opens a client to one server, the only one of o.InitAddress, with options fit for locks
// where o does not set its own, and returns a store on it together with the client, for the caller
// to close:
//   - a server that does not answer is given up after two seconds, and a connection that can't be made after one for each phase;
//   - client-side caching is off, and neither CLIENT TRACKING nor CLIENT SETINFO is sent;
//   - a server that may have forgotten locks is in quarantine for a little more than the longest
//     TTL, which is 30 seconds by default (see [Quarantine], redisstore.WithMaxTTL and
//     redisstore.WithoutQuarantine).
//
// A server that is down or in quarantine is no error here, but of each call until it is not. The
// error is for options that are not possible, or not for one server: there are New and Quarantine
// for a cluster.
func Open(o client.ClientOption, opts ...redisstore.Option) (*redisstore.Store, client.Client, error) {
	switch {
	case len(o.InitAddress) != 1:
		return nil, nil, errors.New("lockstep: rueidisstore.Open is for one server: InitAddress needs one address")
	case o.Sentinel.MasterSet != "" || len(o.Standalone.ReplicaAddress) > 0 || o.Standalone.EnableRedirect:
		return nil, nil, errors.New("lockstep: rueidisstore.Open is for one server: it takes neither Sentinel.MasterSet nor Standalone")
	case o.ConnLifetime != 0:
		return nil, nil, errors.New("lockstep: with a ConnLifetime rueidis sends commands again, and a lock may be granted late")
	}
	if err := driver.CheckAddr(o.InitAddress[0], ": use rueidis.ParseURL (redis/rueidis)"); err != nil {
		return nil, nil, fmt.Errorf("lockstep: InitAddress: %w", err)
	}
	o.ForceSingleClient = true // and not an error if it can't be reached yet
	o.DisableCache = true
	setDefault(&o.Dialer.Timeout, time.Second)
	setDefault(&o.ConnWriteTimeout, time.Second)
	if o.ClientSetInfo == nil {
		o.ClientSetInfo = client.DisableClientSetInfo
	}
	if redisstore.Quarantines(opts...) {
		opts = append(slices.Clip(opts), Quarantine(&o))
	} else {
		own := o
		o.DialCtxFn = func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
			return dial(ctx, own, addr, dialer, config)
		}
	}
	c, err := client.NewClient(o)
	if c == nil {
		return nil, nil, err
	}
	e := newExecutor(c)
	e.TLS = o.TLSConfig != nil
	e.refreshes = o.AuthCredentialsFn != nil
	return newStore(e, opts), c, nil
}

func setDefault(field *time.Duration, value time.Duration) {
	if *field == 0 {
		*field = value
	}
}
