package backends

import (
	"context"
	"time"
)

// A LegacyStore has the plain commands of locks from before SET NX PX, for strategies that share
// keys with such software. Each command is atomic by itself. Most do not compare the value, and
// none wakes a waiter. The promises of [Store] on errors, ctx and ttl hold here as well. Commands
// whose repetition would change the answer are sent once.
type LegacyStore interface {
	// MaxTTL returns the store's limit of a ttl. A recipe checks its ttl with it before anything is
	// sent, since the command that takes the lock has no ttl. A longer lease would outlive the
	// quarantine of a server.
	MaxTTL() time.Duration

	SetNXForever(ctx context.Context, key, value string) (ok bool, err error)          // SETNX: stored without expiry if key was free
	Get(ctx context.Context, key string) (value string, found bool, err error)         // GET
	GetSet(ctx context.Context, key, value string) (old string, found bool, err error) // GETSET: stored without expiry, whatever was there
	Left(ctx context.Context, key string) (left time.Duration, found bool, err error)  // PTTL: 0 if key has no expiry
	Expire(ctx context.Context, key string, ttl time.Duration) (found bool, err error) // PEXPIRE, whatever the value
	Delete(ctx context.Context, key string) (found bool, err error)                    // DEL, whatever the value

	// TxExpireIf and TxDeleteIf compare and act with WATCH, GET, MULTI, PEXPIRE or DEL, and EXEC.
	// They repeat while other clients change key in between. Unlike ExpireIf of a Store, TxExpireIf
	// can shorten a life.
	TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (ok bool, err error)
	TxDeleteIf(ctx context.Context, key, value string) (ok bool, err error)

	GetBit(ctx context.Context, key string, offset uint32) (on bool, err error)           // GETBIT: off if key is absent
	SetBit(ctx context.Context, key string, offset uint32, on bool) (was bool, err error) // SETBIT: the old bit
}
