package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// FuzzOptions: a ttl is taken from a millisecond to the limit and sent in whole milliseconds, never
// too few; WithReplicas needs one and a millisecond; whatever is refused is not sent; and a prefix
// comes before every key.
func FuzzOptions(f *testing.F) {
	f.Add("", "k", int64(time.Hour), int64(time.Second), 1, int64(time.Second))
	f.Add("app:", "{k}", int64(time.Hour), int64(time.Hour)+1, 0, int64(time.Second))
	f.Add("app {1}:", "k", int64(time.Minute), int64(1500*time.Microsecond), 3, int64(999_999))
	f.Add("p", "k", int64(1<<63-1), int64(1<<63-1), 2, int64(1<<63-1))
	f.Add("p", "k", int64(0), int64(0), -1, int64(-1))
	f.Fuzz(func(t *testing.T, prefix, key string, maxTTL, ttl int64, replicas int, timeout int64) {
		exec := &answers{reply: int64(1)}
		s := New(exec, WithPrefix(prefix), WithMaxTTL(time.Duration(maxTTL)))
		ok, err := s.Expire(t.Context(), key, time.Duration(ttl))
		good := ttl >= int64(time.Millisecond) && ttl <= maxTTL && maxTTL <= int64(10*365*24*time.Hour)
		if ok != good || (err == nil) != good || (exec.sent != nil) != good {
			t.Errorf("Expire for %v with a limit of %v = %v, %v; sent %q", time.Duration(ttl), time.Duration(maxTTL), ok, err, exec.sent)
		}
		if good {
			more := exec.sent[2].(int64) - ttl/int64(time.Millisecond)
			if exec.sent[1] != prefix+key || more < 1 || more > 2 || (more == 2) != (ttl%int64(time.Millisecond) > 0) {
				t.Errorf("Expire for %v sent %q", time.Duration(ttl), exec.sent)
			}
		}

		exec = &answers{reply: []any{"OK", int64(replicas)}}
		s = New(exec, WithReplicas(replicas, time.Duration(timeout)))
		_, err = s.SetNX(t.Context(), "k", "v", time.Second)
		var is interface{ Permanent() bool }
		refused := errors.As(err, &is) && is.Permanent()
		if good := replicas >= 1 && timeout >= int64(time.Millisecond); good == refused || good != (err == nil) {
			t.Errorf("SetNX with WithReplicas(%d, %v): %v", replicas, time.Duration(timeout), err)
		} else if good && s.config.wait[2].(int64) < timeout/int64(time.Millisecond) {
			t.Errorf("WithReplicas(%d, %v) sends %v", replicas, time.Duration(timeout), s.config.wait)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "redisstore.WithReplicas: ") {
			t.Errorf("%v does not say of which option it comes", err)
		}
	})
}
