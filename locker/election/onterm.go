package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// An End says when a term was over for this process, and why.
type End struct {
	// At is when lead returned or its ctx ended, whichever came first. IsLeader is nil until then.
	At time.Time

	// Reason is Resigned, Failed or Stopped; or the [locker.LostReason] of a loss.
	Reason string

	// Err is what lead returned, or the cause with which its ctx ended if that came first.
	Err error
}

// Why a term ends, apart from a loss.
const (
	Resigned = "resigned" // lead returned nil
	Failed   = "failed"   // lead returned an error, panicked or called runtime.Goexit
	Stopped  = "stopped"  // the ctx given to Run ended
)

// OnTerm lets a program follow the terms of e, for metrics and logs; packages otellocker and
// sloglocker have hooks for it. Run calls begin before lead, with the ctx of lead. It calls the func
// that begin returns (if not nil) once, when the term is over for this process: when lead has
// returned or its ctx has ended, whichever comes first. So it may run beside a lead that ignores its
// ctx. It has returned when Run sends the release; neither func may block.
//
// Call OnTerm before Run. It returns e. The begin of the hook given first is called first, and its
// end last.
func (e *Election) OnTerm(begin func(ctx context.Context, t Term) (end func(End))) *Election {
	if e != nil && begin != nil {
		e.hooks = append(e.hooks, begin)
	}
	return e
}

// following calls the hooks of one term.
type following struct {
	l     *locker.Lock
	leads *termContext
	ends  []func(End)
	stop  func() bool // of the look for the end of leads; nil without a hook
	once  sync.Once
	err   error // what lead returned
}

var errNoReturn = errors.New("lead panicked or called runtime.Goexit")

func (f *following) begin(hooks []func(context.Context, Term) func(End), t Term) {
	for _, begin := range hooks {
		if end := begin(f.leads, t); end != nil {
			f.ends = append(f.ends, end)
		}
	}
	if len(f.ends) > 0 {
		f.stop = context.AfterFunc(f.leads, f.over)
	}
}

// returned is called when lead has returned. If the end of its ctx came first, it waits for the
// hooks.
func (f *following) returned() {
	if f.stop != nil {
		f.stop()
	}
	f.over()
}

func (f *following) over() {
	if len(f.ends) > 0 {
		f.once.Do(func() { tell(f.ends, f.end()) })
	}
}

func (f *following) end() End {
	now := time.Now()
	if expires := f.l.Lease().Expires; expires.Before(now) {
		now = expires
	}
	if f.leads.Err() == nil {
		if f.err == nil {
			return End{now, Resigned, nil}
		}
		return End{now, Failed, f.err}
	}
	cause := context.Cause(f.leads)
	var lost *locker.LostError
	switch {
	case errors.As(cause, &lost):
		return End{now, string(lost.Reason), cause}
	case errors.Is(cause, locker.ErrLost):
		return End{now, string(locker.LostStolen), cause}
	}
	return End{now, Stopped, cause}
}

// tell calls the funcs, the last one first.
func tell(ends []func(End), end End) {
	if last := len(ends) - 1; last >= 0 {
		defer tell(ends[:last], end) // also if the last one panics
		ends[last](end)
	}
}
