package redisstore

import "github.com/lockstep-go/lockstep/backends/redisstore/driver"

type (
	// ReplyError is an error reply of the server.
	ReplyError = driver.ReplyError
	// WireError is a call that got no reply.
	WireError = driver.WireError
	// QuarantineError is a grant that was refused because the server may have forgotten a lock that
	// is still held.
	QuarantineError = driver.QuarantineError
)
