package redis

import (
	"fmt"
	"time"
)

// QuarantineError refuses a server that was started so recently that it may have forgotten a lock that is still held.
type QuarantineError struct {
	Uptime time.Duration // since its start
	Needed time.Duration // before it is trusted
}

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("server was started %v ago and is in quarantine for another %v: it may have forgotten locks that are held"+
		" (see WithMaxTTL and WithoutQuarantine of backends/redis)", e.Uptime, e.Needed-e.Uptime)
}

// ErrorType is "quarantined".
func (e *QuarantineError) ErrorType() string { return "quarantined" }

// Quarantine is for adapters, which call it with the reply to INFO server on every new connection: it refuses a server
// that has been up for less than maxTTL and a second, since servers tell their uptime in whole seconds. A server that
// tells no uptime passes; Check has a finding for it.
//
// A restart is noticed because it breaks the connections; a proxy that hides it hides it from quarantine too. The
// uptime follows the server's wall clock.
func Quarantine(info string, maxTTL time.Duration) error {
	needed := maxTTL + quarantineMargin
	if up, ok := uptime(parseInfo(info)); ok && up < needed {
		return &QuarantineError{Uptime: up, Needed: needed}
	}
	return nil
}
