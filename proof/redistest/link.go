package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// A link is one connection through the proxy. It has two goroutines: run reads replies, and
// requests reads requests. Each handles one value at a time, which keeps the order.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // ends when the link is reset: what is withheld is dropped
	cancel context.CancelFunc

	mu         sync.Mutex
	server     *net.TCPConn // nil until connected
	unanswered []request    // in the order of their replies
	subscribed bool
	silent     bool // nothing goes to the client any more
	forgotten  bool // nor to the server
}

// A request waits for its reply.
type request struct {
	name string
	rule *ActiveRule
	lost bool // it was not forwarded: all replies after it must be withheld
}

func (l *link) run() {
	defer l.end()
	l.proxy.gate.pass(l.ctx, func() {}) // a handshake is withheld like any other bytes
	if !l.connect() {
		l.reset()
		return
	}
	clientLeft := make(chan struct{})
	go func() {
		defer close(clientLeft)
		l.requests()
		// Not a Close: with replies unread that would be a reset, and the server might
		// throw away requests that the client did send.
		l.closing(func() { l.server.CloseWrite() })
	}()
	l.replies()
	if !l.staysOpen() {
		l.closing(func() { l.client.Close() })
	}
	<-clientLeft
}

func (l *link) connect() bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(l.ctx, "tcp", l.proxy.Leads())
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = conn.(*net.TCPConn)
	if l.ctx.Err() != nil { // end may have come before there was a server to close
		l.server.Close()
		return false
	}
	return true
}

// requests brings the client's requests to the server until the client leaves. It ignores errors of
// the server: replies sees its end.
func (l *link) requests() {
	if l.proxy.raw {
		l.stream(l.client, l.forward)
		return
	}
	in := newDecoder(l.client)
	for {
		args, err := command(in)
		if err != nil {
			l.ended(err)
			return
		}
		name, rule := l.proxy.arrived(args)
		switch rule.fault() {
		case LoseRequest:
			l.expect(request{lost: true})
			rule.happened()
			continue
		case CutRequest:
			l.proxy.gate.pass(l.ctx, func() {
				l.reset()
				rule.happened()
			})
			return
		case DelayRequest:
			rule.happened()
			l.sleep(rule.Delay)
		case Refuse:
			in.raw = encode([]string{refused})
			if name == "EXEC" {
				// as servers do with a transaction whose EXEC they refuse
				in.raw = encode([]string{"DISCARD"})
			}
		}
		l.expect(request{name: name, rule: rule})
		l.forward(in.raw)
	}
}

func (l *link) forward(raw []byte) {
	l.mu.Lock()
	forgotten := l.forgotten
	l.mu.Unlock()
	if !forgotten {
		l.proxy.gate.pass(l.ctx, func() { l.server.Write(raw) })
	}
}

// refused is a command that no server knows. The proxy sends it in place of a command to refuse.
const refused = "LOCKSTEP.REFUSED"

// command reads one command, which is an array of strings.
func command(in *decoder) ([]string, error) {
	kind, v, err := in.next()
	if err != nil {
		return nil, err
	}
	elements, ok := v.([]any)
	if kind != '*' || !ok || len(elements) == 0 {
		return nil, protocolError(in.raw)
	}
	args := make([]string, len(elements))
	for i, e := range elements {
		if args[i], ok = e.(string); !ok {
			return nil, protocolError(in.raw)
		}
	}
	return args, nil
}

// replies brings the server's replies to the client until the server closes. It goes on when the
// client is gone or must receive nothing, since rules still wait for replies.
func (l *link) replies() {
	if l.proxy.raw {
		l.stream(l.server, func(raw []byte) {
			if d := time.Duration(l.proxy.delay.Load()); d > 0 {
				l.sleep(d)
			}
			l.deliver(raw)
		})
		return
	}
	in := newDecoder(l.server)
	for {
		kind, v, err := in.next()
		if err != nil {
			l.ended(err)
			return
		}
		req := l.answered(kind, v)
		switch req.rule.fault() {
		case LoseReply:
			l.silence()
			req.rule.happened()
		case CutReply:
			l.proxy.gate.pass(l.ctx, func() {
				l.reset()
				req.rule.happened()
			})
		case DelayReply:
			req.rule.happened()
			l.sleep(req.rule.Delay)
			l.deliver(in.raw)
		case Refuse, Answer:
			l.deliver([]byte(req.rule.Reply))
			req.rule.happened()
		default:
			l.deliver(in.raw)
		}
		if isStream(req.name) {
			l.stream(in.r, l.deliver)
			return
		}
	}
}

// stream delivers all bytes: those after a command whose answer is a stream, and all of a relay.
func (l *link) stream(from io.Reader, deliver func(raw []byte)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		deliver(buf[:n])
	}
}

func isStream(name string) bool {
	return name == "PSYNC" || name == "SYNC" || name == "MONITOR"
}

func (l *link) deliver(raw []byte) {
	l.mu.Lock()
	silent := l.silent
	l.mu.Unlock()
	if !silent {
		l.proxy.gate.pass(l.ctx, func() { l.client.Write(raw) })
	}
}

// expect queues a request. It is called before the request is forwarded, so that the reply cannot
// come first.
func (l *link) expect(r request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribed = l.subscribed || isSubscription(r.name)
	l.unanswered = append(l.unanswered, r)
}

// answered returns the request that a value from the server belongs to, or the zero request for a
// push.
func (l *link) answered(kind byte, v any) request {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.unanswered) > 0 && l.unanswered[0].lost {
		l.unanswered = l.unanswered[1:]
		l.silent = true
	}
	if len(l.unanswered) == 0 {
		return request{}
	}
	// Pushes confirm a subscription, one for each channel, and the first one counts as its reply.
	// If the server refuses the subscription, the error is a reply like any other.
	first := l.unanswered[0]
	if word := l.push(kind, v); word != "" && (!isSubscription(first.name) || word != strings.ToLower(first.name)) {
		return request{}
	}
	l.unanswered = l.unanswered[1:]
	return first
}

// push returns the first word of a push, and "" for a reply. RESP2 has no type for pushes: they are
// arrays that begin with one of a few words, and come only after a subscription.
func (l *link) push(kind byte, v any) string {
	elements, _ := v.([]any)
	if len(elements) == 0 {
		return ""
	}
	word, _ := elements[0].(string)
	isWord := isSubscription(strings.ToUpper(word)) || slices.Contains([]string{"message", "pmessage", "smessage"}, word)
	if kind == '>' || kind == '*' && l.subscribed && isWord {
		return word
	}
	return ""
}

func isSubscription(name string) bool {
	switch name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		return true
	}
	return false
}

func (l *link) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
}

// staysOpen reports whether the client must not learn that the server is gone.
func (l *link) staysOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent || slices.ContainsFunc(l.unanswered, func(r request) bool { return r.lost })
}

func (l *link) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}

// ended looks at the error that ended one direction. A connection may end in any way, but bytes
// that are not RESP mean that the test is wrong.
func (l *link) ended(err error) {
	if e, ok := errors.AsType[protocolError](err); ok {
		l.proxy.tb.Errorf("redistest: proxy for %s: %v", l.proxy.Leads(), e)
		l.reset()
	}
}

// closing brings the end of one side to the other. It waits at the gate like any byte, but not
// after a reset.
func (l *link) closing(half func()) {
	l.proxy.gate.pass(l.ctx, half)
	if l.ctx.Err() != nil {
		half()
	}
}

// reset ends the client's connection with a TCP reset and drops what is withheld.
func (l *link) reset() {
	l.client.SetLinger(0)
	l.client.Close()
	l.cancel()
}

// end closes both sides and so ends both goroutines.
func (l *link) end() {
	l.cancel()
	l.client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		l.server.Close()
	}
}
