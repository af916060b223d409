package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/lockstep-go/lockstep/backends"
)

// BadInput is an error of a call that is refused before anything is sent.
type BadInput string

func (e BadInput) Error() string { return string(e) }

// Permanent is true: repeating the call cannot help.
func (BadInput) Permanent() bool { return true }

// ErrorType is invalid.
func (BadInput) ErrorType() string { return "invalid" }

// StatementError is an error that the database server has told. It is of one of three classes:
//   - permanent (Permanent): the server did nothing, and a repetition gets the same answer;
//   - not done (Unsent): the server has undone everything, and the call may be repeated;
//   - unknown: all others.
type StatementError struct {
	State string // SQLSTATE: five letters or digits
	Err   error  // as the driver gave it
}

func (e *StatementError) Error() string { return e.Err.Error() + e.next() }
func (e *StatementError) Unwrap() error { return e.Err }

func (e *StatementError) next() string {
	switch {
	case e.isMissing():
		return "; the tables and functions of the locks are missing: call Install once, and give the role the search of the schema lockstep"
	case e.State == "42501":
		return "; give the role the rights that sqlstore.PostgreSQLGrants lists"
	case e.State == "25006":
		return "; nothing was done: this server follows another one, and takes no writes"
	case e.Unsent():
		return "; nothing was done"
	case !e.Permanent():
		return "; the outcome is unknown"
	}
	return ""
}

// isMissing tells that Install was not called: there is no such schema, table, function or type.
func (e *StatementError) isMissing() bool {
	switch e.State {
	case "3F000", "42P01", "42883", "42704":
		return true
	}
	return false
}

// Permanent says that a repetition gets the same answer: what is asked is missing, not permitted or wrong.
func (e *StatementError) Permanent() bool {
	switch class := e.class(); class {
	case "22", "28", "3D", "3F", "42", "0A":
		return true
	}
	return false
}

// Unsent says that the server has undone everything: a conflict with another transaction, a lock that was
// not had in time, a server that is a standby, is full, starts or stops before it ran the statement.
func (e *StatementError) Unsent() bool {
	switch e.State {
	case "40001", "40P01", "55P03", "25006", "57014", "57P03", "53000", "53100", "53200", "53300":
		return true
	}
	return false
}

func (e *StatementError) class() string { return e.State[:min(2, len(e.State))] }

// ErrorType is the SQLSTATE.
func (e *StatementError) ErrorType() string { return "sql_" + strings.ToLower(e.State) }

// explain gives an error of a driver its class. A driver whose errors have no method SQLState leaves the
// outcome unknown.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if told, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok && told.SQLState() != "" {
		is := &StatementError{State: told.SQLState(), Err: err}
		if is.State == "57014" && ctx.Err() != nil { // cancelled by us
			return ended{ctx.Err(), is}
		}
		return is
	}
	var timeout net.Error
	switch cause := ctx.Err(); {
	case cause != nil && !errors.Is(err, cause):
		return ended{cause, err}
	case errors.As(err, &timeout) && timeout.Timeout() && !errors.Is(err, context.DeadlineExceeded):
		return ended{context.DeadlineExceeded, err}
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("the database answered with no row; the outcome is unknown: %w", err)
	}
	return err
}

// ended is an error of a call whose ctx has ended: it matches the error of the ctx, whatever the driver
// calls it.
type ended struct{ cause, err error }

func (e ended) Error() string   { return e.err.Error() }
func (e ended) Unwrap() []error { return []error{e.cause, e.err} }

// The errors of outcomes that a function of the database tells.
var (
	errWrongType  error = permanent{backends.ErrWrongType}
	errForeign    error = permanent{backends.ErrForeign}
	errNumbersEnd error = permanent{errors.New("the numbers of the key have come to their end at 2^53")}
)

type permanent struct{ error }

func (permanent) Permanent() bool   { return true }
func (permanent) ErrorType() string { return "invalid" }
func (p permanent) Unwrap() error   { return p.error }
