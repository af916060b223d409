package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/backends"
)

// StatementError is an error that the database has told. It is of one of three classes:
//   - permanent (Permanent): the database did nothing, and a repetition gets the same answer;
//   - not done (Unsent): the database has undone everything, and the call may be repeated;
//   - unknown: all others.
type StatementError struct {
	State string // SQLSTATE for PostgreSQL, the error number for MySQL, the result code for SQLite
	Err   error  // as the driver gave it

	class       class
	next        string // what to do
	interrupted bool   // by the end of the ctx, or by an operator
}

type class int

const (
	unknown class = iota
	permanentClass
	notDone
	raced // not done: another call was quicker
)

func (e *StatementError) Error() string {
	text := e.Err.Error()
	if e.Unsent() && !strings.HasSuffix(text, "nothing was sent") {
		text += "; nothing was done"
	}
	if e.class == unknown {
		text += "; the outcome is unknown"
	}
	if e.next != "" {
		text += ": " + e.next
	}
	return text
}

func (e *StatementError) Unwrap() error { return e.Err }

// Permanent says that a repetition gets the same answer: what is asked is missing, not permitted or wrong.
func (e *StatementError) Permanent() bool { return e.class == permanentClass }

// Unsent says that the database has undone everything: there was a conflict with another transaction, a
// lock was not had in time, or the server is a standby, is full, or starts or stops.
func (e *StatementError) Unsent() bool { return e.class == notDone || e.class == raced }

// ErrorType is the state.
func (e *StatementError) ErrorType() string { return "sql_" + strings.ToLower(e.State) }

// postgresqlError classifies an error with a method SQLState.
func postgresqlError(err error) *StatementError {
	told, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok || told.SQLState() == "" {
		return nil
	}
	e := &StatementError{State: told.SQLState(), Err: err}
	switch e.State {
	case "40001", "40P01", "55P03", "57014", "57P05", "53000":
		e.class, e.interrupted = notDone, e.State == "57014"
	case "26000": // what the driver has prepared is not there
		e.class, e.next = notDone, "give the locks a pool of their own without DISCARD and DEALLOCATE; behind a pooler, let the driver prepare nothing"
	case "25P02":
		e.class, e.next = notDone, "a statement has failed in this transaction: roll it back; if a program began it by Exec, use BeginTx"
	case "57P03":
		e.class, e.next = notDone, "wait until the server has started, and look at its log"
	case "53100":
		e.class, e.next = notDone, "make room on the disk of the server"
	case "53200":
		e.class, e.next = notDone, "give the server more memory, or fewer connections"
	case "53300":
		e.class, e.next = notDone, "raise max_connections or the CONNECTION LIMIT of the role, or give the pools fewer connections"
	case "25006":
		e.class, e.next = notDone, "the server is a standby, or default_transaction_read_only is on: connect to the primary (target_session_attrs=read-write), or set it to off for the role of the locks"
	case "3F000", "42P01", "42883":
		e.next = missingInPostgreSQL
	case "42704": // an object of another kind, or a setting
		if e.next = "the server does not know this: look at the settings in the connection string"; strings.Contains(told.Error(), `"lockstep`) {
			e.next = missingInPostgreSQL
		}
	case "42501":
		e.next = "give the role the rights that `lockstep install -grant ROLE` and sqlstore.PostgreSQLGrants list"
	case "28P01", "28000":
		e.next = "check the user name and the password, and pg_hba.conf"
	case "3D000":
		e.next = "create the database, or name another one"
	}
	switch e.State[:min(2, len(e.State))] {
	case "22", "28", "3D", "3F", "42", "0A", "54":
		e.class = permanentClass
	}
	return e
}

const missingInPostgreSQL = "the tables and functions of the locks are missing: run `lockstep install` or call Install once, and give the role the search of the schema lockstep"

// ofInstall gives an error about rights the next step of a call of Install, which needs others than locks.
func ofInstall(err error) error {
	if e, ok := errors.AsType[*StatementError](err); ok {
		switch e.State {
		case "42501":
			e.next = "install as the owner of the schema lockstep, or as a role with CREATE on the database (`lockstep install -print` shows the SQL)"
		case "1142", "1044", "1227":
			e.next = "install as a user with CREATE and ALTER on the database"
		}
	}
	return err
}

// sqliteError classifies an error with a result code of SQLite.
func sqliteError(err error) *StatementError {
	code, ok := number(err)
	if !ok {
		return nil
	}
	code &= 0xff // what is above says more about the same
	e := &StatementError{State: strconv.Itoa(code), Err: err}
	switch code {
	case 5, 6: // BUSY, LOCKED
		e.class, e.next = notDone, "another program wrote for longer than the busy_timeout of the connection"
	case 9: // INTERRUPT
		e.class, e.interrupted = notDone, true
	case 7: // NOMEM
		e.class = notDone
	case 13: // FULL
		e.class, e.next = notDone, "the disk is full, or the file has reached max_page_count"
	case 14: // CANTOPEN
		e.class, e.next = notDone, "there is no such file, or this user may not open it or write to its folder: run `lockstep install` or call Install once"
	case 1: // ERROR: above all, a table or a function that is missing
		e.class, e.next = permanentClass, "run `lockstep install` or call Install once; SQLite must be 3.42 or later"
	case 8: // READONLY
		e.class, e.next = permanentClass, "remove mode=ro and immutable=1 from the DSN, and give this user the right to write the file and its folder"
	case 26: // NOTADB
		e.class, e.next = permanentClass, "give the path of another file"
	case 3, 11, 18, 19, 20, 23: // PERM, CORRUPT, TOOBIG, CONSTRAINT, MISMATCH, AUTH
		e.class = permanentClass
	}
	return e
}

// mysqlError classifies an error with an error number of MySQL.
func mysqlError(err error) *StatementError {
	code, ok := number(err)
	if !ok {
		return nil
	}
	e := &StatementError{State: strconv.Itoa(code), Err: err}
	switch code {
	case 1062, 1213, 1020, 1048: // a row that is there already, a deadlock, a row that has changed, a session in which insert.sql adds nothing
		e.class = raced
	case 1317: // cancelled
		e.class, e.interrupted = notDone, true
	case 1205, 3572: // waited too long for a row, or not at all
		e.class = notDone
	case 1969, 3024:
		e.class, e.next = notDone, "another transaction keeps the row for long, or the server is slow: look at SHOW PROCESSLIST, or raise max_statement_time (max_execution_time in MySQL)"
	case 1021, 1114:
		e.class, e.next = notDone, "make room on the disk of the server"
	case 1041:
		e.class, e.next = notDone, "give the server more memory, or fewer connections"
	case 1040, 1203, 1226: // too many connections
		e.class, e.next = notDone, "raise max_connections or the limit of the user, or give the pools fewer connections"
	case 1290: // an option of the server forbids the statement; the text names it
		e.class = permanentClass
		if text := err.Error(); strings.Contains(text, "read-only") || strings.Contains(text, "read_only") {
			e.class, e.next = notDone, readOnlyMySQL
		}
	case 1836:
		e.class, e.next = notDone, readOnlyMySQL
	case 1792:
		e.class, e.next = notDone, "transactions are read-only here: set transaction_read_only (tx_read_only in MariaDB) to OFF, in the session and on the server"
	case 1146, 1054:
		e.class, e.next = permanentClass, "the table of the locks is missing: run `lockstep install` or call Install once, in the database that the DSN names"
	case 1044:
		e.class, e.next = permanentClass, "name a database that is there, and give the user SELECT, INSERT, UPDATE and DELETE on its table lockstep_lock"
	case 1142, 1143:
		e.class, e.next = permanentClass, "give the user SELECT, INSERT, UPDATE and DELETE on the table lockstep_lock"
	case 1045:
		e.class, e.next = permanentClass, "check the user name and the password"
	case 1046, 1049:
		e.class, e.next = permanentClass, "create the database, or name another one"
	case 1064, 1227, 1264, 1366, 1406:
		e.class = permanentClass
	}
	return e
}

const readOnlyMySQL = "the server is read-only, as a replica is: connect to the server that takes the writes, or set read_only to OFF"

// number is the code of an error of a driver. The drivers have no interface for it in common: some have a
// method Code, others a field Number or Code, and some are a code themselves. None of them may be imported
// here.
func number(err error) (int, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) == 1 { // joined to none
			return number(all.Unwrap()[0])
		}
		v, own := reflect.ValueOf(err), reflect.Value{}
		if strings.HasSuffix(v.Type().Name(), "ErrorCode") {
			own = v
		}
		for _, code := range []reflect.Value{own, result(v.MethodByName("Code")), field(v, "Number"), field(v, "Code")} {
			switch {
			case code.CanInt():
				return int(code.Int()), true
			case code.CanUint():
				return int(code.Uint()), true
			}
		}
	}
	return 0, false
}

// explain gives an error of a driver for PostgreSQL its class. A driver whose errors have no method
// SQLState leaves the outcome unknown.
func explain(ctx context.Context, err error) error { return explainBy(ctx, postgresqlError, err) }

// explainBy gives an error of a driver its class. classify returns nil for one that the database has not
// told.
func explainBy(ctx context.Context, classify func(error) *StatementError, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[backends.Invalid](err); ok {
		return err
	}
	if m, ok := errors.AsType[maybe](err); ok {
		if errors.As(err, new(answer)) {
			return err
		}
		if err = explainBy(ctx, classify, m.error); backends.Unsent(err) || backends.Permanent(err) { // of its last try alone
			return maybe{err}
		}
		return err
	}
	if told := classify(err); told != nil {
		if ctx.Err() != nil && told.interrupted {
			return ended{ctx.Err(), told}
		}
		return told
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && !backends.Unsent(err) {
		err = backends.NotSent(err)
	}
	var timeout net.Error
	switch cause := ctx.Err(); {
	case cause != nil && !errors.Is(err, cause):
		return ended{cause, err}
	case errors.As(err, &timeout) && timeout.Timeout() && !errors.Is(err, context.DeadlineExceeded):
		return ended{context.DeadlineExceeded, err}
	case strings.HasSuffix(err.Error(), "invalid connection") && !backends.Unsent(err): // github.com/go-sql-driver/mysql
		return fmt.Errorf("the connection was lost in the call: %w", err)
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
	errWrongType  error = backends.AsPermanent(backends.ErrWrongType)
	errForeign    error = backends.AsPermanent(backends.ErrForeign)
	errOtherGroup error = backends.AsPermanent(backends.ErrOtherGroup)
	errNumbersEnd error = backends.Invalid("the numbers of the key have come to their end at 2^53")
)
