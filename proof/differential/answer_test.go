package differential

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A store has all methods of a backend.
type store interface {
	backends.NumberedStore
	backends.FencedStore
	backends.OrderedStore
	backends.LegacyStore
}

// numbering is one of the two calls that number a grant.
type numbering string

const (
	byCount numbering = "Count"
	byClock numbering = "Clock"
)

func (n numbering) draw(ctx context.Context, s store, key, value string, ttl time.Duration) (backends.Result, error) {
	if n == byCount {
		return s.SetNXFenced(ctx, key, value, ttl)
	}
	return s.SetNXNumbered(ctx, key, value, ttl, backends.Turn{})
}

// An outside is other software that uses the same data.
type outside interface {
	Get(key string) (value string, left time.Duration, found bool)
	Set(key, value string, ttl time.Duration)
	SetOther(key string)
	SetShared(key string)
	Delete(key string)
}

// An answer has the results of any call.
type answer struct {
	ok      bool // done, found, or a bit that is on
	text    string
	left    time.Duration
	foreign bool
	fence   uint64
	holds   int
	room    int
	err     failing
}

// failing is the kind of an error.
type failing string

const (
	noError   failing = ""
	wrongType failing = "wrong type" // which is permanent as well
	permanent failing = "permanent"  // bad input, or impossible
	canceled  failing = "canceled"
)

func kindOf(err error) failing {
	var is interface{ Permanent() bool }
	no := errors.As(err, &is) && is.Permanent()
	switch {
	case err == nil:
		return noError
	case errors.Is(err, backends.ErrWrongType) && no:
		return wrongType
	case no:
		return permanent
	case errors.Is(err, context.Canceled):
		return canceled
	}
	return failing("error " + err.Error())
}

// perform calls s or o.
func perform(ctx context.Context, s store, o outside, op operation) (a answer) {
	if op.late {
		done, cancel := context.WithCancel(ctx)
		cancel()
		ctx = done
	}
	var r backends.Result
	var err error
	switch op.call {
	case "SetNX":
		r, err = s.SetNX(ctx, op.key, op.value, op.ttl)
	case "ExpireIf":
		a.ok, err = s.ExpireIf(ctx, op.key, op.value, op.ttl)
	case "DeleteIf":
		a.ok, err = s.DeleteIf(ctx, op.key, op.value)
	case "SetNXFenced":
		r, err = op.number.draw(ctx, s, op.key, op.value, op.ttl)
	case "RaiseFence":
		a.ok, err = s.RaiseFence(ctx, op.key, op.value, op.to)
	case "Enter":
		r, err = s.Enter(ctx, op.key, op.value, op.ttl, backends.Admission{Group: op.group, Limit: op.limit})
	case "Renew":
		a.ok, err = s.Renew(ctx, op.key, op.value, op.ttl)
	case "Leave":
		a.ok, err = s.Leave(ctx, op.key, op.value)
	case "SetNXForever":
		a.ok, err = s.SetNXForever(ctx, op.key, op.value)
	case "Get":
		a.text, a.ok, err = s.Get(ctx, op.key)
	case "GetSet":
		a.text, a.ok, err = s.GetSet(ctx, op.key, op.value)
	case "Left":
		a.left, a.ok, err = s.Left(ctx, op.key)
	case "Expire":
		a.ok, err = s.Expire(ctx, op.key, op.ttl)
	case "Delete":
		a.ok, err = s.Delete(ctx, op.key)
	case "TxExpireIf":
		a.ok, err = s.TxExpireIf(ctx, op.key, op.value, op.ttl)
	case "TxDeleteIf":
		a.ok, err = s.TxDeleteIf(ctx, op.key, op.value)
	case "GetBit":
		a.ok, err = s.GetBit(ctx, op.key, op.offset)
	case "SetBit":
		a.ok, err = s.SetBit(ctx, op.key, op.offset, op.on)
	case "outside.Get":
		a.text, a.left, a.ok = o.Get(op.key)
	case "outside.Set":
		o.Set(op.key, op.value, op.ttl)
	case "outside.SetOther":
		o.SetOther(op.key)
	case "outside.SetShared":
		o.SetShared(op.key)
	case "outside.Delete":
		o.Delete(op.key)
	case "wait":
		time.Sleep(op.ttl)
	default:
		panic("no such operation: " + op.call)
	}
	if r != (backends.Result{}) {
		a = answer{ok: r.OK, left: r.Left, foreign: r.Foreign, fence: r.Fence, holds: r.Holds, room: r.Room}
	}
	a.err = kindOf(err)
	return a
}

func (a answer) String() string {
	parts := []string{fmt.Sprint(a.ok)}
	add := func(is bool, format string, v any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	add(a.text != "", "%q", a.text)
	add(a.foreign, "foreign: %v", a.foreign)
	add(a.left != 0, "%v left", a.left)
	add(a.fence != 0, "fence %d", a.fence)
	add(a.holds != 0, "%d holds", a.holds)
	add(a.room != 0, "room for %d", a.room)
	add(a.err != noError, "%s", a.err)
	return strings.Join(parts, ", ")
}
