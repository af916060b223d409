package natsstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/nats-io/nats.go"
)

// Error is an error that a server, or the connection to it, has told. It is of one of three
// classes:
//   - permanent (Permanent): a repetition gets the same answer;
//   - not done (Unsent): nothing was done, and the call may be repeated;
//   - unknown: all others.
type Error struct {
	Code   int    // of JetStream (err_code); 0: the error is not from JetStream
	Server string // the address that the connection had; without a connection, those that are tried
	Err    error

	class class
	next  string // what to do
}

type class int

const (
	unknown class = iota
	permanent
	unsent
)

func (e *Error) Error() string {
	text := "nats " + e.Server + ": " + strings.TrimPrefix(e.Err.Error(), "nats: ") + "; "
	switch {
	case e.class == unsent && e.next != "":
		return text + "nothing was done: " + e.next
	case e.class == unsent:
		return text + "nothing was done"
	case e.next != "":
		return text + e.next
	}
	return text + "the outcome is unknown"
}

func (e *Error) Unwrap() error { return e.Err }

// Permanent says that a repetition gets the same answer: the stream is missing or has other
// settings, or the user may not do this.
func (e *Error) Permanent() bool { return e.class == permanent }

// Unsent says that nothing was done: there is no connection, no leader, or no space.
func (e *Error) Unsent() bool { return e.class == unsent }

// ErrorType is the code of JetStream.
func (e *Error) ErrorType() string {
	if e.Code == 0 {
		return "nats"
	}
	return "nats_" + strconv.Itoa(e.Code)
}

// A way is the connection that a request goes over.
type way struct {
	conn    *nats.Conn
	place   *place
	isFirst bool
	over    context.Context // nil for the first connection; else see spare
	end     func()          // to be called when the request has ended
}

func (w way) error(err error) *Error { return &Error{Server: w.place.of(w.conn), Err: err} }

// endpoint is the address of the server that the connection has, or those of the servers that it tries.
func endpoint(conn *nats.Conn) string {
	return cmp.Or(conn.ConnectedAddr(), strings.Join(addresses(conn), ", "))
}

func (w way) is(err error, c class, next string) *Error {
	e := w.error(err)
	e.class, e.next = c, next
	return e
}

// apiError is an error that JetStream tells.
type apiError struct {
	Status      int    `json:"code"` // like those of HTTP
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return e.Description }

// The codes of JetStream that matter here.
const (
	codeUnavailable   = 10008 // it has no leader
	codeNoResources   = 10023
	codeNoMessage     = 10037
	codeNoAccount     = 10039
	codeNoSequence    = 10043
	codeNoStorage     = 10047
	codeNoStream      = 10059
	codeOtherStream   = 10060
	codeDeleteFailed  = 10057
	codeNameInUse     = 10058
	codeWrongSequence = 10071 // and 10164, if the server does not tell which one it wanted
	codeNoReplicas    = 10074
	codeStoreFailed   = 10077
	codeConflict      = 10164
	codeBadTTL        = 10165
	codeNoTTL         = 10166
)

// told gives an error of JetStream its class.
func (w way) told(err *apiError) error {
	e := w.error(err)
	e.Code = err.Code
	switch err.Code {
	case codeWrongSequence, codeConflict:
		e.class = unsent
	case codeNoStream, codeOtherStream, codeNoTTL, codeBadTTL:
		e.class, e.next = permanent, "call Store.Install once, with the options of this store, on a server of version 2.11 or later"
	case codeNoAccount:
		e.class, e.next = permanent, "enable JetStream for the account of this user"
	case codeNoReplicas:
		e.class, e.next = permanent, "a stream with replicas needs a cluster: call Install with 1, or connect to a cluster"
	case codeNoResources, codeNoStorage:
		e.class, e.next = unsent, "give the account or the server more storage"
	case codeUnavailable:
		e.class, e.next = unsent, "wait until JetStream has a leader"
	case codeStoreFailed:
		if strings.Contains(err.Description, "maximum") {
			e.class, e.next = unsent, "the stream is full; raise its limits, and unset discard_new_per_subject"
		}
	default:
		if err.Status >= 400 && err.Status < 500 && err.Status != tooManyRequests || strings.Contains(err.Description, "not permitted") {
			e.class, e.next = permanent, "run Store.Check to see what is wrong with the stream"
		}
	}
	return e
}

// tooManyRequests passes: the servers have more to do than they can, and may have done this all the same.
const tooManyRequests = 429

// code is the code that JetStream has told, or 0.
func code(err error) int {
	if told, ok := errors.AsType[*Error](err); ok {
		return told.Code
	}
	return 0
}

// isConflict tells that the last message has another sequence than was expected, or, in a stream
// with replicas, that another write of the subject is under way. Nothing was done.
func isConflict(err error) bool {
	c := code(err)
	return c == codeWrongSequence || c == codeConflict
}

// isGone tells that there was no message to delete. A server in a cluster and one alone say it
// differently.
func isGone(err error) bool {
	switch code(err) {
	case codeNoSequence, codeNoMessage:
		return true
	case codeDeleteFailed:
		for _, text := range []string{"no message found", "deleted message", "store EOF"} {
			if strings.Contains(err.Error(), text) {
				return true
			}
		}
	}
	return false
}

// notConnected is the error of a call that was not sent.
func (w way) notConnected(status nats.Status) error {
	last := w.conn.LastError() // such as a password that is wrong; the connection does not keep all of these
	if status == nats.CLOSED && w.isFirst {
		err := nats.ErrConnectionClosed
		if last != nil {
			err = fmt.Errorf("%w (%s)", err, strings.TrimPrefix(last.Error(), "nats: "))
		}
		return w.is(err, permanent, "make a new connection, with nats.MaxReconnects(-1)")
	}
	why, next := status.String(), "the connection is being made again"
	if last != nil {
		why += ", " + strings.TrimPrefix(last.Error(), "nats: ")
	}
	return w.is(fmt.Errorf("not connected (%s)", why), unsent, next+hint(last))
}

// hint is what to do if a connection can't be made.
func hint(last error) string {
	switch {
	case last == nil:
		return "; nats.ReconnectErrHandler tells why each attempt fails"
	case errors.As(last, new(*tls.CertificateVerificationError)):
		return "; check RootCAs and ServerName of the client's tls.Config"
	case strings.Contains(last.Error(), "remote error: tls: "):
		return "; check Certificates of the client's tls.Config"
	case errors.Is(last, nats.ErrSecureConnWanted):
		return "; the server may not speak TLS: then connect without nats.Secure"
	case isEnd(last):
		return "; the log of the server says why it ends it, as for max_connections or a password"
	}
	return ""
}

// isEnd tells that the server has closed the connection. The client library may miss what it said before.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func addresses(conn *nats.Conn) (all []string) {
	for _, url := range conn.Servers() { // without the password that may be in it
		if i := strings.LastIndexByte(url, '@'); i >= 0 {
			url = url[i+1:]
		}
		all = append(all, strings.TrimPrefix(url, "nats://"))
	}
	return all
}

// explain gives an error of the client library its class.
func (w way) explain(ctx context.Context, subject string, before moment, err error) error {
	if denied := w.denied(subject, before.last); denied != nil {
		return denied
	}
	switch cause := ctx.Err(); {
	case cause != nil && errors.Is(err, cause):
		return &overdue{error: w.at(fmt.Errorf("%s%w", w.lost(before), err))}
	case cause != nil:
		return ended{cause, w.error(err)}
	case errors.Is(err, nats.ErrNoResponders) && strings.HasPrefix(subject, "$JS."):
		return w.is(fmt.Errorf("nobody takes %s", subject), unsent, "JetStream is off on the server: enable it in its configuration")
	case errors.Is(err, nats.ErrNoResponders):
		return w.is(fmt.Errorf("nobody takes %s", subject), unsent,
			"the stream has no leader at the moment, or it is missing (call Store.Install), or JetStream is off")
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrHeadersNotSupported):
		return w.is(err, permanent, "use a shorter key, or another server")
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionDraining):
		return w.is(err, unsent, "")
	case errors.Is(err, context.DeadlineExceeded):
		return w.error(fmt.Errorf("%sno answer to %s within %v", w.lost(before), subject, requestLimit))
	}
	return w.error(err)
}

// A moment is what a connection was before a request.
type moment struct {
	last error
	made uint64 // how often it was made again
}

func (w way) moment() moment { return moment{w.conn.LastError(), w.conn.Stats().Reconnects} }

// lost says that the connection has ended since, if it has: a request that was on its way gets no answer.
func (w way) lost(since moment) string {
	if w.conn.IsConnected() && w.conn.Stats().Reconnects == since.made {
		return ""
	}
	return "the connection was lost: "
}

// denied tells that the user may not use a subject. The server does not answer such a request. It
// tells the connection, which remembers its last error: before is the one from before the call.
func (w way) denied(subject string, before error) error {
	last := w.conn.LastError()
	if last == before || //nolint:errorlint // the very same one
		!errors.Is(last, nats.ErrPermissionViolation) || !strings.Contains(last.Error(), `"`+subject+`"`) {
		return nil
	}
	return w.is(last, permanent, "give the user the permissions that Store.Permissions lists")
}

// notDone gives an error of a request that changes nothing its class, if all before it has changed nothing.
func notDone(err error) error {
	if told, ok := errors.AsType[*Error](err); ok {
		if told.class == unknown {
			told.class = unsent
		}
		return err
	}
	if late, ok := errors.AsType[*overdue](err); ok {
		late.unsent = true
		return err
	}
	if err != nil && !backends.Unsent(err) {
		return backends.NotDone(err)
	}
	return err
}

// at names the server in an error that is none of the server or the connection.
func (w way) at(err error) error { return fmt.Errorf("nats %s: %w", w.place.of(w.conn), err) }

// stuck is the error of a request that has had no answer at the end of its ctx, or of its limit, and whose
// connection does not tell anything.
func (s *Store) stuck(ctx context.Context, subject string) error {
	if err := ctx.Err(); err != nil {
		return &overdue{error: s.at(fmt.Errorf("the connection takes no more bytes: %w", err))}
	}
	return &Error{Server: s.Endpoint(), Err: fmt.Errorf("the connection takes no more bytes: no answer to %s within %v", subject, requestLimit)}
}

func (s *Store) at(err error) error { return fmt.Errorf("nats %s: %w", s.Endpoint(), err) }

// over is the error of a call whose ctx has ended before anything was done.
func (s *Store) over(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return backends.NotDone(s.at(err))
	}
	return nil
}

// overdue is the error of a request that had no answer when its ctx ended.
type overdue struct {
	error
	unsent bool
}

func (e *overdue) Error() string {
	if e.unsent {
		return e.error.Error() + "; nothing was done"
	}
	return e.error.Error() + "; the outcome is unknown"
}
func (e *overdue) Unwrap() error { return e.error }
func (e *overdue) Unsent() bool  { return e.unsent }

// ended is an error of a call whose ctx has ended: it matches the error of the ctx, whatever the
// client library calls it.
type ended struct{ cause, err error }

func (e ended) Error() string   { return e.err.Error() }
func (e ended) Unwrap() []error { return []error{e.cause, e.err} }

var (
	errWrongType  error = backends.AsPermanent(backends.ErrWrongType)
	errForeign    error = backends.AsPermanent(backends.ErrForeign)
	errNumbersEnd error = backends.Invalid("the numbers of the stream have come to their end at 2^53: make another stream")
	errBusy       error = busy{}
)

// busy says that other writes of the same message kept this one from being done.
type busy struct{}

func (busy) Error() string {
	return "another write of this lock is under way; nothing was done: repeat the call"
}
func (busy) Unsent() bool      { return true }
func (busy) ErrorType() string { return "nats_busy" }
