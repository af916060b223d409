package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// waysTo returns ways to members that nobody runs, and what lets the reads on the connections of the
// client end. Nothing is sent.
func waysTo(t *testing.T, members int) (w *ways, answer func()) {
	t.Helper()
	var endpoints []string
	for i := range members {
		endpoints = append(endpoints, fmt.Sprintf("127.0.0.1:%d", i+1))
	}
	answered := make(chan struct{})
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			select {
			case <-answered:
				return status.Error(codes.Aborted, "it has answered")
			case <-ctx.Done():
				return ctx.Err()
			}
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return newWays(client, "key"), sync.OnceFunc(func() { close(answered) })
}

// left tells that calls go over a way of the store.
func (w *ways) left() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now != w.first
}

// under begins a call some time ago, and ends its ctx.
func under(w *ways, age time.Duration) *call {
	ctx, cancel := context.WithCancel(context.Background())
	c := w.begin(ctx)
	w.mu.Lock()
	c.began = c.began.Add(-age)
	w.mu.Unlock()
	cancel()
	return c
}

// fallSilent ends a call that had no answer.
func fallSilent(w *ways) { under(w, silence).end(context.Canceled) }

// answer ends a call that was answered.
func answer(w *ways, err error) { w.begin(context.Background()).end(err) }

func onlyOne(t *testing.T, w *ways) *way {
	t.Helper()
	if len(w.more) != 1 {
		t.Fatalf("%d connections of the store; want one", len(w.more))
	}
	for _, only := range w.more {
		return only
	}
	return nil
}

func wantClosed(t *testing.T, o *way) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a busy machine
	defer cancel()
	for s := o.conn.GetState(); s != connectivity.Shutdown; s = o.conn.GetState() {
		if !o.conn.WaitForStateChange(ctx, s) {
			t.Fatal("a connection of the store stays open")
		}
	}
}

func TestWhatCountsAsSilent(t *testing.T) {
	for name, c := range map[string]struct {
		make func(w *ways)
		left bool
	}{
		"no answer":                            {fallSilent, true},
		"no answer, and not told yet":          {func(w *ways) { under(w, silence); answer(w, nil) }, true},
		"no answer in a short time":            {func(w *ways) { under(w, silence/2).end(context.Canceled) }, false},
		"a short time, and not told yet":       {func(w *ways) { under(w, silence/2); answer(w, nil) }, false},
		"an answer when the caller has left":   {func(w *ways) { under(w, silence).end(nil) }, false},
		"an error when the caller has left":    {func(w *ways) { under(w, silence).end(rpctypes.ErrGRPCNoSpace) }, false},
		"an error of the member":               {func(w *ways) { answer(w, rpctypes.ErrGRPCTimeout) }, false},
		"a member that the client can't reach": {func(w *ways) { answer(w, status.Error(codes.Unavailable, "")) }, false},
		"a call that goes on, and no other is answered": {func(w *ways) {
			answer(w, nil)
			w.now.entered, w.now.answered = time.Now().Add(-time.Hour), time.Now().Add(-silence)
			w.begin(t.Context()).began = time.Now().Add(-silence)
			answer(w, nil)
		}, true},
		"a call that goes on, and others were answered until a while ago": {func(w *ways) {
			w.now.entered, w.now.answered = time.Now().Add(-time.Hour), time.Now().Add(-silence)
			w.begin(t.Context()).began = time.Now().Add(-2 * silence)
			answer(w, nil)
		}, true},
		"a call that goes on, and others were answered until now": {func(w *ways) {
			w.now.entered, w.now.answered = time.Now().Add(-time.Hour), time.Now().Add(-silence/2)
			w.begin(t.Context()).began = time.Now().Add(-2 * silence)
			answer(w, nil)
		}, false},
		"a call that goes on, on a connection that calls go over only now": {func(w *ways) {
			w.now.entered, w.now.answered = time.Now().Add(-silence/2), time.Now().Add(-time.Hour)
			w.begin(t.Context()).began = time.Now().Add(-2 * silence)
			answer(w, nil)
		}, false},
		"a short call that goes on": {func(w *ways) {
			w.begin(t.Context()).began = time.Now().Add(-silence / 2)
			answer(w, nil)
		}, false},
		"a long call that goes on, and others are answered": {func(w *ways) {
			answer(w, nil)
			w.begin(t.Context()).began = time.Now().Add(-time.Hour)
			answer(w, nil)
		}, false},
		"behind a long call that goes on": {func(w *ways) {
			answer(w, nil)
			w.begin(t.Context()).began = time.Now().Add(-time.Hour)
			under(w, silence)
			answer(w, nil)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := waysTo(t, 1)
			c.make(w)
			if w.left() != c.left {
				t.Errorf("calls go over another connection: %v, want %v", w.left(), c.left)
			}
		})
	}
}

// onFirst is how many calls are under way over the client.
func (w *ways) onFirst() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first.calls.Len()
}

// takes repeats what must happen within askLimit of real time, if a take lasted for longer than that.
func takes(t *testing.T, take func() (wrong string)) {
	t.Helper()
	for began := time.Now(); ; began = time.Now() {
		wrong := take()
		if wrong == "" {
			return
		}
		if time.Since(began) < askLimit {
			t.Fatal(wrong)
		}
	}
}

func TestCallsThatAreLeftSoonCostOneReadOfEachMember(t *testing.T) {
	var w *ways
	takes(t, func() string {
		w, _ = waysTo(t, 3)
		left := func() { under(w, silence/2).end(context.Canceled) }
		for range 100 {
			left()
		}
		reads := func() int {
			for began := time.Now(); w.onFirst() < 3 && time.Since(began) < askLimit/4; {
				time.Sleep(time.Millisecond)
			}
			return w.onFirst()
		}
		if n := reads(); n != 3 {
			return fmt.Sprintf("%d reads; want 3", n)
		}
		w.mu.Lock()
		w.asked = w.asked.Add(-time.Hour) // they last longer than they may
		w.mu.Unlock()
		for range 100 {
			left()
		}
		if n := reads(); n != 3 {
			return fmt.Sprintf("%d reads beside those that go on; want 3", n)
		}
		return ""
	})
	<-w.ask(t.Context(), askLimit)
	if !w.left() {
		t.Error("calls stay on a connection on which none of the reads had an answer")
	}
}

func TestCallsThatAreLeftSoonCostFewReadsOfMembersThatAnswer(t *testing.T) {
	takes(t, func() string {
		w, answered := waysTo(t, 3)
		under(w, silence/2).end(context.Canceled)
		w.mu.Lock()
		ended := w.asking
		w.mu.Unlock()
		if ended == nil {
			return "no member was asked"
		}
		answered()
		<-ended
		w.mu.Lock()
		w.asked = time.Now().Add(time.Hour)
		w.mu.Unlock()
		for range 100 {
			under(w, silence/2).end(context.Canceled)
			if w.onFirst() > 0 {
				return "they were asked again at once"
			}
		}
		if w.left() {
			return "calls go over another connection, and all members answer"
		}
		return ""
	})
}

func TestManyCallsWithoutAnAnswerCostOneConnection(t *testing.T) {
	w, _ := waysTo(t, 1)
	var all []*call
	for range 100 {
		all = append(all, under(w, silence))
	}
	for _, c := range all {
		c.end(context.Canceled)
	}
	other := onlyOne(t, w)
	for range 100 { // nothing has answered on the other one
		w.since = w.since.Add(-pause)
		fallSilent(w)
		answer(w, status.Error(codes.Unavailable, "refused"))
	}
	if onlyOne(t, w) != other {
		t.Error("a connection that has answered nothing was made again")
	}
}

func TestAnotherConnectionThatHasAnsweredIsMadeAnew(t *testing.T) {
	w, _ := waysTo(t, 1)
	fallSilent(w)
	old := onlyOne(t, w)
	goesOn := w.begin(t.Context())
	answer(w, nil)
	fallSilent(w)
	if onlyOne(t, w) != old {
		t.Error("two connections to a member were made at once")
	}
	w.since = w.since.Add(-pause)
	fallSilent(w)
	if onlyOne(t, w) == old || w.now == old {
		t.Fatal("it was not made anew")
	}
	if old.conn.GetState() == connectivity.Shutdown {
		t.Error("it was closed under a call")
	}
	goesOn.end(nil)
	wantClosed(t, old)
}

func TestAMemberThatCannotBeReachedIsPassedOver(t *testing.T) {
	w, _ := waysTo(t, 3)
	fallSilent(w)
	seen := map[*way]bool{}
	for range 3 {
		seen[w.now] = true
		answer(w, status.Error(codes.Unavailable, "refused"))
	}
	if len(seen) != 3 {
		t.Errorf("%d members were asked; want all three", len(seen))
	}
	for range 30 {
		seen[w.now] = true
		before := w.now
		answer(w, rpctypes.ErrNoLeader) // as the calls of the client library tell it
		if w.now == before {
			t.Fatal("a member without a leader was not passed over")
		}
		answer(w, rpctypes.ErrGRPCNoLeader)
		fallSilent(w)
	}
	if len(seen) != 3 || seen[w.first] {
		t.Errorf("%d connections; want one to each member", len(seen))
	}
	last := w.now
	answer(w, nil)
	answer(w, rpctypes.ErrNoSpace)
	if w.now != last {
		t.Error("a member that answers was passed over")
	}
}

func TestAMemberThatRefusesCallsIsPassedOver(t *testing.T) {
	for _, told := range []error{rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrTooManyRequests} {
		w, _ := waysTo(t, 3)
		answer(w, told)
		if w.left() {
			t.Errorf("%v: the connection of the client was left", told)
		}
		fallSilent(w)
		refuses := w.now
		answer(w, told)
		for range 10 {
			if w.now == refuses {
				t.Fatalf("%v: the next calls go to the member that refuses them", told)
			}
			answer(w, status.Error(codes.Unavailable, "refused"))
		}
		refuses.refused = refuses.refused.Add(-pause)
		seen := map[*way]bool{}
		for range 3 {
			seen[w.now] = true
			answer(w, told)
		}
		if len(seen) != 3 || !seen[refuses] {
			t.Errorf("%v: %d members were asked after a while; want all", told, len(seen))
		}
		if answer(w, told); w.begin(t.Context()).way == nil {
			t.Errorf("%v: no way is left when all refuse", told)
		}
	}
}

func TestCallsGoBackWhenTheClientIsAnswered(t *testing.T) {
	w, answered := waysTo(t, 3)
	early := w.begin(t.Context())
	fallSilent(w)
	other := w.now
	goesOn := w.begin(t.Context())
	answered()
	for limit := time.Now().Add(time.Minute); w.left(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("calls do not go over the client again")
		}
	}
	if other.conn.GetState() == connectivity.Shutdown {
		t.Error("a connection was closed under a call")
	}
	goesOn.end(nil)
	wantClosed(t, other)
	early.ways.leave(early.way, true) // it was sent before
	if w.left() {
		t.Error("a call that was sent before tells that the client is silent now")
	}
	if w.begin(t.Context()).conn != w.client.ActiveConnection() {
		t.Error("calls do not go over the connection of the client")
	}
}

// The others may be members of another cluster.
func TestCallsGoBackWhenTheClientHasOtherEndpoints(t *testing.T) {
	w, _ := waysTo(t, 2)
	first := w.first
	fallSilent(w)
	other := w.now
	goesOn := w.begin(t.Context())
	w.client.SetEndpoints("127.0.0.1:8", "127.0.0.1:9")
	if c := w.begin(t.Context()); c.conn != w.client.ActiveConnection() {
		t.Error("a call goes to an endpoint that the client no longer has")
	}
	goesOn.end(status.Error(codes.Unavailable, "refused"))
	wantClosed(t, other)
	if w.left() {
		t.Error("a call that went to the old endpoints tells that the client is silent")
	}
	fallSilent(w)
	for endpoint := range w.more {
		if !slices.Contains(w.client.Endpoints(), endpoint) {
			t.Errorf("a connection to %s, which the client no longer has", endpoint)
		}
	}
	if w.answered(first); !w.left() {
		t.Error("answers from the old endpoints tell that the client is answered by the new ones")
	}
	c := w.begin(t.Context())
	w.client.SetEndpoints()
	c.end(status.Error(codes.Unavailable, "refused"))
	fallSilent(w)
	if w.left() {
		t.Error("calls go to an endpoint, and the client has none")
	}
}

func TestTheFirstMemberIsAnyOfThem(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		w, _ := waysTo(t, 3)
		seen[w.turn%3] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d of three members come first; want each of them some time", len(seen))
	}
}

// renaming gives each key another name. Its KV has the same type as the client's own.
type renaming struct{ pb.KVClient }

func TestAClientKeepsItsConnection(t *testing.T) {
	another, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:9"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = another.Close() }()
	for name, change := range map[string]func(c *clientv3.Client){
		"keys of another name":            func(c *clientv3.Client) { c.KV = namespace.NewKV(c.KV, "prefix/") },
		"keys of another name, on a call": func(c *clientv3.Client) { c.KV = clientv3.NewKVFromKVClient(renaming{clientv3.RetryKVClient(c)}, c) },
		"no KV":                           func(c *clientv3.Client) { c.KV = nil },
		"a KV of nothing":                 func(c *clientv3.Client) { c.KV = clientv3.NewKVFromKVClient(nil, c) },
		"the KV of another client":        func(c *clientv3.Client) { c.KV = another.KV },
		"a user":                          func(c *clientv3.Client) { c.Username = "root" },
		"an endpoint in plain text":       func(c *clientv3.Client) { c.SetEndpoints("https://127.0.0.1:1", "http://127.0.0.1:2") },
		"an endpoint without a scheme":    func(c *clientv3.Client) { c.SetEndpoints("https://127.0.0.1:1", "127.0.0.1:2") },
		"an endpoint on this machine":     func(c *clientv3.Client) { c.SetEndpoints("127.0.0.1:1", "unix:/path") },
		"some encrypted endpoints":        func(c *clientv3.Client) { c.SetEndpoints("unix:/path:1", "unixs:/path:2") },
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := waysTo(t, 1)
			change(w.client)
			fallSilent(w)
			if w.left() || len(w.more) > 0 {
				t.Error("calls go over another connection")
			}
		})
	}
	for _, endpoints := range [][]string{
		{"https://127.0.0.1:1", "https://127.0.0.1:2"},
		{"unix:///path:1", "unix:/path:2"},
		{"127.0.0.1:1", "localhost:2"},
	} {
		w, _ := waysTo(t, 1)
		w.client.SetEndpoints(endpoints...)
		if fallSilent(w); !w.left() {
			t.Errorf("endpoints of the same kind: no other connection for %q", endpoints)
		}
	}
}

// The client encrypts its connections to all members if the first endpoint says so.
func TestNothingIsSentInPlainTextIfTheFirstEndpointIsEncrypted(t *testing.T) {
	member, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain := make(chan bool, 100)
	go func() {
		for {
			conn, err := member.Accept()
			if err != nil {
				close(plain)
				return
			}
			first := make([]byte, 1)
			_, _ = conn.Read(first)
			plain <- first[0] == 'P' // HTTP/2 begins so, and TLS with another byte
			_ = conn.Close()
		}
	}()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://127.0.0.1:1", "http://" + member.Addr().String()},
		Logger:    zap.NewNop(), TLS: &tls.Config{}, Token: "secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	w := newWays(client, "key")
	fallSilent(w)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
	defer cancel()
	if _, err := w.read(ctx, clientv3.OpGet("key")); err == nil {
		t.Error("it was answered")
	}
	select {
	case is := <-plain: // of the client, since it was asked
		if is {
			t.Error("a connection is not encrypted")
		}
	case <-time.After(time.Minute):
		t.Error("the member was not reached: this test shows nothing")
	}
	_ = member.Close()
	for is := range plain {
		if is {
			t.Error("a connection is not encrypted")
		}
	}
}

func TestConnectionsEndWithTheClient(t *testing.T) {
	w, _ := waysTo(t, 3)
	fallSilent(w)
	first := w.now
	w.begin(t.Context()) // it goes on
	answer(w, status.Error(codes.Unavailable, "refused"))
	second := w.now
	if err := w.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	wantClosed(t, first)
	wantClosed(t, second)
	fallSilent(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	for endpoint, other := range w.more {
		if other != first && other != second {
			t.Errorf("a connection to %s was made after Close", endpoint)
		}
	}
}
