// Package scripts has the Lua scripts of the Redis family.
package scripts

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"slices"
)

var (
	//go:embed holder.lua
	holderSource string
	//go:embed grant.lua
	grantSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed extend.lua
	extendSource string
	//go:embed release.lua
	releaseSource string

	//go:embed score.lua
	scoreSource string
	//go:embed stand.lua
	standSource string
	//go:embed place.lua
	placeSource string
	//go:embed queue.lua
	queueSource string
	//go:embed turn.lua
	turnSource string
	//go:embed held.lua
	heldSource string
	//go:embed enqueue.lua
	enqueueSource string
	//go:embed free.lua
	freeSource string
	//go:embed pass.lua
	passSource string
	//go:embed quit.lua
	quitSource string

	//go:embed counter.lua
	counterSource string
	//go:embed draw.lua
	drawSource string
	//go:embed unnumbered.lua
	unnumberedSource string
	//go:embed number.lua
	numberSource string
	//go:embed raise.lua
	raiseSource string

	//go:embed holds.lua
	holdsSource string
	//go:embed admit.lua
	admitSource string
	//go:embed enter.lua
	enterSource string
	//go:embed renew.lua
	renewSource string
	//go:embed leave.lua
	leaveSource string
	//go:embed withdraw.lua
	withdrawSource string

	//go:embed transfer.lua
	transferSource string
	//go:embed transferhold.lua
	transferHoldSource string

	//go:embed print.lua
	printSource string
	//go:embed inspect.lua
	inspectSource string
	//go:embed evict.lua
	evictSource string
	//go:embed evicthold.lua
	evictHoldSource string
)

// queueing follows turn.lua. Each part ends the script if what follows is not needed.
var queueing = holderSource + scoreSource + standSource + heldSource + placeSource + queueSource + enqueueSource

// The scripts, each named by what it does. Scripts that grant are also listed in granting.
var (
	Acquire = newScript(1, holderSource+grantSource+acquireSource)
	Extend  = newScript(1, extendSource)
	Release = newScript(1, releaseSource)

	Enqueue  = newScript(2, grantSource+unnumberedSource+turnSource+queueing)
	Numbered = newScript(3, grantSource+counterSource+drawSource+turnSource+queueing)
	Pass     = newScript(2, freeSource+scoreSource+placeSource+queueSource+passSource)
	Quit     = newScript(2, scoreSource+placeSource+queueSource+quitSource)

	Number = newScript(2, holderSource+counterSource+grantSource+drawSource+numberSource)
	Raise  = newScript(2, counterSource+raiseSource)

	Enter         = newScript(3, holderSource+scoreSource+standSource+placeSource+holdsSource+admitSource+unnumberedSource+enterSource)
	EnterAlone    = Enter.without(2)
	EnterNumbered = newScript(4, holderSource+scoreSource+standSource+placeSource+holdsSource+admitSource+counterSource+drawSource+enterSource)
	Renew         = newScript(1, holdsSource+renewSource)
	Leave         = newScript(3, scoreSource+placeSource+holdsSource+admitSource+leaveSource)
	LeaveAlone    = Leave.without(2)
	Withdraw      = newScript(3, scoreSource+placeSource+holdsSource+admitSource+withdrawSource)

	Transfer             = newScript(1, holderSource+unnumberedSource+transferSource)
	TransferNumbered     = newScript(2, holderSource+counterSource+drawSource+transferSource)
	TransferHold         = newScript(1, holdsSource+unnumberedSource+transferHoldSource)
	TransferHoldNumbered = newScript(2, holdsSource+counterSource+drawSource+transferHoldSource)

	Inspect = newScript(4, holderSource+printSource+inspectSource)
	Evict   = newScript(3, printSource+scoreSource+placeSource+queueSource+evictSource+holdsSource+admitSource+evictHoldSource)
)

// Script is a Lua script. It is sent by its digest, and in full to a server that does not know it.
type Script struct{ source, Digest, keys any } // strings and a number, boxed once

func newScript(keys int, source string) Script {
	sum := sha1.Sum([]byte(source)) // what Redis names scripts by, not a matter of security
	return Script{source: source, Digest: hex.EncodeToString(sum[:]), keys: keys}
}

// without is the same script with so many keys less.
func (s Script) without(keys int) Script {
	s.keys = s.keys.(int) - keys
	return s
}

// Call returns the command that names the script by its digest. Args are the keys and then the
// arguments. Call does not keep the slice, so that a caller can have it on its stack.
func (s Script) Call(args []any) []any {
	command := make([]any, 3, 3+len(args))
	command[0], command[1], command[2] = "EVALSHA", s.Digest, s.keys
	return append(command, args...)
}

// Full returns call, the command of Call, with the whole script in place of its digest.
func (s Script) Full(call []any) []any {
	command := slices.Clone(call)
	command[0], command[1] = "EVAL", s.source
	return command
}

// Grants tells whether the command runs a script that grants a lock.
func Grants(command []any) bool { return runs(command, granting) }

// Keeps tells whether the command runs a script that renews, releases or cleans up.
func Keeps(command []any) bool { return runs(command, keeping) }

func runs(command []any, one []Script) bool {
	for _, s := range one {
		if command[1] == s.Digest || command[1] == s.source {
			return true
		}
	}
	return false
}

var granting = []Script{
	Acquire, Enqueue, Numbered, Number, Enter, EnterNumbered, Transfer, TransferNumbered, TransferHold, TransferHoldNumbered,
}

var keeping = []Script{Extend, Release, Pass, Quit, Raise, Renew, Leave, Withdraw}
