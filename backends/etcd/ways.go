package etcd

import (
	"container/list"
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ways choose the connection for each call for a lock.
//
// The client has one connection to each member, and asks the members in turn. gRPC tests a silent one
// every ten seconds at most, and without a keep-alive it never does. So if a call ends without an answer, or
// is under way for a while in which its connection has answered no other one, the next ones go over a
// connection of the store to one member. If that is silent too, or if its member is down or refuses calls,
// they go to the next member.
//
// A call that its caller leaves sooner tells too little. So reads that outlive it ask each member: see ask.
//
// Meanwhile reads wait on the connections of the client. When all have ended, each of these has answered,
// or gRPC has made it anew. Then calls go over the client again.
//
// If the client gets other endpoints meanwhile, calls go over it again at once: they may be those of
// another cluster.
//
// A call goes over one way, once. What reads may go over another one if its member could not be reached.
type ways struct {
	client *clientv3.Client
	home   string // a key that the user of the client may read

	mu        sync.Mutex
	first     *way            // the client's own. A new value is made each time that calls go back to it
	now       *way            // where the next call goes
	more      map[string]*way // those of the store, by endpoint. They end when calls go over the client again
	endpoints []string        // of the client, when calls left it
	turn      int             // of the endpoints, for the next one
	since     time.Time       // the connections of the store that are counted were made after it
	made      int
	asking    chan struct{} // closed when the reads of ask have ended; nil: there are none
	asked     time.Time     // when the last ones began
}

// silence is how long a call has had no answer if its connection counts as silent. It is a bit less than a
// second, which is the shortest limit of a cleanup.
const silence = 900 * time.Millisecond

// pause is the time in which a store makes one connection to each member at most. A server may be slow,
// and answer what waits on the connections of the client.
const pause = 10 * time.Second

// askLimit is the limit of a read that only finds out whether a member answers. Such reads begin no more
// often either, however many calls are left.
const askLimit = time.Second

const maxOverdue = 8

// A way is a connection, and the calls that are under way on it, in the order in which they began.
type way struct {
	kv       clientv3.KV
	lease    clientv3.Lease
	conn     *grpc.ClientConn
	waits    bool // for a member that can't be reached, as the client library does: there is no other one
	calls    list.List
	entered  time.Time // calls go over it since
	answered time.Time // the last time
	spent    bool      // it has answered, and is silent now
	refused  time.Time // its member has refused a call, which another one may do
	close    func()    // nil: the client closes it
	leaving  bool      // it is closed when its calls have ended
}

// A call is what goes over a way.
type call struct {
	*way
	ways  *ways
	ctx   context.Context
	began time.Time
	at    *list.Element
}

func newWays(client *clientv3.Client, home string) *ways {
	w := &ways{client: client, home: home, more: map[string]*way{}, turn: rand.IntN(1 << 16)}
	w.goBack()
	return w
}

// goBack lets calls go over the client. What goes over it from now on is judged anew.
func (w *ways) goBack() {
	w.first = &way{kv: w.client, lease: w.client, conn: w.client.ActiveConnection(), waits: true}
	w.enter(w.first)
	for _, other := range w.more {
		other.retire()
	}
	clear(w.more)
}

// enter lets calls go over a way.
func (w *ways) enter(next *way) {
	if w.now != next {
		w.now, next.entered = next, time.Now()
	}
}

// follow goes back if the client has other endpoints than when calls left it.
func (w *ways) follow(endpoints []string) {
	if w.now != w.first && !slices.Equal(endpoints, w.endpoints) {
		w.goBack()
	}
}

// begin returns a call for its caller to make and to end.
func (w *ways) begin(ctx context.Context) *call {
	began := time.Now()
	if old, all, silent := w.overdue(began); silent || slices.ContainsFunc(all, (*call).isOver) {
		w.leave(old, true)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now != w.first {
		w.follow(w.client.Endpoints())
	}
	c := &call{way: w.now, ways: w, ctx: ctx, began: began}
	c.at = c.calls.PushBack(c)
	return c
}

// overdue are some calls that have had no answer for so long that the end of their ctx counts: the oldest
// ones. The others tell it themselves when they end. silent tells that old, the way that they went, has
// answered none for as long.
func (w *ways) overdue(now time.Time) (old *way, all []*call, silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for e := w.now.calls.Front(); e != nil && len(all) < maxOverdue; e = e.Next() {
		c := e.Value.(*call)
		if now.Sub(c.began) < silence {
			break
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return w.now, nil, false
	}
	return w.now, all, min(now.Sub(all[0].began), now.Sub(w.now.answered), now.Sub(w.now.entered)) >= silence
}

// isOver tells that the caller may have gone on, and has not called end yet.
func (c *call) isOver() bool { return c.ctx.Err() != nil }

// end is told the error of a call.
func (c *call) end(err error) {
	answered := isAnswer(err)
	left := !answered && c.ctx.Err() != nil
	silent := left && time.Since(c.began) >= silence
	c.ways.remove(c, answered, c.refused(err))
	switch {
	case silent || c.away(err):
		c.ways.leave(c.way, silent)
	case left && c.ways.mayAsk(c.way):
		c.ways.ask(withTrace(c.ctx), askLimit)
	}
}

// mayAsk tells that calls go over a way, and that its members were not asked of late.
func (w *ways) mayAsk(now *way) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now == now && time.Since(w.asked) >= askLimit
}

// ask reads from each member that calls go to now, unless such reads are under way, and returns what is
// closed when they have ended. They have the values of ctx and a limit of their own, so that a connection
// counts as silent whose callers never wait long enough.
func (w *ways) ask(ctx context.Context, limit time.Duration) (ended <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking != nil {
		return w.asking
	}
	w.asking, w.asked = make(chan struct{}), time.Now()
	reads := 1
	if w.now == w.first {
		reads = len(w.client.Endpoints())
	}
	go w.readAll(context.WithoutCancel(ctx), limit, reads)
	return w.asking
}

// readAll makes so many reads at once. The client library sends them to its members in turn.
func (w *ways) readAll(ctx context.Context, limit time.Duration, reads int) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var all sync.WaitGroup
	for range reads {
		all.Go(func() { _, _ = w.read(ctx, clientv3.OpGet(w.home, clientv3.WithCountOnly())) })
	}
	all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.asking)
	w.asking = nil
}

// away tells that the member of a way of the store can't be reached, or can do nothing. The client finds
// another member by itself.
func (c *call) away(err error) bool {
	code := status.Code(err)
	var told rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &told) {
		code = told.Code()
	}
	return c.close != nil && code == codes.Unavailable || c.refused(err)
}

// refused tells that the member of a way of the store did nothing, and that the next one may do it.
func (c *call) refused(err error) bool {
	err = rpctypes.Error(err)
	return c.close != nil && (errors.Is(err, rpctypes.ErrTooManyRequests) || isOfLearner(err))
}

// isAnswer tells whether a member has answered.
func isAnswer(err error) bool {
	var told rpctypes.EtcdError
	return err == nil || errors.As(rpctypes.Error(err), &told)
}

func (w *ways) remove(c *call, answered, refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.calls.Remove(c.at)
	if answered {
		c.answered = time.Now()
	}
	if refused {
		c.way.refused = time.Now()
	}
	if c.leaving && c.calls.Len() == 0 {
		c.close()
	}
}

// leave lets the next calls go over another way than old, if there is one. A way of the store that is
// silent is made anew if it has answered before. Another one may yet answer: until then there is no more
// than one to each member.
func (w *ways) leave(old *way, silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	endpoints := w.client.Endpoints()
	w.follow(endpoints)
	if old != w.now || !w.mayDial(endpoints) {
		return
	}
	old.spent = silent && !old.answered.IsZero()
	w.enter(w.next(endpoints))
	if old == w.first && w.now != old {
		w.endpoints = endpoints
		go w.await(old, len(endpoints))
	}
}

// mayDial is true if a connection of the store would do what the client's own does:
//   - the client is open, and has endpoints;
//   - all have the same scheme. It says whether a connection is encrypted, and the connection of the client
//     goes by the first endpoint;
//   - the client has no user name, or logs in over the same way as the call: see login;
//   - its KV was not replaced: package namespace of the client library does so, and over another connection
//     the keys would have other names.
func (w *ways) mayDial(endpoints []string) bool {
	if w.client.Ctx().Err() != nil || len(endpoints) == 0 || w.client.Username != "" && !w.logsIn() {
		return false
	}
	for _, endpoint := range endpoints {
		if scheme(endpoint) != scheme(endpoints[0]) {
			return false
		}
	}
	own, ok := madeOf(clientv3.NewKV(w.client))
	now, _ := madeOf(w.client.KV)
	return ok && now == own
}

func scheme(endpoint string) string {
	if name, _, ok := strings.Cut(endpoint, "://"); ok {
		return name
	}
	for _, name := range []string{"unix", "unixs"} { // a path may follow at once
		if strings.HasPrefix(endpoint, name+":") {
			return name
		}
	}
	return ""
}

// parts are the types that the KV of a client is made of, and the connection that it calls.
type parts struct {
	kv, remote, calls, over reflect.Type
	conn                    uintptr
}

// madeOf looks into a KV of the client library, which tells nothing about it. It is false if one of its
// parts is missing or has another name: in another KV, or in another version.
func madeOf(kv clientv3.KV) (p parts, ok bool) {
	v := reflect.ValueOf(kv)
	inside := func(name string) (of reflect.Type) {
		if of = typeOf(v); of == nil || of.Kind() != reflect.Pointer || of.Elem().Kind() != reflect.Struct || v.IsNil() {
			v = reflect.Value{}
			return of
		}
		if v = v.Elem().FieldByName(name); v.IsValid() && v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		return of
	}
	p.kv, p.remote, p.calls, p.over = inside("remote"), inside("kc"), inside("cc"), typeOf(v)
	if p.over == nil || p.over.Kind() != reflect.Pointer {
		return p, false
	}
	p.conn = v.Pointer()
	return p, true
}

// typeOf is nil for no value.
func typeOf(v reflect.Value) reflect.Type {
	if !v.IsValid() {
		return nil
	}
	return v.Type()
}

// next is the way to the next member that has not refused a call of late. To dial blocks nobody, whatever
// options the client has: gRPC connects for the first call. The connection has the credentials of the
// client, and its token. Dial of the client library reads the endpoints without a lock, so beside
// SetEndpoints it is a data race there.
func (w *ways) next(endpoints []string) *way {
	var endpoint string
	var there *way
	for range endpoints {
		w.turn = (w.turn + 1) % len(endpoints)
		endpoint = endpoints[w.turn]
		if there = w.more[endpoint]; there == nil || time.Since(there.refused) >= pause {
			break
		}
	}
	if there != nil && !there.spent {
		return there
	}
	if now := time.Now(); now.Sub(w.since) >= pause {
		w.since, w.made = now, 0
	}
	if w.made >= len(endpoints) {
		return w.now
	}
	conn, err := w.client.Dial(endpoint)
	if err != nil { // the client has dialled it before
		return w.now
	}
	w.made++
	closed := context.AfterFunc(w.client.Ctx(), func() { _ = conn.Close() })
	waits := len(endpoints) == 1
	other := &way{
		kv:    clientv3.NewKVFromKVClient(pb.NewKVClient(own{conn, waits}), w.client),
		lease: clientv3.NewLeaseFromLeaseClient(pb.NewLeaseClient(own{conn, waits}), w.client, 0),
		conn:  conn,
		waits: waits,
		close: func() {
			if closed() {
				go func() { _ = conn.Close() }() // it waits for a connection that takes no more bytes
			}
		},
	}
	if there != nil {
		there.retire()
	}
	w.more[endpoint] = other
	return other
}

// own is a connection of the store. Without waits, its calls fail at once if the member can't be
// reached. The client library tells each call to wait.
type own struct {
	*grpc.ClientConn
	waits bool
}

func (o own) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return o.ClientConn.Invoke(ctx, method, args, reply, append(opts, grpc.WaitForReady(o.waits))...)
}

// retire closes a way when its calls have ended.
func (o *way) retire() {
	if o.leaving = true; o.calls.Len() == 0 {
		o.close()
	}
}

// await waits until each connection of the client has answered or was made anew. The client library asks
// the members in turn, and sends a read again if gRPC finds that its connection is dead. Three times as
// many reads as members nearly always meet all of them, also if the application asks some in between.
func (w *ways) await(first *way, members int) {
	var all sync.WaitGroup
	reads := members
	if reads > 1 {
		reads *= 3
	}
	for range reads {
		all.Go(func() {
			_, _ = w.client.Get(clientv3.WithRequireLeader(w.client.Ctx()), w.home, clientv3.WithCountOnly())
		})
	}
	all.Wait()
	w.answered(first)
}

// answered goes back, if first was not left again since: after follow, another await may be under way.
func (w *ways) answered(first *way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == first {
		w.goBack()
	}
}

// read makes a call that changes nothing. A member that can't be reached is no error while there are
// others.
func (w *ways) read(ctx context.Context, op clientv3.Op) (r clientv3.OpResponse, err error) {
	for range max(len(w.client.Endpoints()), 1) {
		c := w.begin(ctx)
		r, err = c.kv.Do(ctx, op)
		c.end(err)
		if !c.away(err) {
			break
		}
	}
	return r, err
}
