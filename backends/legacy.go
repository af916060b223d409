package backends

import (
	"context"
	"time"
)

// A LegacyStore has the plain commands of which locks were made before SET NX PX, for strategies that keep company with
// such software. Each is atomic by itself; most do not ask whose the key is, and none wakes anybody. The promises of
// [Store] on errors, ctx and ttl hold here as well. Commands whose repetition would change the answer are sent once.
type LegacyStore interface {
	// MaxTTL is the store's limit of a ttl. A recipe compares its ttl with it before anything is sent, since
	// the command that takes the lock has no ttl. No lease may be longer, or it would outlive the quarantine
	// of a server.
	MaxTTL() time.Duration

	SetNXForever(ctx context.Context, key, value string) (ok bool, err error)          // SETNX: stored without expiry if key was free
	Get(ctx context.Context, key string) (value string, found bool, err error)         // GET
	GetSet(ctx context.Context, key, value string) (old string, found bool, err error) // GETSET: stored without expiry, whatever was there
	Left(ctx context.Context, key string) (left time.Duration, found bool, err error)  // PTTL: 0 if key has no expiry
	Expire(ctx context.Context, key string, ttl time.Duration) (found bool, err error) // PEXPIRE, whoever's key is
	Delete(ctx context.Context, key string) (found bool, err error)                    // DEL, whoever's key is

	// TxExpireIf and TxDeleteIf compare and act by WATCH, GET, MULTI, PEXPIRE or DEL, EXEC, again while others change
	// key in between. Unlike ExpireIf of a Store, TxExpireIf shortens a life too.
	TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (ok bool, err error)
	TxDeleteIf(ctx context.Context, key, value string) (ok bool, err error)

	GetBit(ctx context.Context, key string, offset uint32) (on bool, err error)           // GETBIT: off if key is absent
	SetBit(ctx context.Context, key string, offset uint32, on bool) (was bool, err error) // SETBIT: the old bit
}
