package redistest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func startBehindProxy(t *testing.T) (*Server, *Proxy) {
	t.Helper()
	s := Start(t)
	return s, NewProxy(t, s.Addr())
}

// quiet is how long silence must last to count. A message that must not come would come within a
// fraction of this time.
const quiet = 20 * time.Millisecond

func TestARelayPassesBytesOfAnyProtocolUnlessItIsABlackHole(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	relay := NewRelay(t, server.Addr().String())
	conn, err := net.Dial("tcp", relay.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	read := func(limit time.Duration) (string, error) {
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		buf := make([]byte, 100)
		n, err := conn.Read(buf)
		return string(buf[:n]), err
	}
	const text = "\x00no RESP\n"
	_, _ = conn.Write([]byte(text))
	if got, err := read(10 * time.Second); got != text {
		t.Errorf("%q, %v; want %q", got, err, text)
	}
	relay.BlackHole(true)
	_, _ = conn.Write([]byte(text))
	if got, err := read(quiet); err == nil {
		t.Errorf("a black hole lets %q pass", got)
	}
	relay.BlackHole(false)
	if got, err := read(10 * time.Second); got != text {
		t.Errorf("after it: %q, %v; want %q", got, err, text)
	}
	relay.CutAll()
	if got, err := read(10 * time.Second); err == nil {
		t.Errorf("after CutAll: %q", got)
	}
	if conn, err = net.Dial("tcp", relay.Addr()); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(text))
	if got, err := read(10 * time.Second); got != text {
		t.Errorf("%q, %v; want %q", got, err, text)
	}
	if n := relay.Forsake(); n == 0 {
		t.Error("no connection is forsaken")
	}
	_, _ = conn.Write([]byte(text))
	if got, err := read(quiet); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that is forsaken lets %q pass, %v", got, err)
	}
	if conn, err = net.Dial("tcp", relay.Addr()); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(text))
	if got, err := read(10 * time.Second); got != text {
		t.Errorf("a new connection: %q, %v; want %q", got, err, text)
	}
	if relay.Leads() != server.Addr().String() {
		t.Errorf("it leads to %s", relay.Leads())
	}
}

func TestProxyIsTransparent(t *testing.T) {
	for _, version := range []string{"2", "3"} {
		t.Run("RESP"+version, func(t *testing.T) {
			s, p := startBehindProxy(t)
			direct, proxied := dial(t, s.Addr()), dial(t, p.Addr())
			for _, c := range []*client{direct, proxied} {
				c.send("HELLO", version)
				if _, err := c.receive(time.Second); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{
				{"PING"}, {"GET", "absent"}, {"NO-SUCH-COMMAND"}, {"SET", "k", "\x00\r\n*$+"}, {"GET", "k"},
				{"HSET", "h", "f", "v"}, {"HGETALL", "h"}, {"SADD", "s", "m"}, {"SMEMBERS", "s"},
				{"ZADD", "z", "1.5", "m"}, {"ZSCORE", "z", "m"}, {"CONFIG", "GET", "maxmemory*"}, {"INFO", "keyspace"},
				{"MULTI"}, {"GET", "n"}, {"PING"}, {"EXEC"},
				{"EVAL", "redis.setresp(3); return {double=3.5}", "0"}, {"EVAL", "return {true, {err='E'}}", "0"},
				{"SET", "big", strings.Repeat("x", 1<<20)}, {"GET", "big"},
			} {
				proxied.send(args...)
				if _, err := proxied.receive(10 * time.Second); err != nil {
					t.Fatalf("%.40q: %v", args, err)
				}
				if args[0] == "SADD" || args[0] == "HSET" || args[0] == "ZADD" {
					continue // the second one returns less
				}
				direct.send(args...)
				if _, err := direct.receive(10 * time.Second); err != nil {
					t.Fatalf("%.40q: %v", args, err)
				}
				if string(direct.replies.raw) != string(proxied.replies.raw) {
					t.Errorf("%.40q: %.200q, directly %.200q", args, proxied.replies.raw, direct.replies.raw)
				}
			}
		})
	}
}

func TestSeenAndCount(t *testing.T) {
	_, p := startBehindProxy(t)
	c := dial(t, p.Addr())
	c.ask("OK", "set", "k", "v")
	c.ask("v", "GET", "k")
	c.ask("OK", "SET", "k", "w")
	if seen := p.Seen(); !reflect.DeepEqual(seen, []string{"SET", "GET", "SET"}) || p.Count("SET") != 2 || p.Count("DEL") != 0 {
		t.Errorf("seen %q", seen)
	}
}

func TestPipelineKeepsItsOrder(t *testing.T) {
	_, p := startBehindProxy(t)
	p.Add(Rule{Fault: DelayRequest, Delay: time.Millisecond, Commands: []string{"ECHO"}, Nth: 3, Times: 3})
	p.Add(Rule{Fault: DelayReply, Delay: time.Millisecond, Commands: []string{"ECHO"}, Nth: 10, Times: 3})
	c := dial(t, p.Addr())
	var requests []byte
	for i := range 500 {
		requests = append(requests, encode([]string{"ECHO", fmt.Sprint(i)})...)
	}
	if _, err := c.Write(requests); err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		c.wantReply(fmt.Sprint(i))
	}
}

func TestBlackHoleWithholdsEverythingAndLosesNothing(t *testing.T) {
	s, p := startBehindProxy(t)
	c, waiter := dial(t, p.Addr()), dial(t, p.Addr())
	c.ask("OK", "SET", "k", "0")
	waiter.send("BLPOP", "list", "0")
	await(t, "the waiter blocks", func() bool {
		info, _ := s.Do("INFO", "clients")
		return strings.Contains(fmt.Sprint(info), "blocked_clients:1")
	})

	p.BlackHole(true)
	want(t, s, int64(1), "RPUSH", "list", "x") // the reply to the waiter must not pass
	late := dial(t, p.Addr())
	late.send("APPEND", "late", "1")
	for i := 1; i <= 3; i++ {
		c.send("APPEND", "k", fmt.Sprint(i))
	}
	for _, silent := range []*client{c, waiter, late} {
		silent.hearNothing(quiet)
	}
	want(t, s, "0", "GET", "k")
	want(t, s, nil, "GET", "late")

	p.BlackHole(false)
	for i := 1; i <= 3; i++ {
		c.wantReply(int64(i + 1))
	}
	want(t, s, "0123", "GET", "k")
	waiter.wantReply([]any{"list", "x"})
	late.wantReply(int64(1))
}

func TestBlackHoleHidesTheEndOfConnections(t *testing.T) {
	s, p := startBehindProxy(t)
	stays, leaves := dial(t, p.Addr()), dial(t, p.Addr())
	stays.ask("PONG", "PING")
	leaves.ask("OK", "CLIENT", "SETNAME", "leaver")

	p.BlackHole(true)
	leaves.Close()
	time.Sleep(quiet)
	if list, _ := s.Do("CLIENT", "LIST"); !strings.Contains(fmt.Sprint(list), "name=leaver") {
		t.Error("the server learned that a client left")
	}
	s.Kill()
	stays.hearNothing(quiet)
	newcomer := dial(t, p.Addr()) // nor that the server refuses connections
	newcomer.send("PING")
	newcomer.hearNothing(quiet)

	s.Restart()
	stays.hearNothing(quiet)
	p.BlackHole(false)
	stays.wantEnd()
	newcomer.wantReply("PONG")
}

func TestBlackHoleUnderTraffic(t *testing.T) {
	s, p := startBehindProxy(t)
	var stop atomic.Bool
	var sent atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		c := dial(t, p.Addr())
		all.Go(func() {
			for !stop.Load() {
				sent.Add(1)
				if _, err := c.Write(encode([]string{"INCR", "n"})); err != nil {
					t.Error(err)
					return
				}
				if _, err := c.receive(10 * time.Second); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 20 {
		p.BlackHole(true)
		// Bytes that passed before may still be in the server's socket. Then silence must follow.
		await(t, "the server hears nothing more", func() bool {
			before, _ := s.Do("GET", "n")
			time.Sleep(3 * time.Millisecond)
			after, _ := s.Do("GET", "n")
			return before == after
		})
		seen := p.Count("INCR")
		p.BlackHole(false)
		await(t, "the traffic goes on", func() bool { return p.Count("INCR") > seen })
	}
	stop.Store(true)
	all.Wait()
	want(t, s, fmt.Sprint(sent.Load()), "GET", "n")
}

func TestCutAll(t *testing.T) {
	s, p := startBehindProxy(t)
	held := p.Add(Rule{Fault: DelayRequest, Delay: time.Hour, Commands: []string{"SET"}})
	idle, delayed := dial(t, p.Addr()), dial(t, p.Addr())
	idle.ask("PONG", "PING")
	delayed.ask("PONG", "PING")
	delayed.send("SET", "k", "v")
	<-held.Fired()
	p.CutAll()
	idle.wantReset()
	delayed.wantReset()
	dial(t, p.Addr()).ask("PONG", "PING")

	c := dial(t, p.Addr())
	c.ask("PONG", "PING")
	p.BlackHole(true)
	c.send("SET", "k", "v")
	await(t, "the SET is withheld", func() bool { return p.Count("SET") == 2 })
	p.CutAll()
	c.wantReset()
	p.BlackHole(false)
	dial(t, p.Addr()).ask(nil, "GET", "k")
	want(t, s, nil, "GET", "k")
}

func TestServerDownAndUpAgain(t *testing.T) {
	s, p := startBehindProxy(t)
	c := dial(t, p.Addr())
	c.ask("PONG", "PING")
	s.Kill()
	c.wantEnd()
	if conn, err := net.Dial("tcp", p.Addr()); err == nil { // otherwise the reset was faster
		(&client{conn, t, newDecoder(conn)}).wantReset()
		conn.Close()
	}
	s.Restart()
	dial(t, p.Addr()).ask("PONG", "PING")
}

// A client that leaves does not take back its requests.
func TestRequestsOfAClientThatLeftAreExecuted(t *testing.T) {
	s, p := startBehindProxy(t)
	lost := p.Add(Rule{Fault: LoseReply})
	s.Pause()
	c := dial(t, p.Addr())
	c.send("SET", "k", "v")
	c.Close()
	await(t, "the proxy has the request", func() bool { return p.Count("SET") == 1 })
	s.Resume()
	awaitFired(t, lost) // by the reply, although the client has left
	want(t, s, "v", "GET", "k")
}

func TestProxyEndsWithTheTestWhateverHangs(t *testing.T) {
	Require(t)
	var p *Proxy
	t.Run("while it hangs", func(t *testing.T) {
		var s *Server
		s, p = startBehindProxy(t)
		p.Add(Rule{Fault: DelayRequest, Delay: time.Hour, Commands: []string{"SET"}})
		p.Add(Rule{Fault: DelayReply, Delay: time.Hour, Commands: []string{"GET"}})
		p.Add(Rule{Fault: LoseReply, Commands: []string{"ECHO"}})
		for _, args := range [][]string{{"SET", "k", "v"}, {"GET", "k"}, {"ECHO", "x"}, {"BLPOP", "l", "0"}} {
			dial(t, p.Addr()).send(args...)
			await(t, args[0]+" arrives", func() bool { return p.Count(args[0]) == 1 })
		}
		s.Pause()
		dial(t, p.Addr()).send("PING")
		p.BlackHole(true)
		dial(t, p.Addr()).send("PING")
	})
	if len(p.links) > 0 || !refuses(p.Addr()) {
		t.Errorf("%d links left, or the proxy still listens", len(p.links))
	}
}

func TestProxyReportsWhatIsNotRESP(t *testing.T) {
	_, p := startBehindProxy(t)
	report := &recorder{TB: t}
	p.tb = report
	c := dial(t, p.Addr())
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\n")); err != nil {
		t.Fatal(err)
	}
	c.wantReset()
	p.end()
	if !strings.Contains(report.text, `not RESP: "GET / HTTP/1.1`) {
		t.Errorf("reported: %q", report.text)
	}
}

func TestReplicaBehindProxy(t *testing.T) {
	master, p := startBehindProxy(t)
	// so that newlines come before the data
	want(t, master, "OK", "CONFIG", "SET", "repl-diskless-sync-delay", "1")
	host, port, _ := net.SplitHostPort(p.Addr())
	replica := Start(t, WithArgs("--replicaof", host+" "+port))
	want(t, master, "OK", "SET", "k", "v")
	await(t, "the replica has the key", func() bool { v, _ := replica.Do("GET", "k"); return v == "v" })
	p.BlackHole(true)
	want(t, master, "OK", "SET", "k", "w")
	time.Sleep(quiet)
	want(t, replica, "v", "GET", "k")
	p.BlackHole(false)
	await(t, "the replica catches up", func() bool { v, _ := replica.Do("GET", "k"); return v == "w" })
	if !slices.Contains(p.Seen(), "PSYNC") {
		t.Errorf("seen %q", p.Seen())
	}
}

func TestOpenCountsConnectionsUntilTheirClientsLeave(t *testing.T) {
	s, p := startBehindProxy(t)
	lost := p.Add(Rule{Fault: LoseReply})
	first, second := dial(t, p.Addr()), dial(t, p.Addr())
	first.send("PING") // its connection stays open, whatever the server does
	awaitFired(t, lost)
	second.ask("PONG", "PING")
	await(t, "both are open", func() bool { return p.Open() == 2 })
	s.Kill()
	second.wantEnd()
	await(t, "one is open", func() bool { return p.Open() == 1 })
	first.Close()
	await(t, "none is open", func() bool { return p.Open() == 0 })
}
