// Package legacy has the recipes by which locks were made in Redis before SET NX PX (2.6.12), as they still run in
// production and stand in the literature. They are here so that new code can share a lock with old code until the
// old code is gone, and to show what goes wrong with them. For anything else there is package single.
//
//	GetSet   SETNX of a time stamp, GETSET when it is past     each client's clock decides
//	Expire   SETNX, then EXPIRE                                locked for ever if the process dies in between
//	SetBit   SETBIT, by the bit that was there before          no expiry, no owner
//	GetBit   GETBIT, then SETBIT                               two may hold it
//
// Each says in its comment what it sends, what it does not promise and how to get from it to single. All of them are
// whole Lockers, and a [locker.Client] waits, extends and unlocks as ever; but that is only as good as the recipe. None
// numbers its grants. Old code wakes nobody, so Watch of all returns an error that matches [errors.ErrUnsupported], and
// waiters poll.
//
// A TTL is at most the store's limit, also where the recipe sends no TTL: a longer lease would
// outlive the quarantine of a server. If old code has longer leases, set WithMaxTTL of the store's
// package to the longest.
//
// # Who excludes whom on one key
//
// A row is the one that has the lock, a column the one that asks for it. "-" means that both hold it.
//
//	          single    GetSet    Expire    SetBit, GetBit
//	single    refused   refused   refused   -
//	GetSet    refused   refused   broken    -
//	Expire    refused   refused   refused   -
//	SetBit    refused   refused   broken    refused
//
// "broken" is refused at first: Expire takes a value without expiry for one whose process was killed, and gives it an
// expiry; when that is over, both hold it.
//
// A stamp that is past, and any bit, also one that is off, is a value without expiry that single does not touch, and
// GetSet does not touch a bit: they wait until somebody deletes the key.
package legacy
