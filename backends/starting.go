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
// call is sent, a ctx that is cancelled does not end it; its deadline does.
type StartingStore interface {
	Store
	StartSetNX(ctx context.Context, key, value string, ttl time.Duration, then func(Result, error))
	StartDeleteIf(ctx context.Context, key, value string, then func(ok bool, err error))
}
