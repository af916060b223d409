// Package info reads the reply to INFO.
package info

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// UptimeError is how much longer than it says a server may be up: it counts whole seconds.
const UptimeError = time.Second

// Parse reads lines of field:value.
func Parse(reply string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(reply) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && !strings.HasPrefix(field, "#") {
			fields[field] = value
		}
	}
	return fields
}

// Uptime is how long the server says it is up, and whether it says so. It is zero if the clock of
// the server was set back to before its start.
func Uptime(fields map[string]string) (time.Duration, bool) {
	seconds, err := strconv.ParseInt(fields["uptime_in_seconds"], 10, 64)
	return time.Duration(min(max(seconds, 0), math.MaxInt64/int64(time.Second))) * time.Second, err == nil
}
