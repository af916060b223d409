package legacy_test

import (
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/legacy"
)

// A recipe is a Locker to test, with the sentences that it does not promise.
type recipe struct {
	name   string
	new    func(backends.LegacyStore) locker.Locker
	holds  func(value string) bool // reports that a value keeps other callers out
	coarse time.Duration           // the unit of the Left of a HeldError
	noLeft bool
	except []string
}

var recipes = []recipe{
	{
		name: "Expire", new: legacy.Expire,
		holds: func(string) bool { return true },
		except: slices.Concat(noRetransmission, []string{
			// A value without expiry counts as that of a killed process, and is repaired, whatever
			// its type.
			"a value without expiry is a *HeldError that matches ErrForeignKey too, and stays",
			"a value of another type matches ErrForeignKey and not ErrHeld, and stays",
			"a value of another type ends the wait with ErrForeignKey",
		}),
	},
	{
		name: "GetSet in milliseconds",
		new: func(s backends.LegacyStore) locker.Locker {
			return legacy.GetSet(s, legacy.InMilliseconds())
		},
		holds:  isStampToCome(1000),
		except: getSetExcept,
	},
	{
		name:  "GetSet",
		new:   func(s backends.LegacyStore) locker.Locker { return legacy.GetSet(s) },
		holds: isStampToCome(1), coarse: time.Second,
		except: slices.Concat(getSetExcept, []string{
			// A stamp in seconds is up to two seconds after the end of a short lease.
			"a refusal does not move the end of the holder's lease",
			"Lock gets the lock of a dead holder soon after its lease has ended, and not before",
		}),
	},
	{name: "SetBit", new: legacy.SetBit, holds: firstBit, noLeft: true, except: bitExcept},
	{
		name: "GetBit", new: legacy.GetBit, holds: firstBit, noLeft: true,
		except: slices.Concat(bitExcept, []string{
			// Two callers that find the bit off both turn it on.
			"of many concurrent attempts exactly one is granted",
			"many who lock one key exclude each other, and no update is lost",
		}),
	},
}

// A second SETNX or SETBIT finds what the first one stored, and does not compare it.
var noRetransmission = []string{
	"a retransmission with the same token is granted again, for its ttl from then on",
	"a retransmission counts once: one Release frees the lock",
}

// A stamp or a bit may be that of another holder, so an unknown outcome is not cleaned up. A stamp
// ends by itself.
var noCleanUp = []string{
	"when ctx ends while the store hangs, Acquire returns its error soon and nothing is left",
	"when ctx ends while the store hangs, the clean-up has a context of its own",
	"when the reply to Acquire is lost, it says neither held nor lost, and what was stored is removed",
	"a clean-up that fails or hangs is repeated until it is answered",
	"a request that lands after its attempt has failed is removed too",
	"the clean-up of one attempt never removes the grant of the next",
	"when the store fails, Lock and TryLock return an error that is not ErrHeld, and nothing is left",
	"when ctx ends while the store hangs, Lock and TryLock return at once, not with ErrHeld, and nothing is left",
	// These hold if the store answers at all (see TestAGrantThatComesLateIsReleased). The end of
	// the ctx may prevent the answer.
	"when the store answers after ctx has ended, Acquire grants or leaves nothing",
	"when the store answers after ctx has ended, Lock and TryLock have returned, and nothing is left",
}

var getSetExcept = slices.Concat(noRetransmission, noCleanUp, []string{
	// Equal stamps: granted in the same millisecond with the same ttl.
	"Extend after another took the lock matches ErrLost and leaves the other's lease",
	"Extend of a lock that was taken away matches ErrLost and ends its context",
	// DEL does not compare the value.
	"Unlock of a lock that was taken away unnoticed matches ErrLost and leaves the next holder alone",
	"a lease whose key was overwritten can be neither extended nor released, and what is there stays",
})

var bitExcept = slices.Concat(noRetransmission, noCleanUp, []string{
	// A bit has no expiry.
	"a refusal does not move the end of the holder's lease",
	"a lease lasts until its Expires, and then the lock is free for the next",
	"a slow answer does not make the lease longer",
	"an extended lease lasts until its new Expires, and no longer",
	"a slow answer does not make an extension longer",
	"Extend after the end of the lease matches ErrLost and does not bring it back",
	"Lock gets the lock of a dead holder soon after its lease has ended, and not before",
	"an extension that lands after the lock was lost leaves nothing and nobody's lease longer",
	"after Unlock nothing more of the lock is extended",
	// A bit has no owner: the bit of another holder looks the same.
	"Extend after another took the lock matches ErrLost and leaves the other's lease",
	"Extend after another took the lock does not move the end of the other's lease",
	"when another has taken the lock, the context ends with ErrLost, stolen, no later than Expires",
	"Extend of a lock that was taken away matches ErrLost and ends its context",
	"Unlock after the lock was lost matches ErrLost and leaves the next holder alone",
	"Unlock of a lock that was taken away unnoticed matches ErrLost and leaves the next holder alone",
	"Do whose lock was lost says so, although work did not fail",
	// Any text is a field of bits, so nothing is foreign.
	"a value without expiry is a *HeldError that matches ErrForeignKey too, and stays",
	"a lease whose key was overwritten can be neither extended nor released, and what is there stays",
	"Lock waits for a foreign value without expiry until it is gone",
})
