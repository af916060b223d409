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
			"a value without expiry is held, with a *HeldError that matches ErrForeignKey too, and stays",
			"a value of another type is an error that matches ErrForeignKey and not ErrHeld, and stays",
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
			"an attempt that finds the lock held does not move the end of the holder's lease",
			"Lock gets the lock of a dead holder soon after its lease has ended, and not before",
		}),
	},
	{name: "SetBit", new: legacy.SetBit, holds: firstBit, noLeft: true, except: bitExcept},
	{
		name: "GetBit", new: legacy.GetBit, holds: firstBit, noLeft: true,
		except: slices.Concat(bitExcept, []string{
			// Two callers that find the bit off both turn it on.
			"of concurrent attempts exactly one is granted",
			"concurrent holders of one key exclude each other, and no update is lost",
		}),
	},
}

// A second SETNX or SETBIT finds what the first one stored, and does not compare it.
var noRetransmission = []string{
	"a second Acquire with the same token is granted, for ttl from then on",
	"two grants of the same token count once: one Release frees the lock",
}

// A stamp or a bit may be that of another holder, so an unknown outcome is not cleaned up. A stamp
// ends by itself.
var noCleanUp = []string{
	"when ctx ends while the store hangs, Acquire soon returns the error of the ctx, and nothing is left",
	"when ctx ends while the store hangs, the cleanup has a context of its own",
	"when the reply to Acquire is lost, the error matches neither ErrHeld nor ErrLost, and the grant is removed",
	"what a store that never answers has granted to a TryLock or Lock without deadline is removed, and the calls behind it go on",
	"under WithWait an attempt that was granted without an answer is followed by another one, which gets the lock within 3 s of its release",
	"a cleanup that fails or hangs is repeated until it is answered",
	"a grant that the store makes after its attempt has failed is removed too",
	"the cleanup of one attempt never removes the grant of the next",
	"when the store fails, Lock and TryLock return an error that is not ErrHeld, and nothing is left",
	"when ctx ends while the store hangs, Lock and TryLock return at once, not with ErrHeld, and nothing is left",
	// These hold if the store answers at all (see TestAGrantThatComesLateIsReleased). The end of
	// the ctx may prevent the answer.
	"when the store answers after ctx has ended, Acquire grants the lock or leaves nothing",
	"when the store answers after ctx has ended, Lock and TryLock have returned, and nothing is left",
}

var getSetExcept = slices.Concat(noRetransmission, noCleanUp, []string{
	// Equal stamps: granted in the same millisecond with the same ttl.
	"Extend after another holder took the lock matches ErrLost and leaves its lease alone",
	"Extend of a lock that another holder took matches ErrLost and ends its context",
	// DEL does not compare the value.
	"Unlock of a lock that another holder took unnoticed matches ErrLost and leaves that holder alone",
	"Unlock of a lost lock with a minimum hold matches ErrLost and leaves the next holder alone",
	"Extend and Release of a lease whose key was overwritten fail, and the new value stays",
})

var bitExcept = slices.Concat(noRetransmission, noCleanUp, []string{
	// A bit has no expiry.
	"an attempt that finds the lock held does not move the end of the holder's lease",
	"a lease lasts until its Expires, and soon after that the lock is free",
	"a slow answer does not make the lease longer",
	"an extended lease lasts until its new Expires, and no longer",
	"a slow answer does not make an extension longer",
	"Extend after the end of the lease matches ErrLost and does not bring it back",
	"Lock gets the lock of a dead holder soon after its lease has ended, and not before",
	"a renewal that arrives after the lock was lost leaves nothing, and makes no lease longer",
	"after Unlock the lock is not renewed any more",
	// A bit has no owner: the bit of another holder looks the same.
	"Extend after another holder took the lock matches ErrLost and leaves its lease alone",
	"Extend after another holder took the lock does not move the end of its lease",
	"when another holder has taken the lock, the context ends with ErrLost, stolen, no later than Expires",
	"Extend of a lock that another holder took matches ErrLost and ends its context",
	"Unlock after the lock was lost matches ErrLost and leaves the next holder alone",
	"Unlock of a lock that another holder took unnoticed matches ErrLost and leaves that holder alone",
	"Unlock of a lost lock with a minimum hold matches ErrLost and leaves the next holder alone",
	"Do whose lock was lost matches ErrLost, even if work did not fail",
	// Any text is a field of bits, so nothing is foreign.
	"a value without expiry is held, with a *HeldError that matches ErrForeignKey too, and stays",
	"Extend and Release of a lease whose key was overwritten fail, and the new value stays",
	"Lock waits for a foreign value without expiry until it is gone",
})
