package driver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/lockstep-go/lockstep/backends"
)

// ReplyError is an error reply of the server. It is of one of three classes:
//   - permanent (Permanent): the server did nothing, or not all, and a repetition gets the same reply;
//   - not done (Unsent): the server did nothing, and the command may be repeated;
//   - unknown: all other replies. A script may have run up to the line that failed.
type ReplyError struct {
	Addr string // the server's; empty if the client library does not tell
	Text string // as the server sent it: it may quote the arguments, and so a token

	// Connecting says that the server refused what the client library sends to open a connection
	// (HELLO, AUTH, SELECT), so the call itself was not sent.
	Connecting bool

	keys []string // of a call that lacks a permission, quoted
}

// Error is the address, the text without the arguments that some errors quote and without the
// digest of a script, and what to do next.
func (e *ReplyError) Error() string {
	text, _, _ := strings.Cut(e.Text, argsQuoted)
	if isProtected(text) { // it goes on with 800 characters of advice
		text, _, _ = strings.Cut(text, " because")
	}
	// Redis 7.2 and later begin the reply with "ERR ACL failure in script: ".
	if i := strings.LastIndex(text, " script: "); i >= 0 && strings.Contains(text[i:], "@user_script") {
		text = text[:i]
	}
	return at(e.Addr, strings.TrimSuffix(text, ".")) + e.next()
}

// argsQuoted begins what some error replies quote: it may be a password or a token.
const argsQuoted = ", with args beginning with:"

func (e *ReplyError) next() string {
	switch code := e.Code(); {
	case e.turnedAway() && isProtected(e.Text):
		return nothingSent + ": give the server a password, or set its protected-mode to no"
	case e.turnedAway():
		return nothingSent + ": close clients, or raise maxclients of the server"
	case code == "NOAUTH":
		return "; give the client a password, and a user name if it needs one"
	case code == "WRONGPASS":
		return "; check the user name and the password of the client, and that the user is on (ACL LIST)"
	case code == "NOPERM":
		return e.lacks()
	case code == "OOM":
		return "; nothing was done: raise maxmemory of the server, or remove keys"
	case code == "MISCONF":
		return "; nothing was done: the server can't write its data to disk (see its log, and INFO persistence)"
	case code == "NOREPLICAS":
		return "; nothing was done: too few replicas are connected for min-replicas-to-write"
	case code == "WRONGTYPE":
		return "; the key holds something else than this kind of lock: use another key, or a prefix of its own (see redisstore.WithPrefix)"
	case e.Connecting && isDatabase(e.Text):
		return "; nothing was sent: choose a database that the server has (CONFIG GET databases)"
	case e.Connecting && isPassword(e.Text):
		return "; nothing was sent: check the user name and the password of the client"
	case e.Connecting:
		return nothingSent + e.passes()
	case e.Unsent():
		return "; nothing was done" + e.passes()
	case !e.Permanent():
		return OutcomeUnknown
	}
	if option := e.without(); option != "" {
		return "; use " + option
	}
	return ""
}

// passes is what to do against the state of a server that may pass.
func (e *ReplyError) passes() string {
	switch e.Code() {
	case "READONLY", "MASTERDOWN":
		return ": the server is a replica: give the client the address of the master"
	case "LOADING":
		return ": wait until the server has read its data (INFO persistence)"
	case "BUSY":
		return ": SCRIPT KILL ends the script that keeps the server busy"
	case "CLUSTERDOWN":
		return ": look at the cluster (redis-cli --cluster check)"
	case "MOVED":
		return ": the key is on another server of a cluster, which needs a client for clusters"
	}
	return ""
}

// without is the option of a store that does not need the command that the server does not know, or does
// not permit.
func (e *ReplyError) without() string {
	text, _, _ := strings.Cut(e.Text, argsQuoted)
	switch text = strings.ToUpper(text); {
	case strings.Contains(text, "'EVAL"), strings.Contains(text, "`EVAL"): // EVALSHA too
		return "redisstore.WithoutScripts with the strategy single"
	case strings.Contains(text, "PUBLISH"), strings.Contains(text, "SUBSCRIBE"):
		return "redisstore.WithoutWakes"
	}
	return ""
}

const nothingSent = "; nothing was sent"

// OutcomeUnknown is what the text of an error says if the command may have been done.
const OutcomeUnknown = "; the outcome is unknown"

// Code is the first word, such as NOPERM. Errors from inside a script name theirs further on before
// Redis 7, and tell of a missing permission in words of their own before and since.
func (e *ReplyError) Code() string {
	if strings.Contains(e.Text, "The user executing the script can't ") || strings.Contains(e.Text, "ACL failure in script") {
		return "NOPERM"
	}
	for _, code := range []string{"NOPERM", "WRONGTYPE", "READONLY", "OOM", "MISCONF", "NOREPLICAS", "LOCKSTEP"} {
		if strings.Contains(e.Text, code+" ") {
			return code
		}
	}
	code, _, _ := strings.Cut(e.Text, " ")
	return code
}

// Permanent says that repeating the command will not help: it is not permitted, or not possible on
// this key. LOCKSTEP is the code of our own scripts for what they find there.
func (e *ReplyError) Permanent() bool {
	switch e.Code() {
	case "NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "LOCKSTEP":
		return true
	}
	return strings.HasPrefix(e.Text, "ERR unknown command") || e.turnedAway() && isProtected(e.Text) || e.Connecting && (isDatabase(e.Text) || isPassword(e.Text))
}

// isDatabase tells that SELECT was refused for its number.
func isDatabase(text string) bool {
	return text == "ERR DB index is out of range" || text == "ERR invalid DB index" || text == "ERR SELECT is not allowed in cluster mode"
}

// isPassword tells that AUTH was refused in the words of servers before 6.0, or by a server that
// has no password.
func isPassword(text string) bool {
	return text == "ERR invalid password" || strings.HasPrefix(text, "ERR Client sent AUTH") || strings.HasPrefix(text, "ERR AUTH ")
}

// Unsent says that nothing was done, so the command may be repeated and there is nothing to clean
// up.
func (e *ReplyError) Unsent() bool {
	if e.Connecting {
		return !e.Permanent()
	}
	switch e.Code() {
	case "READONLY", "OOM", "MISCONF", "NOREPLICAS":
		// Inside a script as well. What these depend on does not change while a script runs, and a
		// server that is out of memory lets a script go on that has written. So it is the first
		// write that fails.
		return true
	case "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOSCRIPT", "EXECABORT":
		return !e.inScript()
	}
	return e.turnedAway() && !e.Permanent()
}

func (e *ReplyError) turnedAway() bool { return isTurnedAway(e.Text) && !e.inScript() }

// inScript tells that a script had begun.
func (e *ReplyError) inScript() bool {
	return strings.Contains(e.Text, " script: ") || strings.Contains(e.Text, "Error running script")
}

// ErrorType is the code of the reply in lower case.
func (e *ReplyError) ErrorType() string {
	if e.Code() == "ERR" && e.Unsent() {
		return "redis_maxclients"
	}
	return "redis_" + strings.ToLower(e.Code())
}

// Is matches the errors of package backends for what a key holds.
func (e *ReplyError) Is(target error) bool {
	switch target {
	case backends.ErrWrongType:
		return e.Code() == "WRONGTYPE"
	case backends.ErrOtherGroup:
		return e.Text == "LOCKSTEP "+backends.ErrOtherGroup.Error()
	}
	return false
}

// Heard notes whether a server has ever answered. Its zero value is ready to use.
type Heard struct {
	TLS   bool   // the client speaks it, as far as is known
	First string // the command that the client sends first on a connection; empty: not known
	yes   atomic.Bool
}

// Note takes the error of a command, or nil. After the first answer it costs next to nothing.
func (h *Heard) Note(err error) {
	if !h.yes.Load() && (err == nil || errors.As(err, new(*ReplyError))) {
		h.yes.Store(true)
	}
}

// Explain adds to an error what it may mean if no server has ever answered. A server that does not
// speak TLS waits for the end of what it takes for a command. A proxy such as twemproxy closes a
// connection on which it gets a command that it does not know.
func (h *Heard) Explain(err error) error {
	switch encrypts := h.TLS || strings.Contains(err.Error(), "TLS"); {
	case h.yes.Load(), errors.As(err, new(answered)):
		return err
	case !encrypts && isEnd(err):
		first := "the first command"
		if h.First != "" {
			first += ", " + h.First
		}
		return fmt.Errorf("%w before any answer; the server may speak only TLS on this port, or be a proxy that does not know %s", err, first)
	case encrypts && isTimeout(err):
		return fmt.Errorf("%w before any answer; the server may not speak TLS on this port", err)
	}
	return err
}

func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// IsDemoted tells that the server is a replica: what was sent was not done, and
// the connection is to be closed. The next one may lead to the present master.
func IsDemoted(err error) bool { return isRefused(err, "READONLY", "MASTERDOWN") }

// Elsewhere tells that the command was not done, and that another connection may do: it led to a
// replica, or ended while it was idle.
func Elsewhere(err error) bool { return err != nil && (IsDemoted(err) || IsUnused(err)) }

// IsMoved tells that the key is on another server of the cluster: what was sent was not done.
func IsMoved(err error) bool { return isRefused(err, "MOVED") }

// IsMoving tells that the key is on another server of the cluster or, for now, on its way there: both
// servers then refuse what needs two keys (TRYAGAIN), or send the client to each other (MOVED, ASK). What
// was sent was not done.
func IsMoving(err error) bool { return isRefused(err, "MOVED", "ASK", "TRYAGAIN") }

// isRefused tells that nothing was done, and that the server has said so by one of the codes.
func isRefused(err error, codes ...string) bool {
	reply, ok := errors.AsType[*ReplyError](err)
	return ok && slices.Contains(codes, reply.Code()) && backends.Unsent(err)
}

// WireError is a call that got no reply. It matches [context.DeadlineExceeded] and
// [context.Canceled] only if the ctx of the call has ended so, or is about to (see [Early]): a timeout of
// the client library does not look like one of the caller.
type WireError struct {
	Addr    string // the server's; empty if the client library does not tell
	NotSent bool   // nothing was sent, or there was no connection; else the outcome is unknown
	Err     error  // of the client library

	end    error // of the ctx
	shared bool  // given up with another call of the same round trip
}

// Fault makes a *WireError of err, which is the error of a call with ctx that
// got no reply. It returns err as it is if it is one already, or if it is a *ReplyError, which is
// what a server says that refuses a connection.
//
// The outcome is unknown, unless err says of itself that nothing was sent, as the error of a dial
// or of a certificate does.
func Fault(ctx context.Context, addr string, err error) error {
	if err == nil || errors.As(err, new(*ReplyError)) || errors.As(err, new(*WireError)) {
		return err
	}
	w := &WireError{Addr: addr, NotSent: backends.Unsent(err) || isUntrusted(err) || isStranger(err), Err: err, end: Ended(ctx)}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil && addr == "" {
		w.Addr = op.Addr.String()
	}
	if w.end == nil && isUsedUp(err) && errors.Is(err, context.DeadlineExceeded) {
		w.end = context.DeadlineExceeded // see Early
	}
	return w
}

// NotSent is Fault for what fails before anything is sent.
func NotSent(ctx context.Context, addr string, err error) error {
	err = Fault(ctx, addr, err)
	if w, ok := err.(*WireError); ok { //nolint:errorlint // that one, as Fault has made it
		w.NotSent = true
	}
	return err
}

// Repeated is err without its claim that nothing was sent: the library may have sent the call in an earlier
// try. An error reply to the last try stays as it is.
func Repeated(err error) error {
	if w, ok := err.(*WireError); ok && w.NotSent { //nolint:errorlint // that one, as Fault has made it
		unknown := *w
		unknown.NotSent = false
		return &unknown
	}
	return err
}

func (e *WireError) Error() string {
	text := e.Err.Error()
	switch {
	case e.shared:
		text = "given up with a call in the same round trip that had no more time: " + text
	case e.end != nil && !errors.Is(e.Err, e.end):
		text = e.end.Error() + ": " + text
	}
	text = at(e.Addr, text) + e.hint()
	if e.NotSent {
		return text + nothingSent
	}
	return text + OutcomeUnknown
}

// at puts the address before a text that does not have it.
func at(addr, text string) string {
	if addr == "" || strings.Contains(text, addr) {
		return text
	}
	return "server " + addr + ": " + text
}

func (e *WireError) hint() string {
	switch {
	case errors.As(e.Err, new(tls.RecordHeaderError)):
		return "; the server may not speak TLS on this port"
	case isUntrusted(e.Err):
		return "; check RootCAs and ServerName of the client's tls.Config"
	case isStranger(e.Err):
		return "; check Certificates of the client's tls.Config"
	case isNoAddress(e.Err):
		return "; give the address as host:port"
	}
	return ""
}

// isUntrusted tells that the client does not trust the server's certificate.
func isUntrusted(err error) bool { return errors.As(err, new(*tls.CertificateVerificationError)) }

// isNoAddress tells that there can be no server at what the client was given: the port is missing,
// or is none. Package net reports the name of a port that it does not know like that of a host.
func isNoAddress(err error) bool {
	name, ok := errors.AsType[*net.DNSError](err)
	return ok && name.Err == "unknown port" || errors.As(err, new(*net.AddrError))
}

// isStranger tells that the server does not trust the client's certificate, or has got none. It
// says so before it reads a command, though in TLS 1.3 the client may have sent one by then.
func isStranger(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error" && strings.Contains(op.Err.Error(), "certificate")
}

// Unsent says that nothing was done, so the call may be repeated and there is nothing to clean up.
func (e *WireError) Unsent() bool { return e.NotSent && !e.Permanent() }

// Stale says that the connection ended while it was idle, before the call: the server closed it, or
// it was cut. Another attempt may get through at once, on another connection.
func (e *WireError) Stale() bool {
	var s interface{ Stale() bool }
	return e.end == nil && errors.As(e.Err, &s) && s.Stale()
}

// Permanent says that repeating the call will not help: the client is closed, its address is none,
// or there is no trust between it and the server. Nothing was sent then.
func (e *WireError) Permanent() bool {
	return backends.Permanent(e.Err) || e.NotSent && (isUntrusted(e.Err) || isStranger(e.Err) || isNoAddress(e.Err))
}

// Unwrap gives the end of the ctx, if it has ended, and the error of the client library.
func (e *WireError) Unwrap() []error {
	cause := veiled{err: e.Err, end: e.end}
	if e.end == nil {
		return []error{cause}
	}
	return []error{e.end, cause}
}

// Shared returns the error of a round trip as the error of one of its calls, the one with ctx.
func Shared(ctx context.Context, e *WireError) *WireError {
	own := *e
	own.end = Ended(ctx)
	own.shared = own.end == nil && e.end != nil
	return &own
}

// ErrorType is one word: eof, connection_refused, connection_reset, closed, tls, timeout, canceled
// and others. If the error of the client library has an ErrorType, it is the word of that error.
func (e *WireError) ErrorType() string {
	var typed interface{ ErrorType() string }
	switch {
	case errors.As(e.Err, &typed):
		return typed.ErrorType()
	case errors.Is(e.end, context.Canceled):
		return "canceled"
	case e.end != nil, e.shared, isTimeout(e.Err):
		return "timeout"
	}
	for _, k := range words {
		if k.is(e.Err) {
			return k.word
		}
	}
	return "connection"
}

var words = []struct {
	word string
	is   func(error) bool
}{
	{"eof", func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }},
	{"connection_refused", func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }},
	{"connection_reset", func(err error) bool {
		return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED)
	}},
	{"unreachable", func(err error) bool {
		return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
	}},
	{"closed", func(err error) bool { return errors.Is(err, net.ErrClosed) }},
	{"address", isNoAddress},
	{"no_host", func(err error) bool { return errors.As(err, new(*net.DNSError)) }},
	{"tls", func(err error) bool {
		return errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(*tls.CertificateVerificationError)) ||
			errors.As(err, new(tls.AlertError)) || isStranger(err)
	}},
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// Kind returns err with the word that says what it is, and whether nothing was sent.
func Kind(word string, notSent bool, err error) error { return kind{err, word, notSent} }

// Connecting marks err as an error that kept a connection from being opened. Nothing was sent.
func Connecting(err error) error {
	if reply, ok := errors.AsType[*ReplyError](err); ok {
		reply.Connecting = true
		return err
	}
	return backends.AsUnsent(err)
}

// Closed marks err as the error of a client that is closed and will never send anything again.
func Closed(err error) error { return closed{kind{err, "closed", true}} }

type closed struct{ kind }

func (closed) Permanent() bool { return true }

type kind struct {
	error
	word    string
	notSent bool
}

func (k kind) Unwrap() error     { return k.error }
func (k kind) ErrorType() string { return k.word }
func (k kind) Unsent() bool      { return k.notSent }

// veiled is err, except that it matches the end of no ctx but the caller's.
type veiled struct{ err, end error }

func (v veiled) Error() string { return v.err.Error() }

func (v veiled) Is(target error) bool {
	if (target == context.DeadlineExceeded || target == context.Canceled) && target != v.end {
		return false
	}
	return errors.Is(v.err, target)
}

func (v veiled) As(target any) bool { return errors.As(v.err, target) }

// CheckAddr returns an error if addr is a URL: an address is host:port. The error shows no
// password, and ends with instead.
func CheckAddr(addr, instead string) error {
	if !strings.Contains(addr, "://") {
		return nil
	}
	shown := "the address"
	if u, err := url.Parse(addr); err == nil {
		shown = "address " + u.Redacted()
	}
	return backends.Invalid(shown + " is a URL, and host:port is needed" + instead)
}

// Refuse returns an Executor whose calls fail with err, and send nothing.
func Refuse(err error) Executor { return refusing{err} }

// RefuseNil returns an Executor whose calls fail if client is nil or a nil pointer, else nil.
func RefuseNil(client any) Executor {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return Refuse(backends.Invalid("client is nil"))
	}
	return nil
}

type refusing struct{ err error }

func (r refusing) Do(context.Context, ...any) (any, error)                { return nil, r.err }
func (r refusing) Once(context.Context, ...any) (any, error)              { return nil, r.err }
func (r refusing) Pinned(context.Context, string, func(Conn) error) error { return r.err }
func (r refusing) Subscribe(context.Context) Subscription                 { return silent{err: r.err} }

// silent fails at its first request, after which nothing more is asked of it.
type silent struct {
	Subscription
	err error
}

func (r silent) Subscribe(string) error { return r.err }
func (r silent) Close() error           { return nil }
