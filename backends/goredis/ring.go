package goredis

// ringError refuses a client that can't keep locks, before anything is sent.
type ringError struct{}

func (ringError) Error() string {
	return "a redis.Ring can't keep locks: when a shard is down it leads the key to another, which grants it again"
}

// Permanent says that repeating will not help.
func (ringError) Permanent() bool { return true }

// ErrorType is "invalid".
func (ringError) ErrorType() string { return "invalid" }
