package backends

import (
	"context"
	"time"
)

// A StartingStore can be asked without waiting for its answer, so that one goroutine asks many servers at once, such as the
// nodes of a quorum, and none waits for each of them.
//
// StartSetNX and StartDeleteIf are SetNX and DeleteIf, for who does not stand in a queue. What these return is given to then: once, on
// another goroutine, and in the time that they would take. Then does not block, since others may wait for that goroutine. Once the
// call is sent, a ctx that is cancelled need not end it; its deadline does.
//
// Strategies look for this interface: a store that embeds another one, and has a SetNX or a DeleteIf of its own, has these of its own
// as well.
type StartingStore interface {
	Store
	StartSetNX(ctx context.Context, key, value string, ttl time.Duration, then func(Result, error))
	StartDeleteIf(ctx context.Context, key, value string, then func(ok bool, err error))
}
