// Package legacy has the lock recipes for Redis from before SET NX PX (2.6.12). They still run in
// production and stand in books. They are here for two uses: new code can share a lock with old
// code until the old code is gone, and they show what goes wrong. For anything else use package
// single.
//
//	GetSet   SETNX of a time stamp, GETSET when it is past     each client's clock decides
//	Expire   SETNX, then EXPIRE                                can stay locked for ever
//	SetBit   SETBIT, by the bit that was there before          no expiry, no owner
//	GetBit   GETBIT, then SETBIT                               two may hold it
//
// The comment of each recipe says what it sends, what it does not promise and how to get from it to
// single. Each recipe is a complete Locker. A [locker.Client] waits, renews and unlocks as usual,
// but only as well as the recipe allows. No recipe numbers its grants. Old code does not wake
// anybody. So Watch of every recipe returns an error that matches [errors.ErrUnsupported], and
// waiters poll.
//
// A TTL is at most the store's limit, also where the recipe sends no TTL: a longer lease would
// outlive the quarantine of a server. If old code has longer leases, set WithMaxTTL of the store's
// package to the longest.
//
// # Which recipes exclude each other on one key
//
// The row has the lock, the column asks for it. "held" means that the column is kept out, "-" that
// both hold the lock.
//
//	          single    GetSet    Expire    SetBit, GetBit
//	single    held      held      held      -
//	GetSet    held      held      broken    -
//	Expire    held      held      held      -
//	SetBit    held      held      broken    held
//
// "broken" is held at first. Expire takes a value without expiry for that of a killed process and
// gives it an expiry. After that expiry both hold the lock.
//
// single never takes a value without expiry. A stamp that is past is such a value, and so is any
// bit, even if it is off. GetSet never takes a bit. They wait until somebody deletes the key.
package legacy
