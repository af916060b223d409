package driver

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type leading struct {
	net.Conn
	to net.Addr
}

func (l leading) RemoteAddr() net.Addr { return l.to }
func (leading) Close() error           { return nil }

func leadsTo(addr string) net.Conn {
	if addr == "" {
		return leading{}
	}
	return leading{to: &net.TCPAddr{IP: net.ParseIP(addr), Port: 6379}}
}

// says is what a server says on a new connection, with a clock that is ahead of ours.
func says(run, replid2 string, up int, ahead time.Duration) string {
	return fmt.Sprintf("run_id:%s\r\nuptime_in_seconds:%d\r\nserver_time_usec:%d\r\nrole:master\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n",
		run, up, time.Now().Add(ahead).UnixMicro(), run, replid2)
}

// Each thing that speaks against it is enough, and a quarantine that was not cut short stays so.
func TestAQuarantineThatIsNotCutShort(t *testing.T) {
	type scene struct {
		q    *Quarantine
		up   int // seconds
		back Back
	}
	connect := func(s *scene, addr, run, replid2 string, ahead time.Duration) {
		s.q.Track("a", leadsTo(addr))
		_ = s.q.Saw("a", says(run, replid2, s.up, ahead), nil)
		s.back = Back{Run: run, Clock: time.Now().Add(ahead), Asked: time.Now()}
	}
	for name, c := range map[string]struct {
		play func(s *scene)
		why  string // empty: it is cut short
	}{
		"nothing":                   {func(s *scene) { connect(s, "10.0.0.1", "two", noReplid, 0) }, ""},
		"a clock that was set back": {func(s *scene) { connect(s, "10.0.0.1", "two", noReplid, -time.Hour) }, ""},
		"a clock that went ahead":   {func(s *scene) { connect(s, "10.0.0.1", "two", noReplid, 11*time.Millisecond) }, "its clock has gone ahead by 11ms"},
		"a setting":                 {func(s *scene) { connect(s, "10.0.0.1", "two", noReplid, 0); s.back.Wrong = "it is so" }, "it is so"},
		"a promotion":               {func(s *scene) { connect(s, "10.0.0.1", "two", "one", 0) }, "it was promoted"},
		"another address":           {func(s *scene) { connect(s, "10.0.0.2", "two", noReplid, 0) }, "another address"},
		"no address":                {func(s *scene) { connect(s, "", "two", noReplid, 0) }, "another address"},
		"an address there and back": {func(s *scene) {
			s.q.Track("a", leadsTo("10.0.0.2"))
			connect(s, "10.0.0.1", "two", noReplid, 0)
		}, "another address"},
		"a second restart meanwhile": {func(s *scene) {
			connect(s, "10.0.0.1", "two", noReplid, 0)
			connect(s, "10.0.0.1", "three", noReplid, 0)
		}, "changed several times"},
		"the server before": {func(s *scene) {
			connect(s, "10.0.0.1", "two", noReplid, 0)
			time.Sleep(time.Hour)
			connect(s, "10.0.0.1", "one", noReplid, 0)
		}, "changed several times"},
		"a restart since it was asked":    {func(s *scene) { connect(s, "10.0.0.1", "two", noReplid, 0); s.back.Run = "three" }, "restarted again"},
		"no time":                         {func(s *scene) { connect(s, "10.0.0.1", "two", noReplid, 0); s.back.Clock = time.Time{} }, "no time"},
		"a server that was up before":     {func(s *scene) { s.up = 62; connect(s, "10.0.0.1", "two", noReplid, 0) }, "was up before"},
		"a server that was started since": {func(s *scene) { s.up = 59; connect(s, "10.0.0.1", "two", noReplid, 0) }, ""},
		"a second server": {func(s *scene) {
			connect(s, "10.0.0.1", "two", noReplid, 0)
			s.q.Track("b", leadsTo("10.0.0.1"))
		}, "several servers"},
		"another store": {func(s *scene) { connect(s, "10.0.0.1", "two", noReplid, 0); s.q.Doubt() }, "another store"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scene{q: NewQuarantine()}
				s.q.Attach(10*time.Second, 0)
				connect(s, "10.0.0.1", "one", noReplid, 0)
				time.Sleep(time.Minute)
				c.play(s)
				if s.q.Refused(false) == nil {
					t.Fatal("there is no quarantine")
				}
				err := s.q.Lift(s.back)
				if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
					t.Errorf("Lift = %v; want %q", err, c.why)
				}
				if refused := s.q.Refused(false); (refused == nil) != (c.why == "") {
					t.Errorf("after Lift: %v", refused)
				}
				if s.back.Wrong != "" { // it is not asked twice
					s.back.Wrong = ""
					if err := s.q.Lift(s.back); err == nil {
						t.Error("it was cut short at the second try")
					}
				}
			})
		})
	}
}
