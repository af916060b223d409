// Package info reads the reply to INFO.
package info

import (
	"cmp"
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

// Mode is what kind of server it is: "standalone", "cluster" or "sentinel". Valkey 9 has another name
// for the field.
func Mode(fields map[string]string) string {
	return cmp.Or(fields["server_mode"], fields["redis_mode"])
}

// Version is the version of the server. Valkey has a field of its own for it. Its redis_version is the
// version of Redis that it is compatible with.
func Version(fields map[string]string) string {
	if v := fields["valkey_version"]; v != "" {
		return "Valkey " + v
	}
	return fields["redis_version"]
}

// Uptime is how long the server says it is up, and whether it says so. It is zero if the clock of
// the server was set back to before its start.
func Uptime(fields map[string]string) (time.Duration, bool) {
	seconds, err := strconv.ParseInt(fields["uptime_in_seconds"], 10, 64)
	return time.Duration(min(max(seconds, 0), math.MaxInt64/int64(time.Second))) * time.Second, err == nil
}

// Clock is the wall clock of the server; zero: it does not tell.
func Clock(fields map[string]string) time.Time {
	us, err := strconv.ParseInt(fields["server_time_usec"], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
