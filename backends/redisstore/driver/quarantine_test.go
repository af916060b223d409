package driver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestWhatQuarantineErrorsSay(t *testing.T) {
	until := time.Date(2026, 11, 22, 10, 31, 5, 0, time.Local)
	for err, want := range map[error]string{
		&QuarantineError{Address: "db:6379", Until: until, why: whyChanged}: "the server at db:6379 is in quarantine until 10:31:05: " +
			"it was restarted, replaced or promoted since this client used it (see redisstore.WithMaxTTL and redisstore.WithoutQuarantine), and may have forgotten locks that are held",
		&QuarantineError{Address: "db:6379", Until: until, why: whyStrict, sent: true}: "the server at db:6379 is in quarantine until " +
			"10:31:05: it was started a short while ago (see redisstore.WithQuarantine), and may have forgotten locks that are held; " +
			"a grant that was on its way does not count",
		&QuarantineError{Address: "db:6379", Until: until, several: true}: "several servers answer at db:6379 in turn, and would " +
			"grant a lock twice: give each an address of its own",
		&replicaError{"db:6379", "slave"}: "the server at db:6379 is a replica (role slave) and can't grant locks",
		&untoldError{"db:6379", nil}: "redisstore.WithQuarantine needs INFO of the server at db:6379, to know how long it has been up: " +
			"its INFO has no uptime_in_seconds",
	} {
		if got := err.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// FuzzQuarantine: the strict form refuses a server if and only if it says that it has been up for
// less than was asked and a second.
func FuzzQuarantine(f *testing.F) {
	for _, seconds := range []int64{-1, 0, 60, 61, 3600, 3601, 1 << 40, 1<<63 - 1, -1 << 63} {
		f.Add("redis_version:7.0.15\r\n", seconds, "\r\nexecutable:/uptime_in_seconds:1", int64(time.Hour))
	}
	f.Fuzz(func(t *testing.T, before string, seconds int64, after string, maxTTL int64) {
		if maxTTL < int64(time.Millisecond) || maxTTL > int64(365*24*time.Hour) {
			return
		}
		for _, line := range strings.Split(before+"\n"+after, "\n") {
			name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "uptime_in_seconds" || name == "role" || name == "redis_mode" || name == "server_mode" {
				return // says two things, or what matters more
			}
		}
		q := NewQuarantine()
		q.Attach(time.Duration(maxTTL), time.Duration(maxTTL))
		err := q.Saw("", fmt.Sprintf("%s\nuptime_in_seconds:%d\n%s", before, seconds, after), nil)
		young := float64(seconds) < (time.Duration(maxTTL) + time.Second).Seconds()
		if (err != nil) != young {
			t.Errorf("up for %d s, longest TTL %v: %v", seconds, time.Duration(maxTTL), err)
		}
		if quarantined := (*QuarantineError)(nil); err != nil && !errors.As(err, &quarantined) {
			t.Errorf("%T", err)
		}
	})
}

func TestOnlyWhatCanStoreALockIsAGrant(t *testing.T) {
	for name, want := range map[string]bool{
		"SET": true, "SETNX": true, "GETSET": true, "SETBIT": true, "EVALSHA": false, "GET": false, "DEL": false, "PEXPIRE": false,
	} {
		if Grants([]any{name, "key"}) != want {
			t.Errorf("Grants is not %v for %s", want, name)
		}
	}
}
