package relied

import (
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	for _, c := range []struct{ relied, ttl, want time.Duration }{
		{-1, time.Hour, time.Hour}, // not said
		{time.Second, time.Hour, time.Second},
		{time.Hour, time.Second, time.Second},
		{0, time.Hour, 0},
		{time.Second, Longest, time.Second},
		{time.Second, Longest + 1, Longest + 1}, // too long for anybody
	} {
		ctx := t.Context()
		if c.relied >= 0 {
			ctx = With(ctx, c.relied)
		}
		if got := Of(ctx, c.ttl); got != c.want {
			t.Errorf("of %v, %v is relied on: %v; want %v", c.ttl, c.relied, got, c.want)
		}
	}
}
