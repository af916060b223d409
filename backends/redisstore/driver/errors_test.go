package driver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// class is how a caller may take an error: see package backends.
func class(err error) string {
	switch permanent, unsent := backends.Permanent(err), backends.Unsent(err); {
	case permanent && unsent:
		return "two classes"
	case permanent:
		return "permanent"
	case unsent:
		return "not done"
	}
	return "unknown"
}

// inScript is what a server says of an error that a command of a script had.
var inScript = map[string]func(reply string) string{
	"Redis 7": func(reply string) string {
		return reply + " script: 0f1e2d, on @user_script:9."
	},
	"Redis 6": func(reply string) string {
		return "ERR Error running script (call to f_0f1e2d): @user_script:9: @user_script: 9: -" + reply
	},
}

func TestErrorRepliesAreOfOneClass(t *testing.T) {
	for _, c := range []struct{ text, class, inScript string }{
		{"LOADING Redis is loading the dataset in memory", "not done", "unknown"},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", "not done", "unknown"},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "not done", "unknown"},
		{"CLUSTERDOWN The cluster is down", "not done", "unknown"},
		{"CLUSTERDOWN Hash slot not served", "not done", "unknown"},
		{"TRYAGAIN Multiple keys request during rehashing of slot", "not done", "unknown"},
		{"MOVED 3999 127.0.0.1:6381", "not done", "unknown"},
		{"ASK 3999 127.0.0.1:6381", "not done", "unknown"},
		{"NOSCRIPT No matching script. Please use EVAL.", "not done", "unknown"},
		{"EXECABORT Transaction discarded because of previous errors.", "not done", "unknown"},
		{"ERR max number of clients reached", "not done", "unknown"},
		{"DENIED Redis is running in protected mode because protected mode is enabled", "permanent", "unknown"},

		// Of these a script meets its first write, or none.
		{"READONLY You can't write against a read only replica.", "not done", "not done"},
		{"OOM command not allowed when used memory > 'maxmemory'.", "not done", "not done"},
		{"MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.", "not done", "not done"},
		{"NOREPLICAS Not enough good replicas to write.", "not done", "not done"},

		{"NOPERM this user has no permissions to run the 'set' command", "permanent", "permanent"},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", "permanent", "permanent"},
		{"LOCKSTEP the counter of the lock holds no number below 2^53", "permanent", "permanent"},
		{"WRONGPASS invalid username-password pair or user is disabled.", "permanent", "unknown"},
		{"NOAUTH Authentication required.", "permanent", "unknown"},
		{"ERR unknown command 'EVALSHA', with args beginning with: 'f00'", "permanent", "unknown"},

		{"ERR value is not an integer or out of range", "unknown", "unknown"},
		{"UNKILLABLE Sorry the script already executed write commands against the dataset.", "unknown", "unknown"},
		{"", "unknown", "unknown"},
	} {
		if got := class(&ReplyError{Text: c.text}); got != c.class {
			t.Errorf("%q is %s; want %s", c.text, got, c.class)
		}
		for version, wrap := range inScript {
			if version == "Redis 7" && c.inScript != c.class && c.class == "permanent" {
				continue // not from inside a script
			}
			if got := class(&ReplyError{Text: wrap(c.text)}); got != c.inScript {
				t.Errorf("%q is %s; want %s", wrap(c.text), got, c.inScript)
			}
		}
	}
}

func TestErrorRepliesNameTheServerAndTheNextStep(t *testing.T) {
	const listed = " (docs/security.md lists what each strategy needs; ACL LOG on the server says what it refused)"
	for _, c := range []struct{ text, want, kind string }{
		{"READONLY You can't write against a read only replica.",
			"server 10.0.0.7:6379: READONLY You can't write against a read only replica; nothing was done: the server is a replica: " +
				"give the client the address of the master", "redis_readonly"},
		{"OOM command not allowed when used memory > 'maxmemory'. script: 0f1e2d, on @user_script:9.",
			"server 10.0.0.7:6379: OOM command not allowed when used memory > 'maxmemory'; nothing was done: raise maxmemory of the server, or remove keys", "redis_oom"},
		{"ERR unknown command `evalsha`, with args beginning with: `f00`", // before Redis 7
			"server 10.0.0.7:6379: ERR unknown command `evalsha`; use redisstore.WithoutScripts with the strategy single", "redis_err"},
		{"ERR unknown command 'SUBSCRIBE'", "server 10.0.0.7:6379: ERR unknown command 'SUBSCRIBE'; use redisstore.WithoutWakes", "redis_err"},
		{"ERR unknown command 'GET', with args beginning with: 'EVAL'", "server 10.0.0.7:6379: ERR unknown command 'GET'", "redis_err"},
		{"NOPERM this user has no permissions to run the 'evalsha' command", "server 10.0.0.7:6379: NOPERM this user has no permissions to run the 'evalsha' command; " +
			"allow its user that command, or use redisstore.WithoutScripts with the strategy single" + listed, "redis_noperm"},
		{"MISCONF Errors writing to the AOF file: No space left on device", "server 10.0.0.7:6379: MISCONF Errors writing to the AOF file: No space left on device; " +
			"nothing was done: the server can't write its data to disk (see its log, and INFO persistence)", "redis_misconf"},
		{"NOREPLICAS Not enough good replicas to write.", "server 10.0.0.7:6379: NOREPLICAS Not enough good replicas to write; " +
			"nothing was done: too few replicas are connected for min-replicas-to-write", "redis_noreplicas"},
		{"ERR max number of clients reached",
			"server 10.0.0.7:6379: ERR max number of clients reached; nothing was sent: close clients, or raise maxclients of the server", "redis_maxclients"},
		{"DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.",
			"server 10.0.0.7:6379: DENIED Redis is running in protected mode; nothing was sent: give the server a password, " +
				"or set its protected-mode to no", "redis_denied"},
		{"NOAUTH Authentication required.",
			"server 10.0.0.7:6379: NOAUTH Authentication required; give the client a password, and a user name if it needs one", "redis_noauth"},
		{"WRONGTYPE Operation against a key holding the wrong kind of value",
			"server 10.0.0.7:6379: WRONGTYPE Operation against a key holding the wrong kind of value; the key holds something else than this kind " +
				"of lock: use another key, or a prefix of its own (see redisstore.WithPrefix)", "redis_wrongtype"},
		{"NOPERM this user has no permissions to run the 'set' command",
			"server 10.0.0.7:6379: NOPERM this user has no permissions to run the 'set' command; allow its user that command" + listed, "redis_noperm"},
		{"NOPERM this user has no permissions to access one of the keys used as arguments",
			"server 10.0.0.7:6379: NOPERM this user has no permissions to access one of the keys used as arguments; " +
				"allow its user to read and write the keys of locks" + listed, "redis_noperm"},
		{"NOPERM this user has no permissions to access one of the channels used as arguments",
			"server 10.0.0.7:6379: NOPERM this user has no permissions to access one of the channels used as arguments; " +
				"allow its user the channels of locks" + listed, "redis_noperm"},
		{"ERR The user executing the script can't run this command or subcommand script: 0f1e2d, on @user_script:1.",
			"server 10.0.0.7:6379: ERR The user executing the script can't run this command or subcommand; allow its user the commands of this script" +
				listed, "redis_noperm"},
		{"ERR ACL failure in script: User single has no permissions to run the 'get' command script: 0f1e2d, on @user_script:1.",
			"server 10.0.0.7:6379: ERR ACL failure in script: User single has no permissions to run the 'get' command; " +
				"allow its user the commands of this script" + listed, "redis_noperm"},
		{"ERR ACL failure in script: No permissions to access a key script: on @user_script:1.", // Valkey 9 names no digest
			"server 10.0.0.7:6379: ERR ACL failure in script: No permissions to access a key; " +
				"allow its user to read and write the keys of locks" + listed, "redis_noperm"},
		{"WRONGPASS invalid username-password pair or user is disabled.",
			"server 10.0.0.7:6379: WRONGPASS invalid username-password pair or user is disabled; check the user name and the password of the client, " +
				"and that the user is on (ACL LIST)", "redis_wrongpass"},
		{"ERR syntax error, with args beginning with: 'S3CRET'", "server 10.0.0.7:6379: ERR syntax error; the outcome is unknown", "redis_err"},
	} {
		e := &ReplyError{Addr: "10.0.0.7:6379", Text: c.text}
		if e.Error() != c.want || e.ErrorType() != c.kind {
			t.Errorf("%q, %s\nwant %q, %s", e, e.ErrorType(), c.want, c.kind)
		}
	}
}

// TestWhatAServerRefusesOnANewConnectionIsKnownNotToBeDone: the call itself was not sent.
func TestWhatAServerRefusesOnANewConnectionIsKnownNotToBeDone(t *testing.T) {
	for _, c := range []struct{ text, want, class string }{
		{"ERR DB index is out of range",
			"server a:1: ERR DB index is out of range; nothing was sent: choose a database that the server has (CONFIG GET databases)", "permanent"},
		{"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
			"server a:1: ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?; " +
				"nothing was sent: check the user name and the password of the client", "permanent"},
		{"ERR invalid password", "server a:1: ERR invalid password; nothing was sent: check the user name and the password of the client", "permanent"},
		{"WRONGPASS invalid username-password pair or user is disabled.",
			"server a:1: WRONGPASS invalid username-password pair or user is disabled; check the user name and the password of the client, " +
				"and that the user is on (ACL LIST)", "permanent"},
		{"LOADING Redis is loading the dataset in memory", "server a:1: LOADING Redis is loading the dataset in memory; " +
			"nothing was sent: wait until the server has read its data (INFO persistence)", "not done"},
		{"ERR that nobody knows", "server a:1: ERR that nobody knows; nothing was sent", "not done"},
	} {
		err := Connecting(&ReplyError{Addr: "a:1", Text: c.text})
		if err.Error() != c.want || class(err) != c.class {
			t.Errorf("%q, %s\nwant %q, %s", err, class(err), c.want, c.class)
		}
	}
}

// timeout is the error of package net after a deadline of a connection. It matches context.DeadlineExceeded.
type timeout struct{}

func (timeout) Error() string        { return "i/o timeout" }
func (timeout) Timeout() bool        { return true }
func (timeout) Temporary() bool      { return true }
func (timeout) Is(target error) bool { return target == context.DeadlineExceeded }

func TestErrorsOfTheWireNameTheServerTheOutcomeAndTheirKind(t *testing.T) {
	server := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 6379}
	op := func(name string, err error) error { return &net.OpError{Op: name, Net: "tcp", Addr: server, Err: err} }
	const addr = "10.0.0.7:6379"
	var heard Heard
	heard.Note(io.EOF)
	heard.Note(&ReplyError{Text: "NOAUTH Authentication required."})
	for _, c := range []struct {
		addr string
		err  error
		want string
		kind string
	}{
		{addr, io.EOF, "server 10.0.0.7:6379: EOF; the outcome is unknown", "eof"},
		{addr, fmt.Errorf("read: %w", io.ErrUnexpectedEOF), "server 10.0.0.7:6379: read: unexpected EOF; the outcome is unknown", "eof"},
		{"", io.EOF, "EOF; the outcome is unknown", "eof"},
		{addr, op("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)),
			"dial tcp 10.0.0.7:6379: connect: connection refused; nothing was sent", "connection_refused"},
		{"", op("read", os.NewSyscallError("read", syscall.ECONNRESET)),
			"read tcp 10.0.0.7:6379: read: connection reset by peer; the outcome is unknown", "connection_reset"},
		{addr, op("write", os.NewSyscallError("write", syscall.EPIPE)),
			"write tcp 10.0.0.7:6379: write: broken pipe; the outcome is unknown", "connection_reset"},
		{addr, op("dial", os.NewSyscallError("connect", syscall.EHOSTUNREACH)),
			"dial tcp 10.0.0.7:6379: connect: no route to host; nothing was sent", "unreachable"},
		{addr, op("read", net.ErrClosed), "read tcp 10.0.0.7:6379: use of closed network connection; the outcome is unknown", "closed"},
		{addr, op("read", timeout{}), "read tcp 10.0.0.7:6379: i/o timeout; the outcome is unknown", "timeout"},
		{addr, op("dial", timeout{}), "dial tcp 10.0.0.7:6379: i/o timeout; nothing was sent", "timeout"},
		{addr, context.DeadlineExceeded, "server 10.0.0.7:6379: context deadline exceeded; the outcome is unknown", "timeout"},
		{"", op("dial", &net.DNSError{Err: "no such host", Name: "redis"}), "dial tcp 10.0.0.7:6379: lookup redis: no such host; nothing was sent", "no_host"},
		{addr, tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"},
			"server 10.0.0.7:6379: tls: first record does not look like a TLS handshake; the server may not speak TLS on this port; " +
				"the outcome is unknown", "tls"},
		{addr, Connecting(io.EOF), "server 10.0.0.7:6379: EOF; nothing was sent", "eof"},
		{addr, new(Heard).Explain(io.EOF),
			"server 10.0.0.7:6379: EOF before any answer; the server may speak only TLS on this port, or be a proxy that does not know the first command; " +
				"the outcome is unknown", "eof"},
		{addr, (&Heard{First: "HELLO"}).Explain(io.EOF),
			"server 10.0.0.7:6379: EOF before any answer; the server may speak only TLS on this port, or be a proxy that does not know " +
				"the first command, HELLO; the outcome is unknown", "eof"},
		{addr, (&Heard{TLS: true}).Explain(op("read", timeout{})),
			"read tcp 10.0.0.7:6379: i/o timeout before any answer; the server may not speak TLS on this port; the outcome is unknown", "timeout"},
		{addr, heard.Explain(io.EOF), "server 10.0.0.7:6379: EOF; the outcome is unknown", "eof"},
		{addr, new(Heard).Explain(errors.New("odd")), "server 10.0.0.7:6379: odd; the outcome is unknown", "connection"},
		{addr, Kind("closed", true, errors.New("client is closed")), "server 10.0.0.7:6379: client is closed; nothing was sent", "closed"},
		{addr, errors.New("odd"), "server 10.0.0.7:6379: odd; the outcome is unknown", "connection"},
	} {
		err := Fault(t.Context(), c.addr, c.err)
		var typed interface{ ErrorType() string }
		if err.Error() != c.want || !errors.As(err, &typed) || typed.ErrorType() != c.kind {
			t.Errorf("%q, %s\nwant %q, %s", err, typed.ErrorType(), c.want, c.kind)
		}
		if unsent := strings.HasSuffix(c.want, "nothing was sent"); (class(err) == "not done") != unsent || class(err) == "unknown" == unsent {
			t.Errorf("%q is %s", err, class(err))
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("%q matches the end of a ctx that goes on", err)
		}
		if w := err.(*WireError); errors.Is(c.err, io.EOF) != errors.Is(err, io.EOF) || c.addr == "" && !errors.Is(c.err, io.EOF) && w.Addr != addr {
			t.Errorf("%q: address %q", err, w.Addr)
		}
		if again := Fault(t.Context(), "elsewhere", fmt.Errorf("once more: %w", err)); !strings.HasPrefix(again.Error(), "once more: ") {
			t.Errorf("Fault of %q = %q", err, again)
		}
	}
	if err := Fault(t.Context(), addr, nil); err != nil {
		t.Errorf("Fault of nothing = %v", err)
	}
}

// TestWhatIsBelowAnErrorOfTheWireReadsAsTheClientLibrarySaysIt: a logger may print each error of a tree.
func TestWhatIsBelowAnErrorOfTheWireReadsAsTheClientLibrarySaysIt(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"while the ctx goes on":   {t.Context(), "[EOF]"},
		"when the ctx has an end": {ended, "[context canceled EOF]"},
	} {
		below := Fault(c.ctx, "a:1", io.EOF).(*WireError).Unwrap()
		if got := fmt.Sprint(below); got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}

// TestAnErrorIsUnsentOnlyIfNothingWasSent: an adapter tells the error of a dial by it.
func TestAnErrorIsUnsentOnlyIfNothingWasSent(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{io.EOF, false},
		{Fault(t.Context(), "a:1", io.EOF), false},
		{NotSent(t.Context(), "a:1", io.EOF), true},
		{fmt.Errorf("dial: %w", Connecting(io.EOF)), true},
		{&ReplyError{Text: "LOADING Redis is loading the dataset in memory"}, true},
	} {
		if got := backends.Unsent(c.err); got != c.want {
			t.Errorf("backends.Unsent(%v) = %v", c.err, got)
		}
	}
}

// TestWhatCannotComeAboutIsPermanent: a wait for it would end at its limit alone.
func TestWhatCannotComeAboutIsPermanent(t *testing.T) {
	_, unknownPort := net.LookupPort("tcp", "redis6")
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	for _, c := range []struct {
		err        error
		want, kind string
	}{
		{Closed(errors.New("client is closed")), "server a:1: client is closed; nothing was sent", "closed"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.AddrError{Err: "missing port in address", Addr: "a"}},
			"server a:1: dial tcp: address a: missing port in address; give the address as host:port; nothing was sent", "address"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: unknownPort},
			"server a:1: dial tcp: lookup tcp/redis6: unknown port; give the address as host:port; nothing was sent", "address"},
		{untrusted, "server a:1: tls: failed to verify certificate: x509: certificate signed by unknown authority; " +
			"check RootCAs and ServerName of the client's tls.Config; nothing was sent", "tls"},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, "server a:1: remote error: tls: certificate required; " +
			"check Certificates of the client's tls.Config; nothing was sent", "tls"},
	} {
		err := Fault(t.Context(), "a:1", c.err)
		if err.Error() != c.want || class(err) != "permanent" || err.(*WireError).ErrorType() != c.kind {
			t.Errorf("%q, %s, %s\nwant %q, permanent, %s", err, class(err), err.(*WireError).ErrorType(), c.want, c.kind)
		}
	}
}

func TestAnErrorMatchesTheEndOfItsOwnCtxAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(time.Second)
		for _, c := range []struct {
			name string
			ctx  context.Context
			end  error
			text string
			kind string
		}{
			{"deadline", late, context.DeadlineExceeded, "server a:1: context deadline exceeded: EOF; the outcome is unknown", "timeout"},
			{"cancelled", gone, context.Canceled, "server a:1: context canceled: EOF; the outcome is unknown", "canceled"},
			{"goes on", t.Context(), nil, "server a:1: EOF; the outcome is unknown", "eof"},
		} {
			err := Fault(c.ctx, "a:1", io.EOF)
			if err.Error() != c.text || err.(*WireError).ErrorType() != c.kind || !errors.Is(err, io.EOF) {
				t.Errorf("%s: %q, %s", c.name, err, err.(*WireError).ErrorType())
			}
			for _, library := range []error{io.EOF, context.DeadlineExceeded, context.Canceled, timeout{}} {
				for _, end := range []error{context.DeadlineExceeded, context.Canceled} {
					if err := Fault(c.ctx, "a:1", library); errors.Is(err, end) != (end == c.end) {
						t.Errorf("%s: %v of %v matches %v: %v", c.name, err, library, end, end != c.end)
					}
				}
			}
		}
	})
}

func TestAnAddressIsNoURL(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:6379": "", "redis.example:6379": "", "[::1]:6379": "",
		"redis://127.0.0.1:6379":         "address redis://127.0.0.1:6379 is a URL, and host:port is needed: see ParseURL",
		"rediss://me:S3CRET@host:6379/0": "address rediss://me:xxxxx@host:6379/0 is a URL, and host:port is needed: see ParseURL",
		"redis://:S3CRET@[broken":        "the address is a URL, and host:port is needed: see ParseURL",
	} {
		err := CheckAddr(addr, ": see ParseURL")
		if got := fmt.Sprint(err); err != nil && (got != want || class(err) != "permanent") || err == nil && want != "" {
			t.Errorf("CheckAddr(%q) = %q, %s; want %q", addr, got, class(err), want)
		}
	}
}

// TestACallThatIsNotPermittedNamesItsKeys: the server does not say which of them it is.
func TestACallThatIsNotPermittedNamesItsKeys(t *testing.T) {
	const listed = " (docs/security.md lists what each strategy needs; ACL LOG on the server says what it refused)"
	denied := &ReplyError{Text: "NOPERM this user has no permissions to access one of the keys used as arguments"}
	for want, args := range map[string][]any{
		`"a"`:                     {"SET", "a", "token"},
		`"a" and "{a}:\x00queue"`: {"EVALSHA", "0f1e2d", 2, "a", "{a}:\x00queue", "token"},
	} {
		err := NameKeys(denied, args)
		if want := denied.Text + "; allow its user to read and write " + want + listed; err == nil || err.Error() != want {
			t.Errorf("%v = %v\nwant %s", args, err, want)
		}
	}
	if want := denied.Text + "; allow its user to read and write the keys of locks" + listed; denied.Error() != want {
		t.Errorf("the error of the client library has become %q", denied)
	}
}

func TestReplyErrorsSayWhetherRepeatingHelps(t *testing.T) {
	for _, c := range []struct {
		text, code string
		refused    bool
		wrongType  bool
	}{
		{text: "NOPERM this user has no permissions to run the 'set' command", code: "NOPERM", refused: true},
		{text: "ERR Error running script (call to f_1): @user_script:1: -NOPERM this user", code: "NOPERM", refused: true},
		{text: "ERR The user executing the script can't publish to the channel mentioned in the command script: f", code: "NOPERM", refused: true},
		{text: "ERR ACL failure in script: User u has no permissions to run the 'del' command script: f, on @user_script:7.", code: "NOPERM", refused: true},
		{text: "ERR Error running script (call to f_1): @user_script:7: @user_script: 7: The user executing the script can't run this", code: "NOPERM", refused: true},
		{text: "WRONGTYPE Operation against a key holding the wrong kind of value", code: "WRONGTYPE", refused: true, wrongType: true},
		{text: "ERR Error running script (call to f_1): @user_script:8: WRONGTYPE Operation against", code: "WRONGTYPE", refused: true, wrongType: true},
		{text: "NOAUTH Authentication required.", code: "NOAUTH", refused: true},
		{text: "WRONGPASS invalid username-password pair or user is disabled.", code: "WRONGPASS", refused: true},
		{text: "READONLY You can't write against a read only replica.", code: "READONLY"},
		{text: "LOADING Redis is loading the dataset in memory", code: "LOADING"},
		{text: "OOM command not allowed when used memory > 'maxmemory'.", code: "OOM"},
		{text: "NOSCRIPT No matching script.", code: "NOSCRIPT"},
		{text: "", code: ""},
	} {
		e := &ReplyError{Text: c.text}
		if e.Code() != c.code || e.Permanent() != c.refused || errors.Is(e, backends.ErrWrongType) != c.wrongType {
			t.Errorf("%q: code %s, refused %v, wrong type %v", c.text, e.Code(), e.Permanent(), errors.Is(e, backends.ErrWrongType))
		}
	}
}

func TestAReplyThatQuotesTheArgumentsDoesNotShowTheToken(t *testing.T) {
	e := &ReplyError{Text: "ERR unknown command 'EVALSHA', with args beginning with: 'f00' '1' 'key' 'S3CRET' "}
	if got := e.Error(); got != "ERR unknown command 'EVALSHA'; use redisstore.WithoutScripts with the strategy single" {
		t.Errorf("Error = %q", got)
	}
}

// FuzzReplyError: an error shows no argument that the server quotes, says whether repeating helps,
// and is an error of the family whatever its text is.
func FuzzReplyError(f *testing.F) {
	f.Add("ERR unknown command 'EVALSHA'", "S3CRET")
	f.Add("NOPERM this user has no permissions", "x")
	f.Add("ERR Error running script (call to f_1): @user_script:1: -NOPERM", "x")
	f.Add("WRONGTYPE Operation against a key", "x")
	f.Add("LOCKSTEP", "")
	f.Fuzz(func(t *testing.T, text, token string) {
		e := &ReplyError{Text: text + ", with args beginning with: '" + token + "' "}
		if token = "'" + token + "' "; !strings.Contains(text, token) && strings.Contains(e.Error(), token) {
			t.Errorf("%q shows %q", e, token)
		}
		e = &ReplyError{Text: text}
		refuses := map[string]bool{"NOPERM": true, "NOAUTH": true, "WRONGPASS": true, "WRONGTYPE": true, "LOCKSTEP": true}[e.Code()] || strings.HasPrefix(text, "ERR unknown command")
		if e.Permanent() != refuses || errors.Is(e, backends.ErrWrongType) != (e.Code() == "WRONGTYPE") || !strings.HasPrefix(e.ErrorType(), "redis_") {
			t.Errorf("%q: code %q, refused %v, type %q", text, e.Code(), e.Permanent(), e.ErrorType())
		}
		if said, _, _ := strings.Cut(e.Error(), "; "); !strings.HasPrefix(text, said) || strings.ContainsAny(e.Code(), " ") {
			t.Errorf("%q: code %q, %q", text, e.Code(), e)
		}
		if e.Permanent() && e.Unsent() {
			t.Errorf("%q is of two classes", text)
		}
	})
}

func TestErrorsSayWhatTheyAreInAWord(t *testing.T) {
	for err, want := range map[interface {
		error
		ErrorType() string
	}]string{
		backends.Invalid("ttl 0s is under the limit"):  "invalid",
		&QuarantineError{Until: time.Now()}:            "quarantined",
		&replicaError{"host:1", "slave"}:               "replica",
		&untoldError{"host:1", nil}:                    "quarantined",
		&ReplyError{Text: "NOPERM this user has none"}: "redis_noperm",
	} {
		if got := err.ErrorType(); got != want || err.Error() == "" {
			t.Errorf("%T: %q is of type %q, want %q", err, err, got, want)
		}
	}
}
