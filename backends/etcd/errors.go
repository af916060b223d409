package etcd

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstep-go/lockstep/backends"
)

// Error is an error that the cluster, or the connection to it, has told. It is of one of three
// classes:
//   - permanent (Permanent): nothing was done, and a repetition gets the same answer;
//   - not done (Unsent): nothing was done, and the call may be repeated;
//   - unknown: all others.
type Error struct {
	Code     codes.Code
	Endpoint string // the addresses of the members that the client knows: it does not tell which one was asked
	Err      error  // as the client library gave it

	cause  error  // the error of the ctx, if it has ended
	reason string // why no member could be reached, if that is known
	before bool   // nothing that changes a lock was sent, or it was undone
	after  bool   // something was done, and it is not known whether it was undone
}

func (e *Error) Error() string {
	text := "etcd at " + e.Endpoint + ": " + e.Err.Error() + because(e.reason)
	text += hint(text)
	switch {
	case e.is(rpctypes.ErrNoSpace):
		text += "; compact and defragment the members, and then disarm the alarm (etcdctl alarm disarm)"
	case e.is(rpctypes.ErrLeaseNotFound):
		text += "; a key may name a lease that does not exist: compare the data of the members (etcdctl endpoint hashkv)"
	case e.Code == codes.PermissionDenied || e.is(rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed):
		return text + "; give the user of the client a role with readwrite on the prefix of the store"
	}
	switch {
	case e.Unsent():
		return text + "; nothing was done"
	case !e.Permanent():
		return text + "; the outcome is unknown"
	}
	return text
}

// Unwrap returns the error of the client library, and that of the ctx if it has ended.
func (e *Error) Unwrap() []error {
	if e.cause != nil {
		return []error{e.cause, e.Err}
	}
	return []error{e.Err}
}

// Permanent says that a repetition gets the same answer: the call is not permitted, or wrong, or the client
// is closed. No error of the code FailedPrecondition is: those that a call for a lock can meet tell of the state
// of a member.
func (e *Error) Permanent() bool {
	if e.after {
		return false
	}
	switch e.Code {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented:
		return !e.refused()
	}
	return e.is(rpctypes.ErrLeaseTTLTooLarge, errClosed)
}

// Unsent says that nothing was done, and that the call may be repeated.
func (e *Error) Unsent() bool { return !e.after && !e.Permanent() && (e.before || e.refused()) }

// refused tells that the member that was asked did nothing. "no space" is not here: etcd reports it
// also for a change that it has made. Neither is "server stopped": a member reports it for a proposal
// that is on its way.
func (e *Error) refused() bool {
	if e.is(rpctypes.ErrTooManyRequests, rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrNotCapable, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision) {
		return true
	}
	return isOfLearner(e.Err)
}

// isOfLearner tells that a member has no vote yet, and refuses calls. The client library has no error for it.
func isOfLearner(err error) bool {
	return err != nil && strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner))
}

func (e *Error) is(some ...error) bool {
	for _, one := range some {
		if errors.Is(e.Err, one) {
			return true
		}
	}
	return false
}

// ErrorType is the code of gRPC.
func (e *Error) ErrorType() string { return "etcd_" + strings.ToLower(e.Code.String()) }

// explain gives an error of the client library its class.
func (s *Store) explain(ctx context.Context, err error) error {
	return s.classify(ctx, err, Error{})
}

// notDone is explain for an error of a call that has changed no lock, or that has undone its change.
func (s *Store) notDone(ctx context.Context, err error) error {
	return s.classify(ctx, err, Error{before: true})
}

// unknown is explain for an error of a call that has changed a lock, and could not undo it.
func (s *Store) unknown(ctx context.Context, err error) error {
	return s.classify(ctx, err, Error{after: true})
}

func (s *Store) classify(ctx context.Context, err error, as Error) error {
	if err == nil || errors.Is(err, errWrongType) {
		return err
	}
	err = rpctypes.Error(err)
	e := &as
	e.before = e.before || unsent(ctx)
	e.Code, e.Endpoint, e.Err, e.reason = codes.Unknown, s.Endpoint(), err, reason(ctx)
	var told rpctypes.EtcdError
	if errors.As(err, &told) {
		e.Code = told.Code()
	} else if of, ok := status.FromError(err); ok {
		e.Code = of.Code()
	}
	switch cause := ctx.Err(); {
	case cause != nil:
		e.Code, e.cause = status.FromContextError(cause).Code(), cause
	case e.Code == codes.DeadlineExceeded: // a clock of gRPC was ahead of that of ctx
		e.cause = context.DeadlineExceeded
	}
	return e
}

var (
	errWrongType  error = backends.AsPermanent(backends.ErrWrongType)
	errForeign    error = backends.AsPermanent(backends.ErrForeign)
	errOtherGroup error = backends.AsPermanent(backends.ErrOtherGroup)
	errClosed           = errors.New("the client is closed; nothing was done: make a new client")
)

// maxGone is how often a call goes on after the end of a lease. All spares may have ended, as in a cluster
// that was restored.
const maxGone = 2 * maxSpares

// goesOnAfterEnd tells that a lease has ended, so that the call reads anew what is there, and counts that. It is
// false, and the error stands, if that was so too often: the end of a lease deletes its key, unless the data is damaged.
func goesOnAfterEnd(ctx context.Context, err error) bool {
	return err != nil && errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) && traceOf(ctx).goOn()
}

// ignoreGone is err, unless it says that a lease has ended.
func ignoreGone(ctx context.Context, err error) error {
	if goesOnAfterEnd(ctx, err) {
		return nil
	}
	return err
}
